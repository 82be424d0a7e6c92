// Measures the bandwidth between the memory of the host and of a device. This header includes
// nothing of CUDA.
#pragma once

namespace corank {

struct LinkRates {  // bytes per second
  double up = 0;
  double down = 0;
  double both = 0;  // each way, while the other is busy
};

// Measures by copying pinned memory. Throws Error if there is no such device.
LinkRates measure_link(int device);

}  // namespace corank
