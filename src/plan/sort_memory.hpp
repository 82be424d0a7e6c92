// Divides the memory budget of a sort among reading, sorted runs in memory, and merges of these.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "corank/options.hpp"
#include "format/record_format.hpp"
#include "plan/budget.hpp"
#include "run/pass_plan.hpp"
#include "run/run.hpp"

namespace corank {

// Max chunks of a block of records that are sorted together: each holds a buffer, even if it is the
// only one of a small file. A pass that forms runs has as many beside those that are read ahead.
constexpr std::uint64_t max_block_chunks = 8;

// Max sorted batches of a load.
struct MaxBatches {
  std::uint64_t in_memory;    // of all, if no batch is part of a mapped input
  std::uint64_t with_mapped;  // of all, if some are
  std::uint64_t mapped;       // of those that are
};

// How a sort spends its memory. Sizes are bytes.
struct SortMemory {
  bool on_device;               // a device sorts the blocks
  std::uint64_t num_groups;     // of inputs, which are read at the same time; see input_groups.hpp
  unsigned threads;             // that sort a group, beside one that reads it
  PassPlan reading;             // of the pass that forms runs of a group
  std::uint64_t reading_bytes;  // for reading and sorting blocks of all groups
  std::uint64_t load_bytes;     // for the sorted runs of a load
  std::uint64_t num_loads;      // in memory at a time: one is formed while others are merged
  std::uint64_t merging_bytes;  // for merges of these
  MaxBatches max_batches;       // of a load, which the share of the merges allows
  std::uint64_t block_chunks;   // that are sorted together, or more if the merges need that
  std::uint64_t block_bytes;    // of them
  std::uint64_t batch_blocks;   // that are merged as soon as they are sorted
};

// A sort whose memory is divided. What it refers to must outlive it.
struct SortNeeds {
  std::span<const Run> inputs;
  const RecordFormat& format;  // of the inputs
  const Options& options;
  unsigned threads;
  bool counts_bytes;  // merges of the sorted runs copy records to chunks, and count bytes
  bool on_device;     // a device may sort the records
  // Memory of the caller for all sorted runs, which costs no budget.
  std::optional<std::uint64_t> load_bytes;
};

// Returns the bytes of the inputs, with a terminator that may be added to each; 0 if unknown.
std::uint64_t bytes_to_sort(std::span<const Run> inputs);

// Returns the size of blocks, in bytes, on the CPU: large enough that the merges can take all that
// a load has, unless the max chunks of a block are smaller.
std::uint64_t block_bytes_on_cpu(const SortMemory& memory);

// Returns whether the merges can take all batches of a load that is one run in memory.
bool can_merge_load(const SortMemory& memory, std::uint32_t record_bytes);

// Divides the budget, of which nothing is taken. Throws Error, which names a sufficient budget, if
// it is too small.
SortMemory divide_memory(SortNeeds needs, const Budget& budget);

}  // namespace corank
