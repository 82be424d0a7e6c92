// Kernels that run before and after the merge of a unit's keys on a device: stage, encode; gather,
// verify. Their records have a fixed size; text_kernels.cuh has the kernels for others.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cub/block/block_reduce.cuh>

#include "corank/device/sequence.cuh"
#include "corank/key.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// Place of a segment's records on the device. In the staging area every segment keeps its address
// modulo 16, so that both sides of its copy are aligned.
struct StagedSegment {
  const uint4* source;         // pinned host memory, rounded down to 16 bytes
  std::uint64_t first_record;  // its index in the unit, or in the piece of one
  std::uint32_t first_vector;  // index of a 16-byte vector in the staging area
  std::uint32_t locator;       // of its first record
};

// The staging area of a unit. A locator (row id) is the place of a record in it, in steps of
// 1 << shift bytes.
struct StagingArea {
  const std::byte* bytes;
  unsigned shift = 0;

  CORANK_HOST_DEVICE const std::byte* at(std::uint64_t locator) const {
    return bytes + (locator << shift);
  }
};

inline constexpr std::uint64_t in_order = ~0ull;  // no record is out of order

inline constexpr int max_radix_words = 2;  // longer keys are sorted by comparisons

// Findings of the kernels about a unit.
struct Found {
  std::uint64_t out_of_order;   // first record that is out of order in its segment, or in_order
  std::uint64_t descent;        // first merged record that is out of order, or in_order
  std::uint64_t read, written;  // fingerprints of the input and of the merged records
  std::uint64_t last_offset;    // where the last merged record begins
  std::uint64_t differing[max_radix_words];  // bits in which the keys of an unsorted unit differ
};

// A key with its record's locator, which is as wide as a key word, so that a located key has no
// uninitialised bytes.
template <int W>
struct Located {
  Key<W> key;
  std::uint64_t locator;
};

template <int W>
struct LocatedLess {
  KeyLayout layout;
  StagingArea staging;
  // Null, or where to read whether the runs are in order. If they are not, the merge may compare
  // uninitialised keys, whose locators point anywhere.
  const std::uint64_t* out_of_order;

  __device__ bool operator()(const Located<W>& x, const Located<W>& y) const {
    if constexpr (W == max_key_words)  // shorter keys have no tail
      if (x.key == y.key)
        return layout.has_tail() && (!out_of_order || *out_of_order == in_order) &&
               tail_less(layout, staging.at(x.locator), staging.at(y.locator));
    return x.key < y.key;
  }
};

// Types that located keys are merged as. The widest keys move with their locators, which lead to
// their tails. Narrower keys move as keys with values, by 16 bytes.
template <int W>
struct Merged {
  using Key = corank::Key<W>;
  using Value = std::uint32_t;
  struct Less {
    __device__ bool operator()(const Key& x, const Key& y) const { return x < y; }
  };
  static Less less(const LocatedLess<W>&) { return {}; }
};
template <>
struct Merged<max_key_words> {
  using Key = Located<max_key_words>;
  using Value = device::NoValue;
  static LocatedLess<max_key_words> less(const LocatedLess<max_key_words>& less) { return less; }
};
template <int W>
using LocatedSequence = device::Sequence<typename Merged<W>::Key, typename Merged<W>::Value>;
template <int W>
using LocatedOutput = device::Output<typename Merged<W>::Key, typename Merged<W>::Value>;

inline constexpr unsigned block_threads = 256;  // default, where the number makes no difference

// Returns the last i < count with starts(i) <= x. Requires starts(0) <= x.
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

// Few blocks, with several loads in flight each, saturate the link and leave room for the kernels
// of other units.
inline constexpr unsigned stage_blocks = 64;

// Copies segments from pinned host memory to the staging area.
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

// Returns the index of the segment that holds record `i` of the unit.
__device__ inline std::uint64_t segment_of(const StagedSegment* segments,
                                           std::uint64_t segments_count, std::uint64_t i) {
  return find_start(i, segments_count, [=](std::uint64_t s) { return segments[s].first_record; });
}

// Encodes the located key of record `i` of the unit, which is in `segment`.
template <int W>
__device__ Located<W> locate(const StagedSegment& segment, std::uint64_t i,
                             const LocatedLess<W>& less) {
  const std::uint32_t steps = less.layout.record_bytes >> less.staging.shift;
  const auto locator =
      static_cast<std::uint32_t>(segment.locator + (i - segment.first_record) * steps);
  return {encode<W>(less.layout, less.staging.at(locator)), locator};
}

template <int W>
__device__ void put(const LocatedOutput<W>& to, std::uint64_t i, const Located<W>& located) {
  if constexpr (device::has_values<typename Merged<W>::Value>) {
    to.keys[i] = located.key;
    to.values[i] = static_cast<std::uint32_t>(located.locator);
  } else {
    to.keys[i] = located;
  }
}

// Encodes the located keys, one thread per record. `out_of_order` becomes the first record that
// sorts before its predecessor in the same segment.
template <int W>
__global__ void __launch_bounds__(block_threads)
    encode_records(const StagedSegment* segments, std::uint64_t segments_count,
                   std::uint64_t records, LocatedLess<W> less, LocatedOutput<W> located,
                   std::uint64_t* out_of_order) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records) return;
  const StagedSegment& segment = segments[segment_of(segments, segments_count, i)];
  const Located<W> own = locate(segment, i, less);
  put(located, i, own);
  if (i != segment.first_record && less(own, locate(segment, i - 1, less)))
    atomicMin(reinterpret_cast<unsigned long long*>(out_of_order), i);
}

// Copies the merged records to the output, word by word. Neighbouring threads take neighbouring
// words of the output, so that writes coalesce, and reads if records are wide. Each thread has
// several loads in flight. A record's size and place are multiples of a Word.
inline constexpr unsigned gather_words = 4;  // per thread
template <int W, class Word>
__global__ void __launch_bounds__(block_threads)
    gather(StagingArea staging, LocatedOutput<W> located, std::uint64_t records,
           std::uint32_t record_words, Word* out, const std::uint64_t* out_of_order) {
  if (*out_of_order != in_order) return;
  const std::uint64_t words = records * record_words;
  const std::uint64_t first =
      std::uint64_t{blockIdx.x} * gather_words * block_threads + threadIdx.x;
  Word values[gather_words];
#pragma unroll
  for (unsigned n = 0; n < gather_words; ++n) {
    const std::uint64_t i = first + n * block_threads;
    if (i >= words) continue;
    // A unit has fewer than 2^32 words, so 32-bit divisions suffice, which are faster.
    const std::uint32_t record = static_cast<std::uint32_t>(i) / record_words;
    const std::uint32_t word = static_cast<std::uint32_t>(i) % record_words;
    std::uint64_t locator;
    if constexpr (device::has_values<typename Merged<W>::Value>)
      locator = located.values[record];
    else
      locator = located.keys[record].locator;
    values[n] = reinterpret_cast<const Word*>(staging.at(locator))[word];
  }
#pragma unroll
  for (unsigned n = 0; n < gather_words; ++n) {
    const std::uint64_t i = first + n * block_threads;
    if (i < words) out[i] = values[n];
  }
}

// Returns how many neighbouring threads share a record's fingerprint, so that their loads coalesce.
inline unsigned verify_lanes(std::uint64_t record_bytes) {
  return static_cast<unsigned>(
      std::bit_floor(std::min<std::uint64_t>(detail::folds(record_bytes), 32)));
}

// Adds the fingerprints of all records to `sum`. Calls see(i, record) once for each of them.
template <class BytesOf, class RecordAt, class See>
__device__ void verify_rows(std::uint64_t records, BytesOf bytes_of, unsigned lanes,
                            RecordAt record_at, std::uint64_t* sum, See see) {
  const std::uint64_t in_block = block_threads / lanes;
  const std::uint32_t lane = threadIdx.x % lanes;
  std::uint64_t own = 0;
  // All threads iterate equally often, since they pass sums to one another.
  for (std::uint64_t first = blockIdx.x * in_block; first < records;
       first += gridDim.x * in_block) {
    const std::uint64_t i = first + threadIdx.x / lanes;
    std::uint64_t of_record = 0;
    if (i < records) {
      const std::byte* const record = record_at(i);
      const std::uint64_t bytes = bytes_of(i);
      for (std::uint64_t n = lane; n < detail::folds(bytes); n += lanes)
        of_record += detail::fold_part(record, bytes, n);
      if (lane == 0) see(i, record);
    }
    for (unsigned apart = lanes / 2; apart > 0; apart /= 2)
      of_record += __shfl_down_sync(~0u, of_record, apart, lanes);
    if (i < records && lane == 0) own += detail::finish_folds(of_record, bytes_of(i));
  }
  using Reduce = cub::BlockReduce<unsigned long long, block_threads>;
  __shared__ typename Reduce::TempStorage storage;
  const unsigned long long of_block = Reduce(storage).Sum(own);
  if (threadIdx.x == 0) atomicAdd(reinterpret_cast<unsigned long long*>(sum), of_block);
}

// Returns the number of blocks for a kernel that calls verify_rows().
inline unsigned verify_blocks(std::uint64_t records, unsigned lanes) {
  constexpr std::uint64_t most = 1024;
  return static_cast<unsigned>(
      std::min((records * lanes + block_threads - 1) / block_threads, most));
}

// Computes the fingerprint of the input records.
static __global__ void __launch_bounds__(block_threads)
    verify_staged(const StagedSegment* segments, std::uint64_t segments_count,
                  std::uint64_t records, std::uint32_t record_bytes, unsigned lanes,
                  StagingArea staging, Found* found) {
  const auto record_at = [=](std::uint64_t i) {
    const StagedSegment& segment = segments[segment_of(segments, segments_count, i)];
    return staging.at(segment.locator) + (i - segment.first_record) * record_bytes;
  };
  verify_rows(
      records, [=](std::uint64_t) { return record_bytes; }, lanes, record_at, &found->read,
      [](std::uint64_t, const std::byte*) {});
}

// Verifies the merged records: computes their fingerprint and checks their order.
template <int W>
__global__ void __launch_bounds__(block_threads)
    verify_merged(const std::byte* merged, std::uint64_t records, KeyLayout layout, unsigned lanes,
                  Found* found) {
  if (found->out_of_order != in_order) return;
  verify_rows(
      records, [=](std::uint64_t) { return layout.record_bytes; }, lanes,
      [=](std::uint64_t i) { return merged + i * layout.record_bytes; }, &found->written,
      [=](std::uint64_t i, const std::byte* record) {
        if (i == 0) return;
        const std::byte* const before = record - layout.record_bytes;
        const Key<W> x = encode<W>(layout, before), y = encode<W>(layout, record);
        if (y < x || (layout.has_tail() && x == y && tail_less(layout, record, before)))
          atomicMin(reinterpret_cast<unsigned long long*>(&found->descent), i);
      });
}

// Launches gather() with the widest word that records consist of.
template <int W>
void launch_gather(StagingArea staging, LocatedOutput<W> located, std::uint64_t records,
                   std::uint32_t record_bytes, std::byte* out, const std::uint64_t* out_of_order,
                   cudaStream_t stream) {
  const auto by = [&](auto word) {
    using Word = decltype(word);
    const std::uint32_t record_words = record_bytes / sizeof(Word);
    constexpr std::uint64_t block_words = gather_words * block_threads;
    const auto blocks =
        static_cast<unsigned>((records * record_words + block_words - 1) / block_words);
    gather<W><<<blocks, block_threads, 0, stream>>>(staging, located, records, record_words,
                                                    reinterpret_cast<Word*>(out), out_of_order);
  };
  switch (record_bytes & -record_bytes) {  // largest power of two that divides it
    case 1:
      return by(std::uint8_t{});
    case 2:
      return by(std::uint16_t{});
    case 4:
      return by(std::uint32_t{});
    case 8:
      return by(std::uint64_t{});
    default:
      return by(uint4{});
  }
}

}  // namespace corank
