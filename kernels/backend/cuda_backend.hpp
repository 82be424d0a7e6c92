// Creates the CUDA backend and describes its devices. This header includes nothing of CUDA; builds
// without nvcc implement it in src/backend/no_cuda.cpp.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.hpp"

namespace corank {

// Description of a device, made before a merge uses it.
struct CudaDevice {
  bool usable = false;
  std::string description;  // name and memory, or why it cannot be used
};

bool built_with_cuda();

// Returns the number of devices that this process can see; 0 without a driver. Never throws.
int count_cuda_devices();

// Describes a device. Never throws; a build without CUDA says so in the description. The first call
// of a process is slow if there is a device, since it initialises CUDA.
CudaDevice find_cuda_device(int device);

// Returns how many records the device can sort as one unit; 0 if it cannot be used, or if records
// vary in length. Never throws.
std::uint64_t max_sorted_at_once(int device, const KeyEncoding& encoding);

// Returns a backend on the device. Throws Error if it cannot be used.
std::unique_ptr<Backend> make_cuda_backend(int device, const BackendConfig& config);

}  // namespace corank
