// Error checks and owners for CUDA. Every call is wrapped in CORANK_CUDA, which throws DeviceError;
// every resource has an owner that releases it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "backend/backend.hpp"

namespace corank {

inline void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // clears the error, which the next launch would report
  throw DeviceError(std::string("CUDA: ") + cudaGetErrorString(status) + " (in " + call + ")",
                    status == cudaErrorMemoryAllocation);
}
#define CORANK_CUDA(call) ::corank::check_cuda((call), #call)

// Checks a kernel launch, right after it. Errors of the running kernel surface in a later call.
inline void check_launch(const char* kernel) {
  check_cuda(cudaGetLastError(), kernel);
}

// Deleters of the owners below. Errors on release are ignored.
struct FreeDevice {
  void operator()(void* memory) const noexcept { (void)cudaFree(memory); }
};
struct FreePinned {
  void operator()(void* memory) const noexcept { (void)cudaFreeHost(memory); }
};
struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { (void)cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { (void)cudaEventDestroy(event); }
};

template <class T>
using DeviceArray = std::unique_ptr<T[], FreeDevice>;
template <class T>
using PinnedArray = std::unique_ptr<T[], FreePinned>;
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

template <class T>
DeviceArray<T> device_array(std::uint64_t count) {
  void* memory = nullptr;
  CORANK_CUDA(cudaMalloc(&memory, count * sizeof(T)));
  return DeviceArray<T>(static_cast<T*>(memory));
}

template <class T>
PinnedArray<T> pinned_array(std::uint64_t count) {
  void* memory = nullptr;
  CORANK_CUDA(cudaMallocHost(&memory, count * sizeof(T)));
  return PinnedArray<T>(static_cast<T*>(memory));
}

inline Stream make_stream() {
  cudaStream_t stream = nullptr;
  CORANK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

inline Event make_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  CORANK_CUDA(cudaEventCreateWithFlags(&event, flags));
  return Event(event);
}

// Runs enqueue(), and waits until all of its work in the stream is done, even if it throws: that
// work accesses memory of the host. `done` is an event that nothing else uses.
template <class Enqueue>
void wait_for(cudaStream_t stream, cudaEvent_t done, Enqueue enqueue) {
  try {
    enqueue();
    CORANK_CUDA(cudaEventRecord(done, stream));
    CORANK_CUDA(cudaEventSynchronize(done));
  } catch (...) {
    (void)cudaStreamSynchronize(stream);
    throw;
  }
}

}  // namespace corank
