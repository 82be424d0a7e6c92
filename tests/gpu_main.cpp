#include <cstdio>

#define CATCH_CONFIG_RUNNER  // of version 2; version 3 has no such thing
#include "catch.hpp"
#include "cuda_backend.hpp"

int main(int argc, char** argv) {
  const corank::CudaDevice device = corank::find_cuda_device(0);
  if (!device.usable) {
    std::printf("skipped: no usable GPU: %s\n", device.description.c_str());
    return 77;  // which CTest knows as "skipped"
  }
  std::printf("GPU: %s\n", device.description.c_str());
  return Catch::Session().run(argc, argv) == 0 ? 0 : 1;  // a number of failures could be 77
}
