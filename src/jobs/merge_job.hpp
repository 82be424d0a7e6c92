// The job that merge() and sort() share: open, form runs if the inputs are unsorted, merge,
// publish. Options must be checked. Throws what merge() throws. One thread uses a job.
#pragma once

#include <tbb/task_arena.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backends.hpp"
#include "corank/options.hpp"
#include "corank/stats.hpp"
#include "corank/streams.hpp"
#include "io/writer.hpp"
#include "jobs/kept_runs.hpp"
#include "jobs/merge_format.hpp"
#include "jobs/merge_output.hpp"
#include "jobs/pass_runner.hpp"
#include "jobs/progress_meter.hpp"
#include "jobs/run_cuts.hpp"
#include "jobs/run_former.hpp"
#include "plan/budget.hpp"
#include "plan/plan.hpp"
#include "run/run.hpp"
#include "util/trace.hpp"

namespace corank {

enum class Inputs : std::uint8_t { sorted, unsorted };

// Returns the runs in the order in which they are merged. The minuend of an intersection or
// subtraction comes last; see SetOperation.
std::vector<Run> ordered(std::vector<Run> runs, const FormatTraits& traits, const Options& options,
                         Inputs inputs);

// One call of merge() or sort().
class MergeJob {
 public:
  // `runs` must be ordered(), without their headers. `options` must outlive the job. If `inputs`
  // are unsorted, sorted runs are formed of them first.
  MergeJob(std::vector<Run> runs, const Options& options, Inputs inputs, FileStart start = {});

  // Calls `before_publish` before the output gets its name, with all statistics but its size.
  Stats into(const Destination& output,
             const std::function<void(const Stats&)>& before_publish = {});
  Stats into_memory(std::span<std::byte> output);
  // Returns what into() would do.
  Plan plan(const std::filesystem::path& output);
  Plan plan_sort(const std::filesystem::path& output);
  // Returns the parts of the runs that `count` partitions of the output have.
  std::vector<std::vector<Run>> partitions(std::size_t count) const;

 private:
  // The last record before a partition and the last record in it; empty if there is none.
  struct Edges {
    std::vector<std::byte> before, last;
  };

  Plan plan_without_passes(const std::filesystem::path& path);
  void write(MergeOutput& output, const Destination& destination);
  // Parts are filled in turn if a limit ends them, so that their ranks are not known in advance, or
  // if the runs cannot be searched for ranks.
  bool fills_in_turn() const { return has_limited_output() || !format_.can_search(); }
  std::size_t num_partitions() const { return fills_in_turn() ? 1 : std::max(options_.parts, 1u); }
  bool has_limited_output() const { return options_.query.limit && operators_; }
  std::optional<std::uint64_t> known_output_bytes() const;
  PartShares shares_of_parts(const std::filesystem::path& folder) const;
  std::vector<IntermediatePass> intermediate_passes(std::uint64_t widest) const;
  std::vector<Partition> partitions_of_output(std::size_t count) const;
  PassSpec last_pass(std::span<const Partition> partitions) const;
  void choose_reading(std::span<const Partition> partitions);
  void resume(MergeOutput& output, std::span<Partition> partitions);
  void skip_written(std::span<Partition> partitions);
  void count_merged_before(std::span<const std::uint64_t> cut);
  void form_runs(const Destination& output);
  std::vector<Run> resume_runs(const Destination& output);
  void keep_smallest(std::vector<Run>& runs);
  void add_load();
  void spill_load(std::size_t first);
  void run_intermediate_passes(std::uint64_t widest, const std::filesystem::path& folder);
  void run_intermediate_pass(const IntermediatePass& pass, const PassOperators& operators,
                             std::uint64_t limit, Writer temporary);
  std::vector<Edges> edges_of(std::span<const Partition> partitions) const;
  void replan_after_set_passes(std::span<Partition> partitions, std::span<const Edges> edges);
  void collect_stats(std::string writing);
  void collect_backend_stats();
  Stats finish();
  double seconds_so_far() const {
    return std::chrono::duration<double>(TraceClock::now() - start_).count();
  }

  TraceClock::time_point start_ = TraceClock::now();
  // Keeps the scheduler of oneTBB alive from a time when memory is available: starting it without
  // memory may hang instead of fail.
  tbb::task_arena scheduler_{1};
  const Options& options_;
  const bool sorts_;
  unsigned threads_;
  MergeFormat format_;
  PassOperators operators_;  // of the last pass
  RunCuts cuts_;
  std::vector<Run> runs_;
  std::vector<Run> inputs_;  // the runs at the start, for errors that name equal records
  std::vector<std::uint64_t> fingerprints_;  // one a run: of temporary runs, as they were written
  std::uint64_t run_records_;                // at the start
  Budget budget_;
  std::uint64_t intermediate_records_ = 0;  // that intermediate passes wrote
  bool has_all_fingerprints_;               // fingerprints_ cover all records of the runs
  Backends backends_;
  ProgressMeter progress_;
  Trace trace_;
  PassRunner passes_;
  std::vector<std::filesystem::path> folders_;  // for temporary runs of a sort
  std::optional<KeptRuns> kept_;                // of a sort that can be resumed
  std::uint64_t kept_records_ = 0;              // in runs that a stopped sort left
  std::optional<RunFormer> former_;             // of a sort; holds the runs in memory
  unsigned compressing_threads_ = 0;            // of temporary runs
  Resumed resumed_;
  Stats stats_;
};

Stats run_job(std::span<const std::filesystem::path> files, const Destination& output,
              const Options& options, Inputs inputs);
Stats run_job(std::span<const NamedSource> sources, const Destination& output,
              const Options& options, Inputs inputs);
// Merges or sorts parts of the files: `narrow` cuts the runs, which lack their headers, to these.
Stats run_job(std::span<const std::filesystem::path> files, const Destination& output,
              const Options& options, Inputs inputs,
              const std::function<void(std::vector<Run>&)>& narrow,
              const std::function<void(const Stats&)>& before_publish);
// Cuts the merge of files, or their concatenation with Options::copy_only, into `count` partitions,
// and returns the part of each run, in the order of the files. Throws Error if a run is a pipe or
// compressed, or if a limit is an operator.
std::vector<std::vector<Run>> cut_job(std::span<const std::filesystem::path> files,
                                      std::size_t count, const Options& options, Inputs inputs);
// Returns what run_job() would do, as text for people.
std::string explain_job(std::span<const std::filesystem::path> paths,
                        const std::filesystem::path& output, const Options& options, Inputs inputs);
// Sorts fixed-size records in memory.
Stats run_job(std::span<std::byte> records, const Options& options);

}  // namespace corank
