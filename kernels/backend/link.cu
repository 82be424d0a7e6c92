#include <algorithm>
#include <chrono>
#include <cstddef>

#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/link.hpp"

namespace corank {
namespace {

constexpr std::size_t copy_bytes = std::size_t{64} << 20;
constexpr int copies = 8;  // back to back, so that the start and the end of a round hardly count
constexpr int rounds = 3;

// One direction, with a stream and memory on both sides of its own.
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

template <class... Directions>
double best_rate(const Directions&... directions) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    (directions.enqueue(), ...);
    CORANK_CUDA(cudaDeviceSynchronize());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(copies * copy_bytes) / seconds);
  }
  return best;
}

}  // namespace

LinkRates measure_link(int device) {
  CORANK_CUDA(cudaSetDevice(device));
  const Direction up{cudaMemcpyHostToDevice}, down{cudaMemcpyDeviceToHost};
  return {best_rate(up), best_rate(down), best_rate(up, down)};
}

}  // namespace corank
