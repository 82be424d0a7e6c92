#include "jobs/merge_job.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "exec/statistics.hpp"
#include "jobs/scan.hpp"
#include "plan/option_checks.hpp"
#include "run/run_io.hpp"
#include "run/run_search.hpp"
#include "util/messages.hpp"
#include "util/system_limits.hpp"
#include "util/worker_allowance.hpp"

namespace corank {
namespace {

// Returns the input bytes, or the max value if some run is a pipe.
std::uint64_t known_bytes(std::span<const Run> runs) {
  return std::ranges::any_of(runs, &Run::is_pipe) ? std::numeric_limits<std::uint64_t>::max()
                                                  : total_bytes(runs);
}

bool has_streams(std::span<const Run> runs) {
  return std::ranges::any_of(runs, &Run::is_stream);
}

// Returns the parts of the runs that are merged. Key ranges are cuts of the runs if they can be
// found by search, and so are limits if every record is emitted; otherwise operators apply them.
std::vector<Run> narrowed(std::vector<Run> runs, const MergeFormat& format,
                          const PassOperators& operators, const RunCuts& cuts,
                          const Options& options) {
  const Query& query = options.query;
  if (format.can_search()) keep_range(runs, format.input(), query);
  if (!operators && query.limit) cuts.keep_first(*query.limit, runs);
  return runs;
}

}  // namespace

std::vector<Run> ordered(std::vector<Run> runs, const FormatTraits& traits, const Options& options,
                         Inputs inputs) {
  for (const Run& run : runs)
    if (run.is_stream() && (inputs == Inputs::sorted || options.resume))
      check_stream_options(options, traits, run);
  const OnEqual kind = options.query.on_equal;
  if (kind == OnEqual::intersect || kind == OnEqual::subtract)
    std::rotate(runs.begin(), runs.begin() + 1, runs.end());
  return runs;
}

MergeJob::MergeJob(std::vector<Run> runs, const Options& options, Inputs inputs, FileStart start)
    : options_(options),
      sorts_(inputs == Inputs::unsorted),
      threads_(static_cast<unsigned>(thread_budget(options.threads).value)),
      format_(options, std::move(start),
              sorts_ ? options.temporary_compression.has_value() : has_streams(runs)),
      operators_(sorts_ ? format_.operators_of_sort() : format_.operators(runs.size())),
      cuts_(format_.input(), options.copy_only),
      runs_(sorts_ ? runs : narrowed(runs, format_, operators_, cuts_, options)),
      run_records_(total_bytes(runs_) / format_.record_bytes()),
      budget_(options, format_.input(), sorts_ ? std::span<const Run>() : runs_, threads_),
      backends_(options, format_.input().traits(),
                sorts_ && !RunFormer::suits_device(format_, options) ? 0 : known_bytes(runs_),
                sorts_ ? 0 : runs_.size()),
      progress_(options, !has_streams(runs_)),
      passes_({.options = options,
               .format = format_,
               .budget = budget_,
               .cuts = cuts_,
               .backends = backends_,
               .progress = progress_,
               .trace = options.trace.empty() ? nullptr : &trace_,
               .threads = threads_,
               .fingerprint = !options.verify         ? nullptr
                              : backends_.uses_cuda() ? portable_fingerprint
                                                      : fingerprint_sums().front(),
               .inputs = inputs_,
               .inputs_are_sorted = !sorts_}),
      intermediate_(runs_, passes_, budget_) {
  start_scheduler();
  if (options.query.on_equal == OnEqual::error) inputs_ = std::move(runs);
}

Stats MergeJob::into(const Destination& destination,
                     const std::function<void(const Stats&)>& before_publish) {
  MergeOutput output(destination, options_, format_, budget_);
  try {
    write(output, destination);
    collect_stats("writing " + destination.path.string());
    if (before_publish) before_publish(stats_);
    // The next sort to this output must not find them once the lock goes with the rename.
    kept_.reset();
    if (!sorts_) remove_kept_runs(destination);
    stats_.output_bytes = output.commit();
  } catch (const Interrupted&) {
    leave_for_resume(output, options_.resume || (!sorts_ && output.is_worth_resuming()));
    throw;
  } catch (const FileError&) {
    leave_for_resume(output, options_.resume);
    throw;
  }
  return finish();
}

void MergeJob::leave_for_resume(MergeOutput& output, bool leaves_output) {
  if (leaves_output) output.leave_for_resume();
  if (kept_) kept_->leave();
}

void MergeJob::write(MergeOutput& output, const Destination& destination) {
  std::vector<Partition> partitions =
      sorts_ ? std::vector(num_partitions(), Partition{0, run_records_})
             : partitions_of_output(num_partitions());
  refuse_kept_inputs(destination, runs_);
  output.open(partitions, runs_, operators_);
  if (sorts_) {
    form_runs(destination);
    partitions = partitions_of_output(num_partitions());
  }
  const std::uint64_t widest = budget_.widest(partitions.size());
  choose_reading(partitions);
  resumed_ = output.resume(partitions, runs_, operators_);
  // The space of temporary runs is given back as the output grows.
  const bool reserves = !operators_ && std::ranges::none_of(runs_, &Run::is_read_once);
  output.prepare(run_records_ / output.num_files() * format_.record_bytes(), reserves,
                 passes_.context().trace);
  std::uint64_t records = 0;
  for (const Partition& partition : partitions) records += partition.end - partition.begin;
  progress_.set_total(progress_.bytes_done() + records * format_.record_bytes());
  skip_written(partitions);
  const std::filesystem::path folder = folders_for_passes(options_, destination).front();
  run_intermediate_passes(partitions, widest, folder);
  output.write_header();
  PassSpec pass = last_pass(partitions);
  pass.writers = output.writers();
  if (fills_in_turn() && output.num_files() > 1) pass.shares = shares_of_parts(folder);
  passes_.run(pass);
  for (const Run& run : runs_) run.check_unchanged();
  if (options_.stop.stop_requested()) throw Interrupted();
}

Stats MergeJob::into_memory(std::span<std::byte> output) {
  progress_.set_total(output.size());
  budget_.widest(1);  // throws if the budget is too small
  stats_.io = "memory";
  if (sorts_ && !options_.checksum && passes_.sort_at_once(output)) {
    progress_.add(output.size());
    collect_stats("");
    return finish();
  }
  if (sorts_) {
    progress_.add_to_total(output.size());
    loads_.emplace(sorting(), std::exchange(runs_, {}), output.size());
    loads_->form(1);
    run_records_ = records_of(runs_);
  }
  const Partition all{0, run_records_};
  PassSpec pass = last_pass({&all, 1});
  pass.in_place = output;
  passes_.run(pass);
  collect_stats("writing to memory");
  return finish();
}

std::vector<std::vector<Run>> MergeJob::partitions(std::size_t count) const {
  if (has_limited_output())
    throw_error(ErrorCode::options,
                "{} counts records that are chosen or combined, or lines, of which no partition "
                "knows how many come before it; drop it",
                Setting::limit);
  return cuts_.runs_of(runs_, partitions_of_output(count));
}

// Returns partitions with equally many records, except that no group is in two.
std::vector<Partition> MergeJob::partitions_of_output(std::size_t count) const {
  return cuts_.partitions(count, runs_,
                          options_.parts_by_key || (operators_ && operators_->groups()));
}

PassSpec MergeJob::last_pass(std::span<const Partition> partitions) const {
  const std::uint64_t limit =
      options_.query.limit
          ? *options_.query.limit - std::min(*options_.query.limit, resumed_.records)
          : std::numeric_limits<std::uint64_t>::max();
  return {.runs = runs_,
          .partitions = partitions,
          .writers = {},
          .in_place = {},
          .operators = operators_,
          .is_last = true,
          .limit = limit};
}

SortedLoads::Context MergeJob::sorting() {
  return {runs_, passes_, intermediate_, budget_, operators_};
}

// Replaces the inputs by sorted runs.
void MergeJob::form_runs(const Destination& output) {
  progress_.set_total(2 * run_records_ * format_.record_bytes());
  std::vector<Run> inputs = std::exchange(runs_, {});
  kept_ = find_kept_runs(output, format_, options_, passes_.context().fingerprint, inputs);
  loads_.emplace(sorting(), std::move(inputs), kept_.get(), output);
  loads_->form(num_partitions());
  stats_.io = loads_->io();
  run_records_ = records_of(runs_);
}

void MergeJob::choose_reading(std::span<const Partition> partitions) {
  if (sorts_) return;  // the inputs were read
  std::optional<PassPlan> direct_plan;
  if (!format_.counts_bytes())
    direct_plan = passes_.plan(last_pass(partitions), runs_.size(), true, false);
  const bool may_map = !backends_.uses_cuda() && !format_.input().traits().may_skip;
  stats_.io = choose_io(runs_, options_.io, may_map, budget_.bytes() / 4,
                        direct_plan ? direct_plan->chunk_bytes : 0);
}

// Leaves out the input that is in the resumed output already: no pass reads it.
void MergeJob::skip_written(std::span<Partition> partitions) {
  const std::uint64_t done = partitions.front().begin;
  if (done == 0) return;
  ProbeThreads threads;
  const std::vector<std::uint64_t> cut =
      format_.counts_bytes() ? resumed_.cut : cuts_.checked({&done, 1}, runs_, threads).front();
  assert(cut.size() == runs_.size());
  if (format_.counts_bytes() && options_.checksum) count_merged_before(cut);
  for (std::size_t i = 0; i < runs_.size(); ++i)
    runs_[i] = runs_[i].subspan(cut[i], runs_[i].records() - cut[i]);
  for (Partition& partition : partitions)
    partition = {partition.begin - done, partition.end - done};
}

// Without operators, the partial output has as many records as the input that it was made of.
void MergeJob::count_merged_before(std::span<const std::uint64_t> cut) {
  resumed_.input_records = operators_ ? 0 : resumed_.records;
  const ScanShare share = scans_at_once(1, options_).share;
  for (std::size_t i = 0; i < runs_.size() && operators_; ++i)
    resumed_.input_records +=
        scan(runs_[i].subspan(0, cut[i]), format_.input(), false, false, share).records;
}

// Passes that apply set operations leave fewer runs and records than the partitions were made for.
void MergeJob::run_intermediate_passes(std::vector<Partition>& partitions, std::uint64_t widest,
                                       const std::filesystem::path& folder) {
  const bool is_set = is_set_operation(options_.query.on_equal);
  std::vector<RunCuts::Edges> edges;
  if (is_set && partitions.size() != 1 && format_.input().traits().has_fixed_size)
    edges = cuts_.edges(partitions, runs_);
  intermediate_.run(widest, folder);
  passes_.totals().records_written = 0;
  const std::uint64_t records = records_of(runs_);
  // Passes added missing line ends, and decompressed.
  if (format_.counts_bytes()) partitions.back().end = records;
  if (passes_.num_passes() == 0 || !is_set) return;
  operators_ = format_.operators(runs_.size());
  if (format_.counts_bytes())
    partitions = cuts_.partitions(partitions.size(), runs_, false);
  else if (edges.empty())
    partitions = {{0, records}};
  else
    partitions = cuts_.between(edges, runs_);
  progress_.set_total(progress_.bytes_done() + records * format_.record_bytes());
}

// Returns the size of the output if it is that of the runs, and known.
std::optional<std::uint64_t> MergeJob::known_output_bytes() const {
  if (operators_) return std::nullopt;
  std::uint64_t bytes = 0;
  for (const Run& run : runs_) {
    if (!run.content_bytes()) return std::nullopt;
    bytes += *run.content_bytes();
  }
  return bytes;
}

// `folder` is for temporary files.
PartShares MergeJob::shares_of_parts(const std::filesystem::path& folder) const {
  PartShares shares;
  shares.of_limit = has_limited_output();
  shares.folder = folder;
  shares.keep_keys =
      format_.order(operators_, true).kind != OutputOrder::Kind::none &&
      (options_.parts_by_key || (!shares.of_limit && !format_.input().traits().has_fixed_size));
  if (shares.of_limit) return shares;
  shares.bytes = known_output_bytes();
  if (!shares.bytes)
    warn(options_.notice,
         "{} parts share an output of a size that is not known beforehand: it is written to a "
         "temporary file in {} first",
         options_.parts, folder);
  return shares;
}

// Called before the output gets its name: nothing may fail after that.
void MergeJob::collect_stats(std::string writing) {
  const PassTotals& totals = passes_.totals();
  stats_.passes = passes_.num_passes();
  stats_.pipeline_seconds = passes_.pipeline_seconds();
  stats_.device = passes_.device();
  set_totals(totals, stats_);
  stats_.bytes_written -= resumed_.remerged_bytes;
  stats_.resumed_bytes = resumed_.kept_bytes;
  stats_.checksum += resumed_.checksum;
  const std::uint64_t merged =
      format_.counts_bytes() ? totals.records - intermediate_.records() + resumed_.input_records
                             : run_records_;
  stats_.records = loads_ ? loads_->records() : merged;
  if (stats_.records_skipped != 0)
    warn(options_.notice, "{} record{} could not be read and {} skipped", stats_.records_skipped,
         stats_.records_skipped == 1 ? " or its key" : "s or their keys",
         stats_.records_skipped == 1 ? "was" : "were");
  stats_.records_written = operators_ ? totals.records_written + resumed_.records : merged;
  stats_.verified = options_.verify;
  collect_backend_stats();
  stats_.memory_peak_bytes = peak_memory_bytes();
  stats_.seconds = seconds_so_far();
  stats_.bound = find_bound(stats_, seconds(totals.wall), std::move(writing));
}

void MergeJob::collect_backend_stats() {
  stats_.backend = options_.copy_only ? "none" : backends_.uses_cuda() ? "cuda" : "cpu";
  stats_.backend_reason = options_.copy_only ? "copies only" : backends_.reason();
  stats_.units_redone_on_cpu = backends_.faults().units_redone();
  stats_.device_fault = backends_.faults().first();
  if (!stats_.device_fault.empty()) warn(options_.notice, "{}", backends_.outcome(stats_.units));
}

Stats MergeJob::finish() {
  stats_.seconds = seconds_so_far();
  if (!options_.trace.empty()) trace_.write(options_.trace);
  return std::move(stats_);
}

}  // namespace corank
