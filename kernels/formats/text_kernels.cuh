// Kernels that merge a unit of variable-length records on a device: stage; place; after the merge
// of the prefix references: measure, gather, verify. The merge compares the first words of the keys
// and, if these are equal, the records.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/text_key.hpp"
#include "format/text_columns.hpp"
#include "kernels/formats/unit_kernels.cuh"
#include "kernels/ops/operator_steps.hpp"

namespace corank {

// Orders prefix references on the device. Their `place` holds a locator, an offset in the staging
// area, instead of an address.
struct TextLess {
  TextLayout layout;
  const std::byte* staging;
  // Null, or where to read whether the runs are in order; see LocatedLess.
  const std::uint64_t* out_of_order;

  __device__ const std::byte* record(const PrefixRef& entry) const {
    return staging + static_cast<std::uint32_t>(entry.place);
  }
  __device__ std::uint64_t bytes(const PrefixRef& entry) const {
    const std::uint64_t bytes = entry.place >> 48;
    return bytes < saturated_bytes ? bytes : record_bytes(layout, record(entry));
  }
  __device__ bool operator()(const PrefixRef& x, const PrefixRef& y) const {
    if (x.word != y.word) return x.word < y.word;
    return (!out_of_order || *out_of_order == in_order) &&
           text_less(layout, record(x), bytes(x), record(y), bytes(y));
  }
};

// Replaces the addresses in prefix references by locators, and checks the order within segments;
// one thread per reference. The `segments_count` segments of records come first, then as many
// segments of their prefix references.
static __global__ void __launch_bounds__(block_threads)
    place_entries(const StagedSegment* segments, std::uint64_t segments_count,
                  std::uint64_t records, TextLess less, PrefixRef* placed,
                  std::uint64_t* out_of_order) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records) return;
  const std::uint64_t s =
      find_start(i, segments_count, [=](std::uint64_t n) { return segments[n].first_record; });
  const StagedSegment& text = segments[s];
  const StagedSegment& entries = segments[segments_count + s];
  const auto entry = [&](std::uint64_t record) {
    PrefixRef result = reinterpret_cast<const PrefixRef*>(
        less.staging + entries.locator)[record - text.first_record];
    // Within a segment, locators differ from addresses by a constant.
    const std::uint64_t source = reinterpret_cast<std::uintptr_t>(text.source);
    const std::uint64_t staged = std::uint64_t{text.first_vector} * sizeof(uint4);
    const auto address = reinterpret_cast<std::uintptr_t>(record_of(result));
    result.place = (result.place >> 48 << 48) | (address - source + staged);
    return result;
  };
  const PrefixRef own = entry(i);
  placed[i] = own;
  if (i != text.first_record && less(own, entry(i - 1)))
    atomicMin(reinterpret_cast<unsigned long long*>(out_of_order), i);
}

// Returns the emitted bytes of record i, which a prefix sum adds up.
struct EntryBytes {
  TextLess less;
  const PrefixRef* entries;
  const std::uint64_t* count;  // number of prefix references; null: all
  TextLayout selected;         // without columns: records are emitted whole
  __device__ std::uint64_t operator()(std::uint64_t i) const {
    if (*less.out_of_order != in_order || (count && i >= *count)) return 0;
    const std::uint64_t bytes = less.bytes(entries[i]);
    if (selected.columns_count == 0) return bytes;
    std::uint64_t outgoing = 0;
    put_columns(selected, less.record(entries[i]), bytes,
                [&](const std::byte*, std::uint64_t column_bytes) { outgoing += column_bytes; });
    return outgoing;
  }
};

// Copies the merged records to the output, 16 bytes per thread. `ends` are the ends of the records
// in the output; the first begins at 0.
static __global__ void __launch_bounds__(block_threads)
    gather_text(TextLess less, const PrefixRef* merged, const std::uint64_t* ends,
                std::uint64_t records, std::uint64_t bytes, uint4* out) {
  if (*less.out_of_order != in_order) return;
  constexpr std::uint64_t vector_bytes = sizeof(uint4);
  const std::uint64_t first_byte = std::uint64_t{blockIdx.x} * block_threads * vector_bytes;
  // Limit each thread's search to the records of the block.
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
    if (at == end && record + 1 < records) {  // no record is empty
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

// Verifies the merged records: computes their fingerprint and checks their order.
static __global__ void __launch_bounds__(block_threads)
    verify_text(const std::byte* merged, const std::uint64_t* ends, std::uint64_t records,
                TextLayout layout, unsigned lanes, Found* found) {
  if (found->out_of_order != in_order) return;
  const auto begin = [=](std::uint64_t i) { return i == 0 ? 0 : ends[i - 1]; };
  if (blockIdx.x == 0 && threadIdx.x == 0) found->last_offset = begin(records - 1);
  verify_rows(
      records, [=](std::uint64_t i) { return ends[i] - begin(i); }, lanes,
      [=](std::uint64_t i) { return merged + begin(i); }, &found->written,
      [=](std::uint64_t i, const std::byte* record) {
        if (i == 0) return;
        const std::uint64_t before = begin(i - 1), own = begin(i);
        if (text_less(layout, record, ends[i] - own, merged + before, own - before))
          atomicMin(reinterpret_cast<unsigned long long*>(&found->descent), i);
      });
}

// A record in the staging area.
struct StagedText {
  std::uint64_t at, bytes;  // 0 bytes: there is no record
};

// Counts that the kernels report about a unit with an operator chain.
struct TextOperatorCounts {
  std::uint64_t kept;      // records that pass the filter
  std::uint64_t groups;    // groups among the kept records
  std::uint64_t outgoing;  // emitted records, without those of the first and last group
  std::uint64_t outgoing_bytes;
  std::uint64_t outgoing_fingerprint;
  StagedText first, last;  // first and last merged record
  StagedText head, tail;  // resulting record of the first group, and of the last if that is another
};

__device__ inline StagedText staged_text(const TextLess& less, const PrefixRef& entry) {
  return {static_cast<std::uint32_t>(entry.place), less.bytes(entry)};
}

__device__ inline bool passes(const Test<TextLayout>& test, const TextLess& less,
                              const PrefixRef& entry) {
  return passes(test, less.record(entry), less.bytes(entry));
}

// Flags the records that pass the filter; without groups, only those that are not tombstones.
static __global__ void __launch_bounds__(block_threads)
    flag_text_kept(TextLess less, const PrefixRef* merged, std::uint64_t records,
                   Test<TextLayout> where, Test<TextLayout> buried, std::uint8_t* flags,
                   TextOperatorCounts* found) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records) return;
  flags[i] = 0;
  if (*less.out_of_order != in_order) return;  // then prefix references may point anywhere
  if (i == 0) found->first = staged_text(less, merged[i]);
  if (i + 1 == records) found->last = staged_text(less, merged[i]);
  flags[i] =
      passes(where, less, merged[i]) && !(buried.count != 0 && passes(buried, less, merged[i]));
}

// Flags the kept record that remains of each group: the first, or the last if `last_stays`.
static __global__ void __launch_bounds__(block_threads)
    flag_text_groups(TextLess less, const PrefixRef* kept, std::uint64_t records, bool last_stays,
                     std::uint8_t* flags, const TextOperatorCounts* found) {
  const std::uint64_t j = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (j >= records) return;
  const std::uint64_t count = found->kept;
  flags[j] = j < count && (last_stays ? j + 1 == count || less(kept[j], kept[j + 1])
                                      : j == 0 || less(kept[j - 1], kept[j]));
}

// Processes every group but the first and the last, which may continue in other units. Flags the
// groups whose resulting record is not a tombstone.
static __global__ void __launch_bounds__(block_threads)
    settle_text_groups(TextLess less, const PrefixRef* settled, std::uint64_t records,
                       Test<TextLayout> buried, std::uint8_t* flags, TextOperatorCounts* found) {
  const std::uint64_t g = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (g >= records) return;
  flags[g] = 0;
  const std::uint64_t groups = found->groups;
  if (g >= groups) return;
  if (g == 0)
    found->head = staged_text(less, settled[g]);
  else if (g + 1 == groups)
    found->tail = staged_text(less, settled[g]);
  else
    flags[g] = !(buried.count != 0 && passes(buried, less, settled[g]));
}

// Stores the emitted bytes, in one thread. `ends` are the ends of the emitted records, and stay the
// same after the last of them.
static __global__ void see_outgoing_bytes(const std::uint64_t* ends, std::uint64_t records,
                                          TextOperatorCounts* found) {
  found->outgoing_bytes = ends[records - 1];
}

// Projects the emitted records, one thread per record.
static __global__ void __launch_bounds__(block_threads)
    put_text_columns(TextLess less, const PrefixRef* outgoing, const std::uint64_t* ends,
                     std::uint64_t records, TextLayout selected, std::byte* out) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records) return;
  std::byte* to = out + (i == 0 ? 0 : ends[i - 1]);
  put_columns(selected, less.record(outgoing[i]), less.bytes(outgoing[i]),
              [&](const std::byte* at, std::uint64_t bytes) {
                for (std::uint64_t b = 0; b < bytes; ++b) *to++ = at[b];
              });
}

// Computes the fingerprint of the emitted records.
static __global__ void __launch_bounds__(block_threads)
    fingerprint_text(const std::byte* outgoing, const std::uint64_t* ends, std::uint64_t records,
                     unsigned lanes, TextOperatorCounts* found) {
  const auto begin = [=](std::uint64_t i) { return i == 0 ? 0 : ends[i - 1]; };
  verify_rows(
      records, [=](std::uint64_t i) { return ends[i] - begin(i); }, lanes,
      [=](std::uint64_t i) { return outgoing + begin(i); }, &found->outgoing_fingerprint,
      [](std::uint64_t, const std::byte*) {});
}

}  // namespace corank
