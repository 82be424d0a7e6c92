// The part of a lane that all records have in common. A failing device throws DeviceError.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/staging.cuh"

namespace corank {

// Device memory that grows when more is reserved, and then loses what it held.
template <class T>
class GrowingArray {
 public:
  void reserve(std::uint64_t count) {
    if (count <= capacity_) return;
    capacity_ = 0;
    memory_.reset();
    memory_ = device_array<T>(count);
    capacity_ = count;
  }
  T* get() const { return memory_.get(); }
  // Returns how many elements there is room for, by reference, as CUB asks for it.
  std::uint64_t& capacity() { return capacity_; }

 private:
  std::uint64_t capacity_ = 0;
  DeviceArray<T> memory_;
};

// The stream, and the memory on both sides, of one in-flight unit.
class UnitLane {
 protected:
  // `locator_shift`: see Staging.
  explicit UnitLane(bool verify, unsigned locator_shift = 0)
      : verify_(verify),
        stream_(make_stream()),
        merged_(make_event(cudaEventBlockingSync | cudaEventDisableTiming)),
        found_(pinned_array<Found>(1)),
        staging_(locator_shift) {}

  // Runs enqueue(), which enqueues work of the unit, and waits for the work and for what it found.
  template <class Enqueue>
  Found run(Enqueue enqueue) {
    wait_for(stream_.get(), merged_.get(), [&] {
      enqueue();
      CORANK_CUDA(cudaMemcpyAsync(found_.get(), staging_.found(), sizeof(Found),
                                  cudaMemcpyDeviceToHost, stream_.get()));
    });
    return found_[0];
  }
  // Enqueues the copy of the merged unit to the host.
  void download(std::byte* output, std::uint64_t unit_bytes) {
    CORANK_CUDA(
        cudaMemcpyAsync(output, out_.get(), unit_bytes, cudaMemcpyDeviceToHost, stream_.get()));
  }

  bool verify_;
  Stream stream_;
  Event merged_;
  PinnedArray<Found> found_;
  Staging staging_;
  // The merged unit; before that, temporary storage of the merge, since records are gathered after
  // it.
  GrowingArray<std::byte> out_;
  std::uint64_t unit_bytes_ = 0;  // of the current unit
};

}  // namespace corank
