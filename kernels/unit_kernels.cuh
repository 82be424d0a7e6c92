// What a device does to one work unit: stage, encode, merge level by level, gather.
#pragma once

#include <cstddef>
#include <cstdint>

#include "circular_buffer.cuh"
#include "corank/co_rank.hpp"
#include "corank/key.hpp"

namespace corank {

// Where a segment's records stand on the device. In the staging area every segment keeps its
// address modulo 16, so that both sides of its copy are aligned.
struct StagedSegment {
  const uint4* source;         // pinned host memory, rounded down to 16 bytes
  std::uint64_t first_record;  // of the unit
  std::uint32_t first_vector;  // of 16 bytes in the staging area
  std::uint32_t locator;       // of its first record
};

// The merge moves these. A locator is the record's byte offset in the staging area.
template <int W>
struct Entry {
  Key<W> key;
  std::uint32_t locator;
};

template <int W>
struct Entries {
  Key<W>* keys;
  std::uint32_t* locators;

  CORANK_HOST_DEVICE Entry<W> operator[](std::uint64_t i) const { return {keys[i], locators[i]}; }
  CORANK_HOST_DEVICE void put(std::uint64_t i, const Entry<W>& entry) const {
    keys[i] = entry.key;
    locators[i] = entry.locator;
  }
  CORANK_HOST_DEVICE Entries operator+(std::uint64_t i) const { return {keys + i, locators + i}; }
};

template <int W>
struct EntryLess {
  KeyLayout layout;
  const std::byte* staging;

  __device__ bool operator()(const Entry<W>& x, const Entry<W>& y) const {
    if constexpr (W == max_key_words)  // shorter keys have no tail
      if (x.key == y.key) return tail_less(layout, staging + x.locator, staging + y.locator);
    return x.key < y.key;
  }
};

inline constexpr unsigned block_threads = 256;    // where it makes no difference
inline constexpr std::uint64_t in_order = ~0ull;  // no record is out of order

// The last i < count for which starts(i) <= x; starts(0) <= x is known.
template <class Starts>
__device__ std::uint64_t find_start(std::uint64_t x, std::uint64_t count, Starts starts) {
  std::uint64_t low = 0;
  for (std::uint64_t high = count; high - low > 1;) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (starts(middle) <= x)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Few blocks with several loads in flight each saturate the link, and leave room for the kernels
// of other units.
inline constexpr unsigned stage_blocks = 64;

static __global__ void __launch_bounds__(block_threads)
    stage(const StagedSegment* segments, std::uint64_t segments_count, std::uint64_t vectors,
          uint4* staging) {
  constexpr int in_flight = 4;
  constexpr std::uint64_t tile = in_flight * block_threads;
  for (std::uint64_t base = blockIdx.x * tile; base < vectors; base += gridDim.x * tile) {
    uint4 value[in_flight];
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      const std::uint64_t vector = base + i * block_threads + threadIdx.x;
      if (vector >= vectors) continue;
      const StagedSegment& segment = segments[find_start(
          vector, segments_count, [=](std::uint64_t s) { return segments[s].first_vector; })];
      value[i] = segment.source[vector - segment.first_vector];
    }
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      const std::uint64_t vector = base + i * block_threads + threadIdx.x;
      if (vector < vectors) staging[vector] = value[i];
    }
  }
}

// A thread a record. `disorder` becomes the first record that sorts before its predecessor in the
// same segment.
template <int W>
__global__ void __launch_bounds__(block_threads)
    encode_records(const StagedSegment* segments, std::uint64_t segments_count,
                   std::uint64_t records, EntryLess<W> less, Entries<W> entries,
                   std::uint64_t* disorder) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records) return;
  const StagedSegment& segment = segments[find_start(
      i, segments_count, [=](std::uint64_t s) { return segments[s].first_record; })];
  const auto entry = [&](std::uint64_t record) {
    const auto locator = static_cast<std::uint32_t>(
        segment.locator + (record - segment.first_record) * less.layout.record_bytes);
    return Entry<W>{encode<W>(less.layout, less.staging + locator), locator};
  };
  const Entry<W> own = entry(i);
  entries.put(i, own);
  if (i != segment.first_record && less(own, entry(i - 1)))
    atomicMin(reinterpret_cast<unsigned long long*>(disorder), i);
}

// Both rings and the order of a tile fit into 48 KiB, the most that needs no opt-in.
template <int W>
struct MergePolicy;
template <>
struct MergePolicy<1> : CircularBufferPolicy<256, 4> {};
template <>
struct MergePolicy<2> : CircularBufferPolicy<256, 4> {};
template <>
struct MergePolicy<4> : CircularBufferPolicy<256, 2> {};

// One level of the tree: neighbours become one. Run r of a level starts at starts[r << level], so
// the runs' starts are all that any level needs to know. Every block has `block_records` outputs,
// whatever pairs they belong to: long pairs have many blocks, short ones share one.
template <int W>
__global__ void __launch_bounds__(MergePolicy<W>::threads)
    merge_level(Entries<W> in, Entries<W> out, const std::uint64_t* starts, std::uint64_t runs,
                unsigned level, std::uint64_t block_records, EntryLess<W> less,
                const std::uint64_t* disorder) {
  using Policy = MergePolicy<W>;
  __shared__ Key<W> keys[Policy::slots];
  __shared__ std::uint32_t locators[Policy::slots];
  __shared__ std::uint16_t order[Policy::tile];
  __shared__ std::uint32_t a_used;
  __shared__ std::uint64_t split[2];
  if (*disorder != in_order) return;  // co-ranks of unsorted runs may cross

  const auto start = [=](std::uint64_t run) { return starts[min(run << level, runs)]; };
  const std::uint64_t records = starts[runs];
  std::uint64_t rank = blockIdx.x * block_records;
  const std::uint64_t end = min(rank + block_records, records);
  const std::uint64_t pairs = ((runs - 1) >> (level + 1)) + 1;
  std::uint64_t pair = find_start(rank, pairs, [=](std::uint64_t p) { return start(2 * p); });
  for (; rank < end; ++pair) {
    const std::uint64_t a_start = start(2 * pair), b_start = start(2 * pair + 1);
    const std::uint64_t pair_end = start(2 * pair + 2), stop = min(end, pair_end);
    const Entries<W> a = in + a_start, b = in + b_start;
    if (threadIdx.x < 2)
      split[threadIdx.x] = co_rank((threadIdx.x == 0 ? rank : stop) - a_start, a, b_start - a_start,
                                   b, pair_end - b_start, less);
    __syncthreads();
    const std::uint64_t a_first = split[0], b_first = rank - a_start - a_first;
    const std::uint64_t a_count = split[1] - a_first;
    merge_block(CircularMerge<Policy, Entries<W>, EntryLess<W>>(
                    a + a_first, a_count, b + b_first, stop - rank - a_count,
                    Entries<W>{keys, locators}, order, &a_used, less),
                out + rank);
    rank = stop;
  }
}

// A thread a word of the output, so that the threads of a warp write side by side, and read so
// where records are wide. A record and its place are both multiples of a Word.
template <class Word>
__global__ void __launch_bounds__(block_threads)
    gather(const std::byte* staging, const std::uint32_t* locators, std::uint64_t records,
           std::uint32_t record_words, Word* out, const std::uint64_t* disorder) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records * record_words || *disorder != in_order) return;
  // A unit is smaller than 4 GiB, and a division of 32 bits several times faster.
  const std::uint32_t record = static_cast<std::uint32_t>(i) / record_words;
  const std::uint32_t word = static_cast<std::uint32_t>(i) % record_words;
  out[i] = reinterpret_cast<const Word*>(staging + locators[record])[word];
}

}  // namespace corank
