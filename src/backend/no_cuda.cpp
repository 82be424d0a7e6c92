// Replaces the CUDA backend in builds without nvcc: no device is usable.
#include "corank/error.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "kernels/backend/link.hpp"

namespace corank {
namespace {

constexpr char reason[] = "this build has no CUDA support";

}  // namespace

bool built_with_cuda() {
  return false;
}

int count_cuda_devices() {
  return 0;
}

CudaDevice find_cuda_device(int) {
  return {.usable = false, .description = reason};
}

std::uint64_t max_sorted_at_once(int, const KeyEncoding&) {
  return 0;
}

std::unique_ptr<Backend> make_cuda_backend(int, const BackendConfig&) {
  throw Error(ErrorCode::device, reason);
}

LinkRates measure_link(const std::vector<int>&) {
  throw Error(ErrorCode::device, reason);
}

}  // namespace corank
