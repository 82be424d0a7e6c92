// Forms sorted runs of the inputs of a sort, one memory load at a time.
//
// One thread uses a former; others may merge its loads meanwhile. Throws Error, Interrupted, or
// Corrupted if the runs do not hold what was read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "exec/run_formation.hpp"
#include "jobs/pass_runner.hpp"
#include "plan/budget.hpp"
#include "plan/sort_memory.hpp"
#include "run/run.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

// A memory load: at least one sorted run.
struct Load {
  // Runs of one group of inputs, in their order. Those of the group's next load follow them.
  struct Part {
    std::vector<Run> runs;
    std::uint64_t records = 0;                  // that were read for it
    std::vector<std::shared_ptr<void>> pinned;  // keeps the runs pinned
  };

  Buffer memory;            // of the runs, except those that are parts of mapped inputs
  std::vector<Part> parts;  // one a group, in the order of the groups
  std::uint64_t records;    // that were read for this load and all before it
  InputPosition end;        // of these records in the inputs, if there is one group; see
                            // RunFormation::position()
};

class RunFormer {
 public:
  // Takes the memory for reading, sorting and the load from `budget`; the merges get the rest. If
  // the runs stay in memory of the caller, `load_bytes` is its size and costs no budget. The
  // arguments must outlive the former. Throws Error if the budget is too small.
  RunFormer(std::vector<Run> inputs, const PassRunner::Context& context, Budget& budget,
            PassTotals& totals, std::optional<std::uint64_t> load_bytes = {});
  RunFormer(const RunFormer&) = delete;
  RunFormer& operator=(const RunFormer&) = delete;

  // Returns whether a device can sort the records of such a sort. Records that the query leaves out
  // are left out on the CPU, before the others are sorted.
  static bool suits_device(const MergeFormat& format, const Options& options);

  const SortMemory& memory() const { return memory_; }
  // Returns whether the number of loads is unknown until the inputs have been read.
  bool may_fit() const { return input_bytes_ == 0; }
  // Return the bytes of the inputs, and the number of loads that do not stay in memory; 0 if
  // unknown.
  std::uint64_t input_bytes() const { return input_bytes_; }
  std::uint64_t num_spilled() const;
  std::uint64_t spilled_bytes() const {
    return std::min(input_bytes_, num_spilled() * memory_.load_bytes);
  }
  // Returns how many of these may be on the disk when a merge of them ends.
  std::uint64_t late_bytes() const;
  const char* io() const { return io_; }                  // how the inputs are read; see Stats::io
  bool uses_device() const { return memory_.on_device; }  // to sort the records
  // Throws Error if an input was changed: then that is the cause of any other error.
  void check_inputs() const;

  // Sorts the next records, without those that the query drops whatever comes after them. Waits
  // until the memory of a load is free. Must not be called at the end.
  Load next_load();
  // Returns whether there are no more records, once a load was formed.
  bool at_end() const { return std::ranges::all_of(groups_, &Group::at_end); }
  // Checks the inputs, and gives the memory for reading back. Must be called once, at the end,
  // while no load is being merged.
  void finish();
  // Returns how many records were read; those that are left out only count when all is finished.
  std::uint64_t records() const { return records_; }
  // Gives the memory of loads back. There must be none left.
  void free_loads();

 private:
  // Neighbouring inputs.
  struct Group {
    Group(const Pass& pass, const detail::KeyWords& keys, const SortMemory& memory,
          bool checks_batches, PassTotals& totals);

    const Pass pass;
    RunFormation formation;
    bool at_end = false;
  };

  void make_sorter();
  void begin();
  std::uint64_t aligned_bytes() const;
  std::vector<std::uint64_t> shares(std::uint64_t bytes) const;
  std::vector<Load::Part> next_parts(std::span<std::byte> memory);
  Load::Part next_part(Group& group, std::span<std::byte> memory, const MaxBatches& max) const;
  void add_memory(std::span<const std::byte> bytes, std::uint64_t fingerprint,
                  Load::Part& part) const;

  std::vector<Run> inputs_;
  PassRunner::Context context_;
  Budget& budget_;
  PassTotals& totals_;
  std::uint64_t input_bytes_;  // 0 if unknown
  PassOperators operators_;
  SortMemory memory_;
  const bool spills_;            // what does not fit; else the runs are in memory of the caller
  std::uint64_t charged_bytes_;  // for loads
  const char* io_;
  std::unique_ptr<detail::KeyWords> keys_;
  OutputOrder order_;
  std::vector<std::shared_ptr<void>> pinned_;  // inputs in memory
  std::unique_ptr<Backend> sorter_;
  std::optional<BufferPool> pool_;
  std::vector<std::vector<Run>> grouped_inputs_;
  std::deque<Group> groups_;  // of these; empty until the first load
  std::uint64_t records_ = 0;
};

}  // namespace corank
