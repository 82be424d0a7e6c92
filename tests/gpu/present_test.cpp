// Skips the GPU tests on machines without a usable GPU.
#include <string>

#include "kernels/backend/cuda_backend.hpp"

std::string cannot_run() {
  const corank::CudaDevice device = corank::find_cuda_device(0);
  return device.usable ? "" : "no usable GPU: " + device.description;
}
