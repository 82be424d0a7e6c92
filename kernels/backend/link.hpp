// How fast bytes pass between the host's memory and a device's. Nothing of CUDA is reachable from
// here.
#pragma once

namespace corank {

struct LinkRates {  // bytes a second
  double up = 0;
  double down = 0;
  double both = 0;  // each way, while the other is busy, too
};

// Copies pinned memory. Throws Error where there is no such device.
LinkRates measure_link(int device);

}  // namespace corank
