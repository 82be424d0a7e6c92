// How much one pass reads, merges and holds at a time: plain data, made by plan/pass_planner.
#pragma once

#include <cstdint>

namespace corank {

struct PassPlan {
  std::uint64_t chunk_bytes;    // a multiple of the page size
  std::uint64_t chunk_records;  // whole records in a chunk
  std::uint64_t chunks;         // buffers for chunks
  std::uint64_t read_ahead;     // chunks read before the cutter asks for them, at most
  std::uint64_t unit_records;
  std::uint64_t unit_bytes;       // of a unit's buffer, a multiple of the page size
  unsigned tokens;                // units in flight at most
  std::uint64_t large_bytes = 0;  // for records of variable length that have no room in a chunk
};

// The min number of records that fill whole pages: reads of multiples of it stay aligned.
std::uint64_t records_of_pages(std::uint32_t record_bytes);

// In the first chunk of run `run` of `runs`. Of runs that are alike all chunks would end at once,
// and all that follow be waited for: so the first ones are of sizes from a small part to the whole.
std::uint64_t first_chunk_records(const PassPlan& plan, std::uint32_t record_bytes,
                                  std::uint64_t run, std::uint64_t runs);

// Makes the plan take less of a device's memory: smaller units, down to a MiB, then fewer at once.
// False if it is the least.
bool shrink_to_fit_device(PassPlan& plan, std::uint32_t record_bytes);

}  // namespace corank
