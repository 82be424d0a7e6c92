// Runs the passes of one merge: plans each from the memory budget, makes its backends, executes it,
// and verifies temporary runs against their fingerprints.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backends.hpp"
#include "exec/pass.hpp"
#include "exec/progress_meter.hpp"
#include "jobs/merge_format.hpp"
#include "jobs/run_cuts.hpp"
#include "plan/budget.hpp"
#include "util/trace.hpp"

namespace corank {

// One pass as the merge sees it. Everything pointed to must outlive the call of run().
struct PassSpec {
  std::span<const Run> runs;
  std::span<const Partition> partitions;  // of the output
  std::span<Writer> writers;              // one a partition, or several for the only one
  PartShares shares = {};                 // of the writers, if one partition has several
  std::span<std::byte> in_place;          // the output, if there are no writers
  const PassOperators& operators;
  bool is_last;
  std::uint64_t limit;  // max number of records that the operators emit
};

class PassRunner {
 public:
  // Data that the passes of one merge share; must outlive the runner.
  struct Context {
    const Options& options;
    const MergeFormat& format;
    const Budget& budget;
    const RunCuts& cuts;
    Backends& backends;
    ProgressMeter& progress;
    Trace* trace;  // null: no trace is wanted
    unsigned threads;
    FingerprintSum fingerprint;      // null: nothing is verified
    const std::vector<Run>& inputs;  // the runs at the start, for errors that name equal records
    bool inputs_are_sorted;
  };
  explicit PassRunner(const Context& context) : context_(context) {}

  // Returns how the budget is spent on a pass; none if it cannot merge so many runs at a time.
  // `held` runs have chunks at a time; for `in_memory`, see PassNeeds.
  std::optional<PassPlan> plan(const PassSpec& spec, std::uint64_t held, bool is_direct,
                               bool is_direct_output, std::uint64_t in_memory = 0) const;
  // Returns the plan of a pass that is about to run.
  PassPlan plan(const PassSpec& spec) const;

  // Returns whether one pass into `partitions` can merge the runs, some of which are in files.
  bool can_merge(std::span<const Run> runs, std::size_t partitions) const;

  // Executes the pass. Returns the hash of what an intermediate pass has written; 0 if nothing is
  // verified. Throws OutOfOrder, Interrupted or another Error.
  std::uint64_t run(const PassSpec& spec);

  // Sorts records in memory where they are, on a device that holds all of them at once. Returns
  // whether it did; if not, they are as they were. Throws Error if the device loses them.
  bool sort_at_once(std::span<std::byte> records);

  const Context& context() const { return context_; }
  PassTotals& totals() { return totals_; }
  std::uint64_t num_passes() const { return num_passes_; }
  double pipeline_seconds() const { return pipeline_seconds_; }
  const std::string& device() const { return device_; }

 private:
  // Numbers of runs, as in PassNeeds.
  struct HeldRuns {
    std::uint64_t held;
    std::uint64_t in_memory;
  };
  HeldRuns held_runs(std::span<const Run> runs, std::size_t partitions) const;
  unsigned threads_of(const PassSpec& spec) const;
  std::uint64_t wanted_bytes(const PassSpec& spec) const;
  std::uint64_t streamed_unit_bytes(const PassSpec& spec, const PassPlan& plan) const;
  std::vector<std::unique_ptr<Backend>> make_backends(const PassSpec& spec, PassPlan& plan);
  void execute(const PassSpec& spec, std::span<const Pass> passes);
  void check_temporaries(const PassSpec& spec, std::span<const std::vector<Run>> partitions,
                         std::span<const std::atomic<std::uint64_t>> read) const;

  Context context_;
  PassTotals totals_;
  std::uint64_t num_passes_ = 0;
  double pipeline_seconds_ = 0;
  std::string device_;
};

}  // namespace corank
