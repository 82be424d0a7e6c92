// The plan of a merge as plain data: made before anything is written, printed by explain().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "run/pass_plan.hpp"

namespace corank {

// One pass over runs that are neighbours. Sizes are bytes before compression.
struct PlannedPass {
  std::size_t first_run;  // index into the runs that the passes before it leave
  std::size_t num_runs;
  std::uint64_t bytes;
  std::string output;           // a file, a folder of parts, or temporary runs
  std::uint64_t num_loads = 1;  // of a sort, each of which is such a pass of its own
};

struct Plan {
  bool sorts = false;  // the runs are inputs, of which sorted runs are formed first
  // Loads that a sort forms, and that memory has room for; bytes of one, bytes that are sorted
  // together, and the backend that does.
  std::uint64_t num_loads = 0, loads_in_memory = 0;
  std::uint64_t load_bytes = 0, block_bytes = 0;
  std::uint64_t batch_blocks = 1;   // blocks that are merged as soon as they are sorted
  std::uint64_t files_at_once = 1;  // that are read for this, with `buffers` each
  std::string sorter;
  bool is_copy = false;  // runs are copied one after another instead of merged
  std::size_t num_runs = 0;
  std::uint64_t input_bytes = 0;
  bool has_known_size = true;  // false if some run is a pipe or compressed: sizes are min values
  std::string records;         // their format, human-readable
  std::vector<std::string> operators;  // in the order in which they apply
  std::vector<PlannedPass> passes;     // the last one writes the output
  std::size_t num_partitions = 1;      // of the last pass, executed side by side
  bool has_temporary_output = false;   // which parts share once its size is known
  PassPlan buffers{};                  // of each partition of the last pass
  std::string reading;                 // as Stats::io
  bool has_direct_output = false;      // the output bypasses the page cache
  std::string compression;             // codec of the output; empty if it is not compressed
  std::string backend, backend_reason;
  unsigned threads = 0;
  std::uint64_t memory_bytes = 0;             // the budget's share for buffers
  std::string threads_reason, memory_reason;  // what limits them, unless it is the machine
  bool is_verified = true;
};

// Returns the plan as text for people: a line that says what is merged, then the passes, each with
// where its bytes go, then what the last pass uses. Ends with a newline.
std::string explain(const Plan& plan);

}  // namespace corank
