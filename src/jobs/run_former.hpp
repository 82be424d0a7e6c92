// Forms sorted runs of the inputs of a sort, one memory load at a time, and divides the memory.
//
// A load's runs are in memory, and valid until the next load or until free_load(). One thread uses
// a former. Throws Error, Interrupted, or Corrupted if the runs do not hold what was read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "exec/run_formation.hpp"
#include "jobs/pass_runner.hpp"
#include "plan/budget.hpp"
#include "run/run.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

// How a sort spends its memory. Sizes are bytes.
struct SortMemory {
  PassPlan reading;             // of the pass that forms runs
  std::uint64_t reading_bytes;  // for reading and sorting blocks
  std::uint64_t load_bytes;     // for sorted runs
  std::uint64_t merging_bytes;  // for merges of these
  MaxBatches max_batches;       // of a load, which the share of the merges allows
  std::uint64_t block_bytes;    // that are sorted together
  std::uint64_t batch_blocks;   // that are merged as soon as they are sorted
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
  // Return the bytes of the inputs, and of the records that do not fit in the load; 0 if unknown.
  std::uint64_t input_bytes() const { return input_bytes_; }
  std::uint64_t spilled_bytes() const {
    return input_bytes_ - std::min(input_bytes_, memory_.load_bytes);
  }
  // Returns how many of these may be on the disk when a merge of them ends.
  std::uint64_t late_bytes() const;
  const char* io() const { return io_; }           // how the inputs are read; see Stats::io
  bool uses_device() const { return on_device_; }  // to sort the records

  // Sorts the next records, without those that the query drops whatever comes after them. Returns
  // runs of them, in the order of the input, at least one. The runs of the load before are gone
  // then. Must not be called at the end.
  std::vector<Run> next_load();
  // Returns whether there are no more records. The memory for reading is free then.
  bool at_end() const { return at_end_; }
  // Returns the position after the records of all loads so far; see RunFormation::position().
  InputPosition position() const {
    return at_end_ ? InputPosition{static_cast<std::uint32_t>(inputs_.size()), 0}
                   : formation_->position();
  }
  // Returns how many records were read. Those that are left out are counted at the end.
  std::uint64_t records() const { return records_; }
  // Returns the fingerprint of the records of the last load; 0 unless they are verified.
  std::uint64_t fingerprint() const { return fingerprint_; }
  void free_load();

 private:
  bool fits_device() const;
  void limit_runs(std::size_t partitions);
  void make_sorter();
  void begin();
  void end();

  std::vector<Run> inputs_;
  PassRunner::Context context_;
  Budget& budget_;
  PassTotals& totals_;
  std::uint64_t input_bytes_ = 0;
  std::uint64_t charged_load_bytes_;
  PassOperators operators_;
  bool on_device_;
  SortMemory memory_;
  const char* io_;
  std::unique_ptr<detail::KeyWords> keys_;
  OutputOrder order_;
  std::vector<std::shared_ptr<void>> pinned_;  // inputs in memory
  std::unique_ptr<Backend> sorter_;
  std::optional<BufferPool> pool_;
  std::optional<Pass> pass_;
  std::optional<RunFormation> formation_;
  Buffer load_;
  std::uint64_t fingerprint_ = 0;
  std::uint64_t records_ = 0;
  bool at_end_ = false;
};

}  // namespace corank
