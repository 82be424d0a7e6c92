// Exact k-way co-rank on the device; one thread block computes one rank.
#pragma once

#include <cstdint>
#include <cub/block/block_reduce.cuh>

#include "corank/device/detail/async.cuh"
#include "corank/device/sequence.cuh"

namespace corank::device::detail {

// Returns the first index in [low, high) whose key does not sort before `pivot`, or sorts after it
// if `with_equal`. Returns `high` if there is none.
template <class Key, class Less>
__device__ std::uint64_t split(const Key* keys, std::uint64_t low, std::uint64_t high, Key pivot,
                               bool with_equal, Less less) {
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (with_equal ? !less(pivot, keys[middle]) : less(keys[middle], pivot))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

inline constexpr int partition_threads = 256;

// Sets positions[r · k + i] to the number of records of sequence i among the first ranks[r] records
// of the merge. `highs` is scratch memory of the same size.
//
// `positions` and `highs` bound the undecided part of each sequence. The middle of the longest part
// is the pivot. A search in every sequence finds the pivot's rank in the whole output, which tells
// on which side of the pivot all cuts are.
template <class Key, class Value, class Less>
__global__ void __launch_bounds__(partition_threads)
    partition(const Sequence<Key, Value>* sequences, std::uint32_t k, const std::uint64_t* ranks,
              std::uint64_t* positions, std::uint64_t* highs, Less less) {
  struct Longest {
    std::uint64_t count;
    std::uint32_t sequence;
  };
  using Sum = cub::BlockReduce<std::uint64_t, partition_threads>;
  using Max = cub::BlockReduce<Longest, partition_threads>;
  __shared__ union {
    typename Sum::TempStorage sum;
    typename Max::TempStorage max;
  } storage;
  __shared__ Longest longest;
  __shared__ std::uint64_t pivot_index, pivot_rank;

  await_predecessor();
  const std::uint64_t rank = ranks[blockIdx.x];
  std::uint64_t* const low = positions + std::uint64_t{blockIdx.x} * k;
  std::uint64_t* const high = highs + std::uint64_t{blockIdx.x} * k;
  for (std::uint32_t i = threadIdx.x; i < k; i += partition_threads) {
    low[i] = 0;
    high[i] = sequences[i].count < rank ? sequences[i].count : rank;
  }

  // Only thread t accesses low[i] and high[i] with i % partition_threads == t.
  for (;;) {
    Longest mine{0, 0};
    for (std::uint32_t i = threadIdx.x; i < k; i += partition_threads)
      if (high[i] - low[i] > mine.count) mine = {high[i] - low[i], i};
    mine = Max(storage.max).Reduce(mine, [](const Longest& x, const Longest& y) {
      return y.count > x.count ? y : x;
    });
    if (threadIdx.x == 0) longest = mine;
    __syncthreads();
    if (longest.count == 0) return;

    const std::uint32_t pivot_sequence = longest.sequence;
    // Both bounds belong to one thread, which publishes the pivot's index.
    if (threadIdx.x == pivot_sequence % partition_threads)
      pivot_index = low[pivot_sequence] + longest.count / 2;
    __syncthreads();
    const Key pivot = sequences[pivot_sequence].keys[pivot_index];
    const auto up_to_pivot = [&](std::uint32_t i) {
      return i == pivot_sequence
                 ? pivot_index + 1
                 : split(sequences[i].keys, low[i], high[i], pivot, i < pivot_sequence, less);
    };

    std::uint64_t sum = 0;
    for (std::uint32_t i = threadIdx.x; i < k; i += partition_threads) sum += up_to_pivot(i);
    sum = Sum(storage.sum).Sum(sum);
    if (threadIdx.x == 0) pivot_rank = sum;
    __syncthreads();

    const bool taken = pivot_rank <= rank;
    for (std::uint32_t i = threadIdx.x; i < k; i += partition_threads) {
      const std::uint64_t at = up_to_pivot(i);
      if (taken)
        low[i] = at;
      else
        high[i] = i == pivot_sequence ? pivot_index : at;
    }
    __syncthreads();
  }
}

}  // namespace corank::device::detail
