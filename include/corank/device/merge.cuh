// Merging sorted sequences that are in device memory: two, or any number of them.
//
// All calls are asynchronous on `stream`, may be captured in a graph, and are stable: of records
// that `less` calls equal, those of the earlier sequence come first, and within a sequence they
// keep their order. `less` is any strict weak order that can be called on the device. Every bit
// pattern of a key is legal. Counts are 64-bit; of more than two sequences, merge_k takes 2^36
// records.
//
// Temporary storage, as in CUB: with `temporary` null a call does nothing but to set
// `temporary_bytes` to what it will need. Bad arguments are returned as cudaErrorInvalidValue; a
// sequence that isn't sorted is not noticed and gives some other order of the same records.
//
//   #include <corank/device/merge.cuh>
//   using corank::device::Output, corank::device::Sequence;
//
//   const std::vector<Sequence<std::uint64_t, std::uint32_t>> runs = {{keys_0, values_0, n_0}, …};
//   std::size_t bytes = 0;
//   corank::device::merge_k(nullptr, bytes, std::span(runs), Output{keys, values}, stream);
//   cudaMallocAsync(&temporary, bytes, stream);
//   corank::device::merge_k(temporary, bytes, std::span(runs), Output{keys, values}, stream);
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cuda/std/functional>
#include <span>

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
