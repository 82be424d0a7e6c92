// The device backend behind one header. Nothing of CUDA is reachable from here.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.hpp"

namespace corank {

// What is known of a device before a merge takes it.
struct CudaDevice {
  bool usable = false;
  std::string description;  // its name and memory, or why it can't be used
};

bool built_with_cuda();

// Never throws; a build without CUDA says so in the description. The first call of a process takes
// a few tenths of a second, if there is a device.
CudaDevice find_cuda_device(int device);

// Throws Error if the device can't be used.
std::unique_ptr<Backend> make_cuda_backend(int device, const BackendConfig& config);

}  // namespace corank
