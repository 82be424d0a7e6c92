// How much one pass reads, merges and holds at a time: plain data, made by plan/pass_planner.
#pragma once

#include <cstdint>

namespace corank {

// If all runs are in memory, units are cut ahead of need: how many side by side, and how many may
// be ready meanwhile.
inline constexpr unsigned units_cut_at_once = 2, max_units_ready = 2;
inline constexpr unsigned max_units_ahead = units_cut_at_once + max_units_ready;

struct PassPlan {
  std::uint64_t chunk_bytes;    // a multiple of the page size
  std::uint64_t chunk_records;  // whole records in a chunk
  std::uint64_t chunks;         // chunk buffers
  std::uint64_t read_ahead;     // max chunks read before the cutter asks for them
  std::uint64_t unit_records;
  std::uint64_t unit_bytes;       // size of a unit's buffer, a multiple of the page size
  unsigned tokens;                // max units in flight
  std::uint64_t large_bytes = 0;  // for variable-length records that do not fit in a chunk
  // Variable-length records in a chunk of a run in memory, beside runs in files. Such a chunk holds
  // only their prefix references, in memory of its own. 0: runs in memory have chunks as all
  // others.
  std::uint64_t in_memory_records = 0;
};

// Returns the min number of records that fill whole pages. Reads of multiples of it stay aligned.
std::uint64_t records_of_pages(std::uint32_t record_bytes);

// Returns the number of records in the first chunk of run `run` of `runs`. First chunks grow from a
// small part of a chunk to a whole one: the chunks of similar runs would otherwise all end
// together, and the merge would wait for all the next ones.
std::uint64_t first_chunk_records(const PassPlan& plan, std::uint32_t record_bytes,
                                  std::uint64_t run, std::uint64_t runs);

// Makes the plan take less device memory: halves the unit, down to 1 MiB, then the units in flight.
// Returns false at the minimum.
bool shrink_to_fit_device(PassPlan& plan, std::uint32_t record_bytes);

}  // namespace corank
