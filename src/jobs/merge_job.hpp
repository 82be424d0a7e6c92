// The job that merge() and sort() share: open, form runs if the inputs are unsorted, merge,
// publish. Options must be checked. Throws what merge() throws. One thread uses a job.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backends.hpp"
#include "corank/options.hpp"
#include "corank/stats.hpp"
#include "corank/streams.hpp"
#include "exec/progress_meter.hpp"
#include "io/writer.hpp"
#include "jobs/intermediate_passes.hpp"
#include "jobs/kept_runs.hpp"
#include "jobs/merge_format.hpp"
#include "jobs/merge_output.hpp"
#include "jobs/pass_runner.hpp"
#include "jobs/run_cuts.hpp"
#include "jobs/sorted_loads.hpp"
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
  // Parts are filled in turn if a limit ends them, so that their ranks are not known in advance, or
  // if the runs cannot be searched for ranks.
  bool fills_in_turn() const { return has_limited_output() || !format_.can_search(); }
  std::size_t num_partitions() const { return fills_in_turn() ? 1 : std::max(options_.parts, 1u); }
  bool has_limited_output() const { return options_.query.limit && operators_; }
  std::optional<std::uint64_t> known_output_bytes() const;
  PartShares shares_of_parts(const std::filesystem::path& folder) const;
  std::vector<Partition> partitions_of_output(std::size_t count) const;
  PassSpec last_pass(std::span<const Partition> partitions) const;
  SortedLoads::Context sorting();

  Plan plan_without_passes(const std::filesystem::path& path);
  void write(MergeOutput& output, const Destination& destination);
  void leave_for_resume(MergeOutput& output, bool leaves_output);
  void form_runs(const Destination& output);
  void choose_reading(std::span<const Partition> partitions);
  void skip_written(std::span<Partition> partitions);
  void count_merged_before(std::span<const std::uint64_t> cut);
  void run_intermediate_passes(std::vector<Partition>& partitions, std::uint64_t widest,
                               const std::filesystem::path& folder);
  void collect_stats(std::string writing);
  void collect_backend_stats();
  Stats finish();
  double seconds_so_far() const {
    return std::chrono::duration<double>(TraceClock::now() - start_).count();
  }

  TraceClock::time_point start_ = TraceClock::now();
  const Options& options_;
  const bool sorts_;
  unsigned threads_;
  MergeFormat format_;
  PassOperators operators_;  // of the last pass
  RunCuts cuts_;
  std::vector<Run> runs_;      // of the last pass, once the passes before it are done
  std::vector<Run> inputs_;    // the runs at the start, for errors that name equal records
  std::uint64_t run_records_;  // in the runs at the start, or once they are formed
  Budget budget_;
  Backends backends_;
  ProgressMeter progress_;
  Trace trace_;
  PassRunner passes_;
  IntermediatePasses intermediate_;
  std::unique_ptr<KeptRuns> kept_;    // of a sort that can be resumed
  std::optional<SortedLoads> loads_;  // of a sort
  Resumed resumed_;
  Stats stats_;
};

// Changes the runs, which lack their headers, before they are merged.
using Prepare = std::function<void(std::vector<Run>& runs, FileStart& start)>;
// Merges or sorts the inputs; of files, only the parts to which `prepare` cuts the runs.
Stats run_job(std::span<const std::filesystem::path> files, const Destination& output,
              const Options& options, Inputs inputs, const Prepare& prepare = {},
              const std::function<void(const Stats&)>& before_publish = {});
Stats run_job(std::span<const NamedSource> sources, const Destination& output,
              const Options& options, Inputs inputs);
// Cuts the merge of files, or their concatenation with Options::copy_only, into `count` partitions,
// and returns the part of each run, in the order of the files. Throws Error if a run is a pipe or
// compressed, or if a limit is an operator.
std::vector<std::vector<Run>> cut_job(std::span<const std::filesystem::path> files,
                                      std::size_t count, const Options& options, Inputs inputs,
                                      const Prepare& prepare);
// Returns what run_job() would do, as text for people.
std::string explain_job(std::span<const std::filesystem::path> paths,
                        const std::filesystem::path& output, const Options& options, Inputs inputs);
// Sorts fixed-size records in memory.
Stats run_job(std::span<std::byte> records, const Options& options);

}  // namespace corank
