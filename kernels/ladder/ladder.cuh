// The first rungs of the ladder of merge kernels; LADDER.md explains why each is faster than the
// one before. Each kernel merges two sequences into one, exactly and stably, for any type and
// order. Counts are records.
//
// Source: Hwu, Kirk, El Hajj, "Programming Massively Parallel Processors", 4th ed., chapter 12.
#pragma once

#include <cstdint>

#include "corank/algorithm/co_rank.hpp"
#include "kernels/ladder/circular_buffer.cuh"

namespace corank::ladder {

// Merges a and b, of `a_count` and `b_count` records, until `output` has `count` records.
template <class A, class B, class T, class Less>
CORANK_HOST_DEVICE constexpr void merge_sequentially(const A& a, std::uint64_t a_count, const B& b,
                                                     std::uint64_t b_count, std::uint64_t count,
                                                     T* output, Less less) {
  std::uint64_t i = 0, j = 0;
  for (std::uint64_t n = 0; n < count; ++n) {
    const bool take_b = i == a_count || (j < b_count && less(b[j], a[i]));
    output[n] = take_b ? b[j++] : a[i++];
  }
}

// Rung 0: one thread merges everything.
template <class T, class Less>
__global__ void sequential(const T* a, std::uint64_t a_count, const T* b, std::uint64_t b_count,
                           T* output, Less less) {
  if (blockIdx.x == 0 && threadIdx.x == 0)
    merge_sequentially(a, a_count, b, b_count, a_count + b_count, output, less);
}

// Rung 1: one thread per output record, which it finds by co-rank.
template <class T, class Less>
__global__ void one_thread_an_output(const T* a, std::uint64_t a_count, const T* b,
                                     std::uint64_t b_count, T* output, Less less) {
  const std::uint64_t rank = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (rank >= a_count + b_count) return;
  const std::uint64_t i = co_rank(rank, a, a_count, b, b_count, less);
  merge_sequentially(a + i, a_count - i, b + (rank - i), b_count - (rank - i), 1, output + rank,
                     less);
}

// Rung 2: one thread per `per_thread` output records.
template <class T, class Less>
__global__ void coarsened(const T* a, std::uint64_t a_count, const T* b, std::uint64_t b_count,
                          T* output, std::uint32_t per_thread, Less less) {
  const std::uint64_t total = a_count + b_count;
  const std::uint64_t rank = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) * per_thread;
  if (rank >= total) return;
  const std::uint64_t count = total - rank < per_thread ? total - rank : per_thread;
  const std::uint64_t i = co_rank(rank, a, a_count, b, b_count, less);
  merge_sequentially(a + i, a_count - i, b + (rank - i), b_count - (rank - i), count, output + rank,
                     less);
}

// Rung 3: one thread block per `per_block` output records, tile by tile. A tile of each input is
// loaded into shared memory, coalesced, and is searched and merged there. Half of it is not
// consumed, and is loaded again for the next tile. Needs shared memory for two tiles.
template <class T, class Less>
__global__ void tiled(const T* a, std::uint64_t a_count, const T* b, std::uint64_t b_count,
                      T* output, std::uint64_t per_block, std::uint32_t tile, Less less) {
  extern __shared__ __align__(16) unsigned char memory[];
  T* const tile_a = reinterpret_cast<T*>(memory);
  T* const tile_b = tile_a + tile;
  __shared__ std::uint64_t bounds[2];

  const std::uint64_t total = a_count + b_count;
  const std::uint64_t first = blockIdx.x * per_block;
  if (first >= total) return;
  const std::uint64_t last = total - first < per_block ? total : first + per_block;
  if (threadIdx.x < 2)
    bounds[threadIdx.x] = co_rank(threadIdx.x == 0 ? first : last, a, a_count, b, b_count, less);
  __syncthreads();
  std::uint64_t i = bounds[0], j = first - i;
  const std::uint64_t a_end = bounds[1], b_end = last - a_end;

  for (std::uint64_t rank = first; rank < last;) {
    const std::uint64_t a_here = a_end - i < tile ? a_end - i : tile;
    const std::uint64_t b_here = b_end - j < tile ? b_end - j : tile;
    const std::uint64_t count = last - rank < tile ? last - rank : tile;
    for (std::uint64_t n = threadIdx.x; n < a_here; n += blockDim.x) tile_a[n] = a[i + n];
    for (std::uint64_t n = threadIdx.x; n < b_here; n += blockDim.x) tile_b[n] = b[j + n];
    __syncthreads();

    const std::uint64_t my_first = count * threadIdx.x / blockDim.x;
    const std::uint64_t my_last = count * (threadIdx.x + 1) / blockDim.x;
    const std::uint64_t my_a = co_rank(my_first, tile_a, a_here, tile_b, b_here, less);
    const std::uint64_t my_b = my_first - my_a;
    merge_sequentially(tile_a + my_a, a_here - my_a, tile_b + my_b, b_here - my_b,
                       my_last - my_first, output + rank + my_first, less);
    const std::uint64_t consumed_a = co_rank(count, tile_a, a_here, tile_b, b_here, less);
    i += consumed_a;
    j += count - consumed_a;
    rank += count;
    __syncthreads();
  }
}

// Rung 4: circular buffers, which keep the records that a tile did not consume.
using CircularPolicy = CircularBufferPolicy<256, 4>;
template <class T, class Less>
__global__ void circular_buffer(const T* a, std::uint64_t a_count, const T* b,
                                std::uint64_t b_count, T* output, std::uint64_t per_block,
                                Less less) {
  __shared__ T slots[CircularPolicy::slots];
  __shared__ std::uint16_t order[CircularPolicy::tile];
  __shared__ std::uint32_t a_used;
  __shared__ std::uint64_t bounds[2];

  const std::uint64_t total = a_count + b_count;
  const std::uint64_t first = blockIdx.x * per_block;
  if (first >= total) return;
  const std::uint64_t last = total - first < per_block ? total : first + per_block;
  if (threadIdx.x < 2)
    bounds[threadIdx.x] = co_rank(threadIdx.x == 0 ? first : last, a, a_count, b, b_count, less);
  __syncthreads();
  const std::uint64_t i = bounds[0], j = first - i;
  using View = Items<T>;
  // A View is writable, but the inputs are only read.
  const View view_a{const_cast<T*>(a + i)}, view_b{const_cast<T*>(b + j)};
  merge_block(
      CircularMerge<CircularPolicy, View, Less>(view_a, bounds[1] - i, view_b, last - bounds[1] - j,
                                                View{slots}, order, &a_used, less),
      View{output + first});
}

}  // namespace corank::ladder
