// What a device does to one work unit of records of variable length: stage; place; after the merge
// of the entries, which is by the first words of the keys and where these are equal by the records:
// measure, gather, look.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/text_key.hpp"
#include "unit_kernels.cuh"

namespace corank {

// On the device an entry's place leads into the staging area: a locator instead of an address.
struct TextLess {
  TextLayout layout;
  const std::byte* staging;
  // As of LocatedLess.
  const std::uint64_t* disorder;

  __device__ const std::byte* record(const Entry& entry) const {
    return staging + static_cast<std::uint32_t>(entry.place);
  }
  __device__ std::uint64_t bytes(const Entry& entry) const {
    const std::uint64_t bytes = entry.place >> 48;
    return bytes < saturated_bytes ? bytes : record_bytes(layout, record(entry));
  }
  __device__ bool operator()(const Entry& x, const Entry& y) const {
    if (x.word != y.word) return x.word < y.word;
    return (!disorder || *disorder == in_order) &&
           text_less(layout, record(x), bytes(x), record(y), bytes(y));
  }
};

// A thread an entry. The `segments_count` segments of text come first, then as many of their
// entries.
static __global__ void __launch_bounds__(block_threads)
    place_entries(const StagedSegment* segments, std::uint64_t segments_count,
                  std::uint64_t records, TextLess less, Entry* placed, std::uint64_t* disorder) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records) return;
  const std::uint64_t s =
      find_start(i, segments_count, [=](std::uint64_t n) { return segments[n].first_record; });
  const StagedSegment& text = segments[s];
  const StagedSegment& entries = segments[segments_count + s];
  const auto entry = [&](std::uint64_t record) {
    Entry result =
        reinterpret_cast<const Entry*>(less.staging + entries.locator)[record - text.first_record];
    // Locators are what addresses are in the staging area but for a constant.
    const std::uint64_t source = reinterpret_cast<std::uintptr_t>(text.source);
    const std::uint64_t staged = std::uint64_t{text.first_vector} * sizeof(uint4);
    const auto address = reinterpret_cast<std::uintptr_t>(record_of(result));
    result.place = (result.place >> 48 << 48) | (address - source + staged);
    return result;
  };
  const Entry own = entry(i);
  placed[i] = own;
  if (i != text.first_record && less(own, entry(i - 1)))
    atomicMin(reinterpret_cast<unsigned long long*>(disorder), i);
}

// What a scan adds up.
struct EntryBytes {
  TextLess less;
  const Entry* entries;
  __device__ std::uint64_t operator()(std::uint64_t i) const {
    return *less.disorder == in_order ? less.bytes(entries[i]) : 0;
  }
};

// A thread 16 bytes of the output. `ends` are where the merged records end there; the first begins
// at 0.
static __global__ void __launch_bounds__(block_threads)
    gather_text(TextLess less, const Entry* merged, const std::uint64_t* ends,
                std::uint64_t records, std::uint64_t bytes, uint4* out) {
  if (*less.disorder != in_order) return;
  constexpr std::uint64_t vector_bytes = sizeof(uint4);
  const std::uint64_t first_byte = std::uint64_t{blockIdx.x} * block_threads * vector_bytes;
  // Records are looked for where the block's are.
  __shared__ std::uint64_t range[2];
  if (threadIdx.x < 2) {
    const std::uint64_t byte =
        min(first_byte + threadIdx.x * (block_threads * vector_bytes - 1), bytes - 1);
    range[threadIdx.x] =
        find_start(byte, records, [=](std::uint64_t i) { return i == 0 ? 0 : ends[i - 1]; });
  }
  __syncthreads();
  std::uint64_t at = first_byte + threadIdx.x * vector_bytes;
  if (at >= bytes) return;
  const std::uint64_t low = range[0];
  std::uint64_t record = low + find_start(at, range[1] + 1 - low, [=](std::uint64_t i) {
                           return low + i == 0 ? 0 : ends[low + i - 1];
                         });
  std::uint64_t end = ends[record];
  const std::byte* from = less.record(merged[record]) + (at - (record == 0 ? 0 : ends[record - 1]));
  std::uint64_t words[2] = {};
#pragma unroll
  for (unsigned n = 0; n < vector_bytes; ++n, ++at, ++from) {
    if (at == bytes) break;
    if (at == end && record + 1 < records) {  // none is empty
      ++record;
      end = ends[record];
      from = less.record(merged[record]);
    }
    words[n / 8] |= static_cast<std::uint64_t>(*from) << 8 * (n % 8);
  }
  out[(first_byte / vector_bytes) + threadIdx.x] =
      make_uint4(static_cast<unsigned>(words[0]), static_cast<unsigned>(words[0] >> 32),
                 static_cast<unsigned>(words[1]), static_cast<unsigned>(words[1] >> 32));
}

// At what is written.
static __global__ void __launch_bounds__(block_threads)
    look_at_text(const std::byte* merged, const std::uint64_t* ends, std::uint64_t records,
                 TextLayout layout, unsigned lanes, Found* found) {
  if (found->disorder != in_order) return;
  const auto begin = [=](std::uint64_t i) { return i == 0 ? 0 : ends[i - 1]; };
  if (blockIdx.x == 0 && threadIdx.x == 0) found->last_offset = begin(records - 1);
  look_at(
      records, [=](std::uint64_t i) { return ends[i] - begin(i); }, lanes,
      [=](std::uint64_t i) { return merged + begin(i); }, &found->written,
      [=](std::uint64_t i, const std::byte* record) {
        if (i == 0) return;
        const std::uint64_t before = begin(i - 1), own = begin(i);
        if (text_less(layout, record, ends[i] - own, merged + before, own - before))
          atomicMin(reinterpret_cast<unsigned long long*>(&found->descent), i);
      });
}

}  // namespace corank
