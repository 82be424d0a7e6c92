// Measures the bandwidth between the memory of the host and of devices. This header includes
// nothing of CUDA.
#pragma once

#include <vector>

namespace corank {

struct LinkRates {  // bytes per second
  double up = 0;
  double down = 0;
  double both = 0;  // each way, while the other is busy
};

// Measures by copying pinned memory, to and from all `devices` at the same time. Throws Error if
// there is no such device.
LinkRates measure_link(const std::vector<int>& devices);

}  // namespace corank
