#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/backend/cuda_backend.hpp"
#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/lane_pool.cuh"
#include "kernels/backend/merge_lane.cuh"
#include "kernels/backend/sort_lane.cuh"
#include "kernels/formats/text_backend.hpp"

namespace corank {
namespace {

// Returns visit(W), as a constant, for the number of words of the encoding's key prefixes.
template <class Visit>
auto with_words(const KeyEncoding& encoding, Visit visit) {
  switch (encoding.prefix_words()) {
    case 1:
      return visit(std::integral_constant<int, 1>{});
    case 2:
      return visit(std::integral_constant<int, 2>{});
    default:
      return visit(std::integral_constant<int, max_key_words>{});
  }
}

}  // namespace

bool built_with_cuda() {
  return true;
}

int count_cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

CudaDevice find_cuda_device(int device) {
  (void)cudaGetLastError();  // clears the error of an earlier call on this thread
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && (device < 0 || device >= count))
    return {false, "no CUDA device " + std::to_string(device) + ": this machine has " +
                       std::to_string(count) + ", counted from 0"};
  cudaDeviceProp properties{};
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, device);
  if (status == cudaSuccess) status = cudaSetDevice(device);
  cudaFuncAttributes kernel{};  // fails if this build has no code for the device
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&kernel, stage);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    // The runtime also calls a driver that is not there too old.
    if (status == cudaErrorInsufficientDriver && !std::filesystem::exists("/proc/driver/nvidia"))
      return {false, "no NVIDIA driver found"};
    return {false, std::string("no usable CUDA device: ") + cudaGetErrorString(status)};
  }
  std::string description = std::string(properties.name) + ", " +
                            std::to_string(properties.totalGlobalMem >> 30) + " GiB";
  if (!properties.canUseHostPointerForRegisteredMem)
    return {false, description + ", cannot read pinned memory by the host's addresses"};
  return {true, std::move(description)};
}

std::uint64_t max_sorted_at_once(int device, const KeyEncoding& encoding) {
  std::size_t free = 0, all = 0;
  if (encoding.layout().text || cudaSetDevice(device) != cudaSuccess ||
      cudaMemGetInfo(&free, &all) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return with_words(encoding, [&](auto words) {
    return SortLane<words>::max_records(free, encoding.record_bytes());
  });
}

std::unique_ptr<Backend> make_cuda_backend(int device, const BackendConfig& config) {
  const CudaDevice found = find_cuda_device(device);
  if (!found.usable) throw DeviceError(found.description, false);
  if (config.encoding->layout().text) return make_text_backend(device, found.description, config);
  return with_words(*config.encoding, [&](auto words) -> std::unique_ptr<Backend> {
    if (config.sorts)
      return std::make_unique<DeviceBackend<SortLane<words>>>(device, found.description, config);
    return std::make_unique<DeviceBackend<MergeLane<words>>>(device, found.description, config);
  });
}

}  // namespace corank
