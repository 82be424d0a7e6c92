#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/link.hpp"

namespace corank {
namespace {

constexpr std::size_t copy_bytes = std::size_t{64} << 20;
constexpr int copies = 8;  // back to back, so that the start and the end of a round hardly count
constexpr int rounds = 3;

// One direction of a device's link, with a stream and memory on both sides of its own. The device
// must be the thread's when it is made.
struct Direction {
  cudaMemcpyKind kind;
  Stream stream = make_stream();
  PinnedArray<std::byte> host = pinned_array<std::byte>(copy_bytes);
  DeviceArray<std::byte> device = device_array<std::byte>(copy_bytes);

  void enqueue() const {
    const bool up = kind == cudaMemcpyHostToDevice;
    for (int i = 0; i < copies; ++i)
      CORANK_CUDA(cudaMemcpyAsync(up ? device.get() : host.get(), up ? host.get() : device.get(),
                                  copy_bytes, kind, stream.get()));
  }
};

// Returns the bytes per second of each of the devices' links, added up.
double best_rate(const std::vector<Direction>& directions, int devices) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    for (const Direction& direction : directions) direction.enqueue();
    for (const Direction& direction : directions)
      CORANK_CUDA(cudaStreamSynchronize(direction.stream.get()));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(devices * copies * copy_bytes) / seconds);
  }
  return best;
}

}  // namespace

LinkRates measure_link(const std::vector<int>& devices) {
  const auto rate = [&](std::initializer_list<cudaMemcpyKind> kinds) {
    std::vector<Direction> directions;
    for (const int device : devices) {
      CORANK_CUDA(cudaSetDevice(device));
      for (const cudaMemcpyKind kind : kinds) directions.push_back({kind});
    }
    return best_rate(directions, static_cast<int>(devices.size()));
  };
  return {rate({cudaMemcpyHostToDevice}), rate({cudaMemcpyDeviceToHost}),
          rate({cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost})};
}

}  // namespace corank
