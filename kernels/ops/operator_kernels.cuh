// Kernels that apply an operator chain to a merged unit of fixed-size records: which records pass
// the filter, where groups of equal keys begin, and which record each group results in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "kernels/formats/unit_kernels.cuh"
#include "kernels/ops/operator_steps.hpp"

namespace corank {

// Counts that the kernels report about a unit. Places are offsets of records in bytes; 32 bits
// suffice, since a unit is smaller than 4 GiB.
struct OperatorCounts {
  std::uint64_t kept;        // records that pass the filter
  std::uint64_t groups;      // groups among the kept records
  std::uint64_t outgoing;    // emitted records, without those of the first and last group
  std::uint64_t head, tail;  // records of the first group, and of the last if that is another
  std::uint64_t outgoing_fingerprint;
  // Nonzero if the host must apply the chain: a group is too long for one thread, or a sum
  // overflows.
  unsigned int is_for_host;
};

constexpr std::uint64_t max_group_records = 1024;  // longer groups are left to the host

// Flags the records that pass the filter; without groups, only those that are not tombstones.
static __global__ void __launch_bounds__(block_threads)
    flag_kept(const std::byte* merged, std::uint32_t record_bytes, std::uint64_t records,
              Test<KeyLayout> where, Test<KeyLayout> buried, std::uint8_t* flags) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records) return;
  const std::byte* const record = merged + i * record_bytes;
  flags[i] = passes(where, record, record_bytes) &&
             !(buried.count != 0 && passes(buried, record, record_bytes));
}

// Flags the kept records that begin a group.
static __global__ void __launch_bounds__(block_threads)
    flag_groups(const std::byte* merged, KeyLayout layout, std::uint64_t records,
                const std::uint32_t* kept, const OperatorCounts* found, std::uint8_t* flags) {
  const std::uint64_t j = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (j >= records) return;
  flags[j] =
      j < found->kept && (j == 0 || record_less(layout, merged + kept[j - 1], merged + kept[j]));
}

// Processes every group but the first and the last, which may continue in other units. Finds the
// place of the resulting record, and flags the group unless that is a tombstone. Writes reduced
// records to `reduced`.
static __global__ void __launch_bounds__(block_threads)
    settle_groups(const std::byte* merged, std::uint32_t record_bytes, std::uint64_t records,
                  const std::uint32_t* kept, const std::uint32_t* starts, OnEqual on_equal,
                  Reductions reductions, Test<KeyLayout> buried, std::byte* reduced,
                  std::uint32_t* places, std::uint8_t* flags, OperatorCounts* found) {
  const std::uint64_t g = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (g >= records) return;
  flags[g] = 0;
  places[g] = 0;  // selection reads all of them, flagged or not
  const std::uint64_t groups = found->groups;
  if (g >= groups) return;
  const std::uint64_t begin = starts[g], end = g + 1 < groups ? starts[g + 1] : found->kept;
  if (g == 0) found->head = end - begin;
  if (g != 0 && g + 1 == groups) found->tail = end - begin;
  if (g == 0 || g + 1 == groups) return;
  const std::byte* settled;
  if (on_equal != OnEqual::reduce) {
    places[g] = kept[on_equal == OnEqual::last ? end - 1 : begin];
    settled = merged + places[g];
  } else {
    places[g] = static_cast<std::uint32_t>(g * record_bytes);
    std::byte* const record = reduced + places[g];
    const std::byte* const first = merged + kept[begin];
    for (std::uint32_t i = 0; i < record_bytes; ++i) record[i] = first[i];
    if ((reductions.loops && end - begin > max_group_records) ||
        !reduce_group(
            reductions, end - begin, [=](std::uint64_t i) { return merged + kept[begin + i]; },
            record)) {
      atomicOr(&found->is_for_host, 1u);
      return;
    }
    settled = record;
  }
  flags[g] = buried.count == 0 || !passes(buried, settled, record_bytes);
}

// Projects records: byte b of an emitted record is byte byte_of[b] of its source.
static __global__ void __launch_bounds__(block_threads)
    gather_fields(const std::byte* from, const std::uint32_t* places, std::uint64_t records,
                  const std::uint32_t* byte_of, std::uint32_t output_bytes, std::byte* out) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records * output_bytes) return;
  out[i] = from[places[i / output_bytes] + byte_of[i % output_bytes]];
}

// Computes the fingerprint of the emitted records.
static __global__ void __launch_bounds__(block_threads)
    fingerprint_outgoing(const std::byte* outgoing, std::uint64_t records,
                         std::uint32_t record_bytes, unsigned lanes, OperatorCounts* found) {
  verify_rows(
      records, [=](std::uint64_t) { return record_bytes; }, lanes,
      [=](std::uint64_t i) { return outgoing + i * record_bytes; }, &found->outgoing_fingerprint,
      [](std::uint64_t, const std::byte*) {});
}

}  // namespace corank
