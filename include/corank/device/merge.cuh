// Merges sorted sequences in device memory: two, or any number.
//
// All calls are asynchronous on `stream` and may be captured in a graph. They are stable: equal
// records of an earlier sequence come first, and those of one sequence keep their order. `less` is
// any strict weak order that can be called on the device. Every bit pattern of a key is legal. A
// key and its value have up to max_record_bytes together. Counts are 64-bit; merge_k takes up to
// 2^36 records of more than two sequences.
//
// Temporary storage works as in CUB: if `temporary` is null, a call only sets `temporary_bytes` to
// the size needed on the current device. Invalid arguments return cudaErrorInvalidValue. An
// unsorted sequence is not detected: only the output is written, and its contents are undefined.
//
// The tests compile and run the example at the end.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cuda/std/functional>
#include <span>
#include <vector>

#include "corank/device/detail/dispatch.cuh"
#include "corank/device/sequence.cuh"

namespace corank::device {

// Merges two sequences.
template <class Key, class Value, class Less = cuda::std::less<>>
cudaError_t merge(void* temporary, std::size_t& temporary_bytes, Sequence<Key, Value> a,
                  Sequence<Key, Value> b, Output<Key, Value> output, cudaStream_t stream = nullptr,
                  Less less = {}) {
  const Sequence<Key, Value> both[] = {a, b};
  return detail::merge_k(temporary, temporary_bytes, std::span<const Sequence<Key, Value>>(both),
                         output, stream, less);
}

// Merges any number of sequences. The span itself, which is in host memory, may be freed when the
// call returns.
template <class Key, class Value, class Less = cuda::std::less<>>
cudaError_t merge_k(void* temporary, std::size_t& temporary_bytes,
                    std::span<const Sequence<Key, Value>> sequences, Output<Key, Value> output,
                    cudaStream_t stream = nullptr, Less less = {}) {
  return detail::merge_k(temporary, temporary_bytes, sequences, output, stream, less);
}

// Computes the k-way co-rank, so that a merge may be cut into parts that are merged separately.
// Sets positions[r · k + i] to the number of records of sequence i among the first ranks[r] records
// of the merge. `ranks` and the span are in host memory and may be freed when the call returns;
// `positions` is in device memory. Only the keys are read.
template <class Key, class Value, class Less = cuda::std::less<>>
cudaError_t partition_k(void* temporary, std::size_t& temporary_bytes,
                        std::span<const Sequence<Key, Value>> sequences,
                        std::span<const std::uint64_t> ranks, std::uint64_t* positions,
                        cudaStream_t stream = nullptr, Less less = {}) {
  return detail::partition_k(temporary, temporary_bytes, sequences, ranks, positions, stream, less);
}

}  // namespace corank::device

#ifdef CORANK_DEVICE_EXAMPLE
using corank::device::Output, corank::device::Sequence;

inline cudaError_t merge_runs(const std::vector<Sequence<std::uint64_t, std::uint32_t>>& runs,
                              Output<std::uint64_t, std::uint32_t> output, cudaStream_t stream) {
  std::size_t bytes = 0;
  void* temporary = nullptr;
  if (auto error = corank::device::merge_k(nullptr, bytes, std::span(runs), output, stream))
    return error;
  if (auto error = cudaMallocAsync(&temporary, bytes, stream)) return error;
  const auto error = corank::device::merge_k(temporary, bytes, std::span(runs), output, stream);
  cudaFreeAsync(temporary, stream);
  return error;
}
#endif
