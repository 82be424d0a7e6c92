// Merging sorted sequences that are in device memory: two, or any number of them.
//
// All calls are asynchronous on `stream`, may be captured in a graph, and are stable: of records
// that `less` calls equal, those of the earlier sequence come first, and within a sequence they
// keep their order. `less` is any strict weak order that can be called on the device. Every bit
// pattern of a key is legal. A key and its value have up to max_record_bytes together. Counts are
// 64-bit; of more than two sequences, merge_k takes 2^36 records.
//
// Temporary storage, as in CUB: with `temporary` null a call does nothing but to set
// `temporary_bytes` to what it will need on the current device. Bad arguments are returned as
// cudaErrorInvalidValue. A sequence that isn't sorted is not noticed: nothing but the output is
// written, but what it holds then has no meaning.
//
// The example at the end is compiled and run by the tests.
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

// Merges any number of sequences. The span itself, in host memory, is no longer needed when the
// call returns.
template <class Key, class Value, class Less = cuda::std::less<>>
cudaError_t merge_k(void* temporary, std::size_t& temporary_bytes,
                    std::span<const Sequence<Key, Value>> sequences, Output<Key, Value> output,
                    cudaStream_t stream = nullptr, Less less = {}) {
  return detail::merge_k(temporary, temporary_bytes, sequences, output, stream, less);
}

// The k-way co-rank: positions[r · k + i] becomes the number of records of sequence i among the
// first ranks[r] of the merge of all k, so that a merge may be cut into pieces that are merged
// apart. `ranks` and the span are in host memory and no longer needed when the call returns;
// `positions` is in device memory. Looks at the keys alone.
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
