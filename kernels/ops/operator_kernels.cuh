// What a device does to a merged unit before it leaves: which records fulfil the condition, where
// groups of equal keys begin, and what goes out of each group.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "kernels/formats/unit_kernels.cuh"
#include "kernels/ops/operator_steps.hpp"

namespace corank {

// What is found of a unit that is shaped. Places are the offsets of records in bytes: a unit is
// smaller than 4 GiB.
struct OperatorCounts {
  std::uint64_t kept;        // records that fulfil the condition
  std::uint64_t groups;      // of them
  std::uint64_t outgoing;    // records that go out, but of the first and the last group
  std::uint64_t head, tail;  // records of the first group and of the last, if there is another
  std::uint64_t outgoing_fingerprint;
  // Whether the unit is for the host to shape: a group is too long for a thread, or does not fit.
  unsigned int is_for_host;
};

constexpr std::uint64_t max_group_records = 1024;  // that a thread goes through

// Of every record: whether it is kept. Without groups those that are buried are not kept, either.
static __global__ void __launch_bounds__(block_threads)
    flag_kept(const std::byte* merged, std::uint32_t record_bytes, std::uint64_t records,
              Test where, Test buried, std::uint8_t* flags) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records) return;
  const std::byte* const record = merged + i * record_bytes;
  flags[i] = passes(where, record) && !(buried.count != 0 && passes(buried, record));
}

// Of every kept record: whether a group begins with it.
static __global__ void __launch_bounds__(block_threads)
    flag_groups(const std::byte* merged, KeyLayout layout, std::uint64_t records,
                const std::uint32_t* kept, const OperatorCounts* found, std::uint8_t* flags) {
  const std::uint64_t j = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (j >= records) return;
  flags[j] =
      j < found->kept && (j == 0 || record_less(layout, merged + kept[j - 1], merged + kept[j]));
}

// Of every group but the first and the last, which may go on in other units: where what goes out
// stands, and whether anything does. What groups are reduced to is put to `reduced`.
static __global__ void __launch_bounds__(block_threads)
    settle_groups(const std::byte* merged, std::uint32_t record_bytes, std::uint64_t records,
                  const std::uint32_t* kept, const std::uint32_t* starts, OnEqual on_equal,
                  Reductions reductions, Test buried, std::byte* reduced, std::uint32_t* places,
                  std::uint8_t* flags, OperatorCounts* found) {
  const std::uint64_t g = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (g >= records) return;
  flags[g] = 0;
  places[g] = 0;  // they are all read, flagged or not
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
  flags[g] = buried.count == 0 || !passes(buried, settled);
}

// Bytes of fields: byte b of an outgoing record is byte from[b] of the one that it comes from.
static __global__ void __launch_bounds__(block_threads)
    gather_fields(const std::byte* from, const std::uint32_t* places, std::uint64_t records,
                  const std::uint32_t* byte_of, std::uint32_t output_bytes, std::byte* out) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= records * output_bytes) return;
  out[i] = from[places[i / output_bytes] + byte_of[i % output_bytes]];
}

// At what goes out.
static __global__ void __launch_bounds__(block_threads)
    look_at_outgoing(const std::byte* outgoing, std::uint64_t records, std::uint32_t record_bytes,
                     unsigned lanes, OperatorCounts* found) {
  look_at(
      records, [=](std::uint64_t) { return record_bytes; }, lanes,
      [=](std::uint64_t i) { return outgoing + i * record_bytes; }, &found->outgoing_fingerprint,
      [](std::uint64_t, const std::byte*) {});
}

}  // namespace corank
