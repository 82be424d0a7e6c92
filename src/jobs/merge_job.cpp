#include "jobs/merge_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <numeric>
#include <utility>

#include "exec/statistics.hpp"
#include "jobs/diagnostics.hpp"
#include "jobs/scan.hpp"
#include "plan/option_checks.hpp"
#include "run/run_io.hpp"
#include "run/run_search.hpp"
#include "util/digest.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"
#include "util/system_limits.hpp"

namespace corank {
namespace {

constexpr auto no_limit = std::numeric_limits<std::uint64_t>::max();

// Max memory to decompress a frame of a temporary file, which holds 1 MiB.
constexpr std::uint64_t temporary_decoder_bytes = std::uint64_t{2} << 20;

// Returns the contents of a temporary file as a run, and leaves the writer empty. The file holds
// `content_bytes` before compression.
Run run_of(Writer& temporary, std::uint32_t record_bytes, std::uint64_t content_bytes) {
  if (temporary.compressor())
    return Run::compressed(temporary.take_file(), temporary.path(), content_bytes);
  assert(temporary.bytes() % record_bytes == 0);
  const std::uint64_t records = temporary.bytes() / record_bytes;
  return Run(temporary.take_file(), temporary.path(), record_bytes, records);
}

// Returns the input bytes, or the max value if some run is a pipe.
std::uint64_t known_bytes(std::span<const Run> runs) {
  std::uint64_t bytes = 0;
  for (const Run& run : runs) {
    if (run.input().is_stream) return std::numeric_limits<std::uint64_t>::max();
    bytes += run.bytes();
  }
  return bytes;
}

std::uint64_t bytes_of(std::span<const Run> runs) {
  std::uint64_t bytes = 0;
  for (const Run& run : runs) bytes += run.bytes();
  return bytes;
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

// Returns the runs in the order in which they are merged. The minuend of an intersection or
// subtraction comes last; see SetOperation.
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
      fingerprints_(runs_.size()),
      run_records_(bytes_of(runs_) / format_.record_bytes()),
      budget_(options, format_.input(), sorts_ ? std::span<const Run>() : runs_, threads_),
      has_all_fingerprints_(sorts_),
      backends_(options, format_.input().traits(),
                sorts_ && !RunFormer::suits_device(format_, options) ? 0 : known_bytes(runs_)),
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
               .inputs = inputs_}) {
  scheduler_.initialize();
  if (options.query.on_equal == OnEqual::error) inputs_ = std::move(runs);
  if (options.temporary_compression) {
    budget_.expect_streams(temporary_decoder_bytes);
    compressing_threads_ = budget_.reserve(*options.temporary_compression);
  }
  if (sorts_)
    for (Run& input : inputs_) input = input.in_bytes();  // they cannot be searched
}

Stats MergeJob::into(const Destination& destination,
                     const std::function<void(const Stats&)>& before_publish) {
  MergeOutput output(destination, options_, format_, budget_);
  try {
    write(output, destination);
    collect_stats("writing " + destination.path.string());
    if (before_publish) before_publish(stats_);
    stats_.output_bytes = output.commit();
  } catch (const Interrupted&) {
    if (options_.resume || (!sorts_ && output.is_worth_resuming())) output.leave_for_resume();
    if (kept_) kept_->leave();
    throw;
  } catch (const FileError&) {
    if (options_.resume) output.leave_for_resume();
    if (kept_) kept_->leave();
    throw;
  }
  return finish();
}

Stats MergeJob::into_memory(std::span<std::byte> output) {
  progress_.set_total(output.size());
  budget_.widest(1);  // throws if the budget is too small
  if (sorts_) {
    former_.emplace(runs_, passes_.context(), budget_, passes_.totals(), output.size());
    progress_.add_to_total(output.size());
    runs_.clear();
    fingerprints_.clear();
    add_load();
    assert(former_->at_end());
    run_records_ = records_of(runs_);
  }
  stats_.io = "memory";
  const Partition all{0, run_records_};
  PassSpec pass = last_pass({&all, 1});
  pass.in_place = output;
  passes_.run(pass);
  collect_stats("writing to memory");
  return finish();
}

Plan MergeJob::plan(const std::filesystem::path& path) {
  Plan plan = plan_without_passes(path);
  const std::size_t num_files = std::max(options_.parts, 1u);
  const std::vector<Partition> partitions = partitions_of_output(num_partitions());
  const std::uint64_t widest = budget_.widest(partitions.size());
  choose_reading(partitions);
  std::size_t num_left = runs_.size();
  for (const IntermediatePass& pass : intermediate_passes(widest)) {
    plan.passes.push_back(
        {pass.first, pass.count, pass.records * format_.record_bytes(),
         "a temporary run in " + folders_for_passes(options_, path).front().string()});
    num_left -= pass.count - 1;
  }
  plan.passes.push_back({0, num_left, plan.input_bytes, path.string()});
  plan.has_direct_output =
      partitions.size() == num_files && wants_direct(options_, plan.input_bytes / num_files);
  const std::uint64_t held = options_.copy_only ? std::min<std::uint64_t>(num_left, 32) : num_left;
  plan.buffers = passes_
                     .plan(last_pass(partitions), std::min(held, widest),
                           std::ranges::any_of(runs_, &Run::is_direct), plan.has_direct_output)
                     .value();
  plan.reading = stats_.io;
  return plan;
}

Plan MergeJob::plan_sort(const std::filesystem::path& path) {
  Plan plan = plan_without_passes(path);
  RunFormer former(std::move(runs_), passes_.context(), budget_, passes_.totals());
  const SortMemory& memory = former.memory();
  plan.load_bytes = memory.load_bytes;
  plan.block_bytes = memory.block_bytes;
  plan.sorter = former.uses_device() ? "cuda" : "cpu";
  const std::uint64_t num_loads =
      std::max<std::uint64_t>(divide_up(plan.input_bytes, memory.load_bytes), 1);
  const std::string folder = folders_for_passes(options_, path).front().string();
  for (std::uint64_t i = 0; i + 1 < num_loads; ++i)
    plan.passes.push_back({0, 0, memory.load_bytes, "a temporary run in " + folder});
  plan.passes.push_back({0, num_loads - 1, plan.input_bytes, path.string()});
  plan.buffers = memory.reading;
  plan.reading = former.io();
  return plan;
}

Plan MergeJob::plan_without_passes(const std::filesystem::path& path) {
  const Compression compression = compression_of(options_, path);
  if (compression.codec != Codec::none) budget_.reserve(compression);
  collect_backend_stats();
  Plan plan;
  plan.sorts = sorts_;
  plan.is_copy = options_.copy_only;
  plan.num_runs = runs_.size();
  plan.has_known_size = !has_streams(runs_);
  plan.records = format_.input().traits().name;
  plan.operators = operator_names(options_.query);
  plan.input_bytes = run_records_ * format_.record_bytes();
  plan.num_partitions = num_partitions();
  plan.has_temporary_output =
      options_.parts > plan.num_partitions && !has_limited_output() && !known_output_bytes();
  plan.compression = compression.codec == Codec::none ? "" : suffix_of(compression.codec).substr(1);
  plan.backend = stats_.backend;
  plan.backend_reason = stats_.backend_reason;
  plan.threads = threads_;
  plan.threads_reason = thread_budget(options_.threads).reason;
  plan.memory_reason = memory_budget(options_.memory_bytes).reason;
  plan.memory_bytes = budget_.bytes();
  plan.is_verified = options_.verify;
  return plan;
}

std::vector<std::vector<Run>> MergeJob::partitions(std::size_t count) const {
  if (has_limited_output())
    throw_error(ErrorCode::options,
                "{} counts records that are chosen or combined, or lines, of which no partition "
                "knows how many come before it; drop it",
                Setting::limit);
  return cuts_.runs_of(runs_, partitions_of_output(count));
}

PassSpec MergeJob::last_pass(std::span<const Partition> partitions) const {
  const std::uint64_t limit =
      options_.query.limit
          ? *options_.query.limit - std::min(*options_.query.limit, resumed_.records)
          : no_limit;
  return {.runs = runs_,
          .fingerprints = fingerprints_,
          .partitions = partitions,
          .writers = {},
          .in_place = {},
          .operators = operators_,
          .is_last = true,
          .limit = limit,
          .has_all_fingerprints = has_all_fingerprints_};
}

void MergeJob::write(MergeOutput& output, const Destination& destination) {
  std::vector<Partition> partitions =
      sorts_ ? std::vector(num_partitions(), Partition{0, run_records_})
             : partitions_of_output(num_partitions());
  output.open(partitions, runs_, operators_);
  if (sorts_) {
    form_runs(destination);
    partitions = partitions_of_output(num_partitions());
  }
  const std::uint64_t widest = budget_.widest(partitions.size());
  choose_reading(partitions);
  resume(output, partitions);
  // The space of temporary runs is given back as the output grows.
  const bool reserves = !operators_ && std::ranges::none_of(runs_, &Run::is_read_once);
  output.prepare(run_records_ / output.num_files() * format_.record_bytes(), reserves,
                 options_.trace.empty() ? nullptr : &trace_);
  std::uint64_t records = 0;
  for (const Partition& partition : partitions) records += partition.end - partition.begin;
  progress_.set_total(progress_.bytes_done() + records * format_.record_bytes());
  skip_written(partitions);
  const std::vector<Edges> edges = edges_of(partitions);
  run_intermediate_passes(widest, folders_for_passes(options_, destination).front());
  passes_.totals().records_written = 0;
  // Intermediate passes added missing line ends, and decompressed.
  if (format_.counts_bytes()) partitions.back().end = records_of(runs_);
  if (passes_.num_passes() != 0 && is_set_operation(options_.query.on_equal))
    replan_after_set_passes(partitions, edges);
  output.write_header();
  PassSpec pass = last_pass(partitions);
  pass.writers = output.writers();
  if (fills_in_turn() && output.num_files() > 1)
    pass.shares = shares_of_parts(folders_for_passes(options_, destination).front());
  passes_.run(pass);
  for (const Run& run : runs_) run.check_unchanged();
  if (options_.stop.stop_requested()) throw Interrupted();
}

// Returns partitions with equally many records, except that no group is in two.
std::vector<Partition> MergeJob::partitions_of_output(std::size_t count) const {
  std::vector<std::uint64_t> ends;
  for (std::size_t i = 1; i < count; ++i) ends.push_back(part_of(run_records_, i, count));
  const bool keeps_groups =
      !options_.copy_only && (options_.parts_by_key || (operators_ && operators_->groups()));
  if (format_.input().traits().has_fixed_size && keeps_groups) {
    ProbeThreads threads;
    const std::vector<RunCuts::Positions> cuts = cuts_.checked(ends, runs_, threads);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      std::vector<Run> rests;
      for (std::size_t run = 0; run < runs_.size(); ++run)
        rests.push_back(runs_[run].subspan(cuts[i][run], runs_[run].records() - cuts[i][run]));
      ends[i] += cuts_.rank_behind(cuts_.last_before(cuts[i], runs_, threads), rests, threads);
    }
  }
  ends.push_back(run_records_);
  std::vector<Partition> partitions;
  std::uint64_t rank = 0;
  for (const std::uint64_t end : ends) partitions.push_back({std::exchange(rank, end), end});
  return partitions;
}

void MergeJob::choose_reading(std::span<const Partition> partitions) {
  if (sorts_) return;  // the former has chosen
  std::optional<PassPlan> direct_plan;
  if (!format_.counts_bytes())
    direct_plan = passes_.plan(last_pass(partitions), runs_.size(), true, false);
  stats_.io = choose_io(runs_, options_.io, !backends_.uses_cuda(), budget_.bytes(),
                        direct_plan ? direct_plan->chunk_bytes : 0);
  if (std::ranges::any_of(runs_, &Run::is_direct))
    for (Run& input : inputs_) input.make_direct();  // inputs share the runs' descriptors
}

void MergeJob::resume(MergeOutput& output, std::span<Partition> partitions) {
  resumed_ = output.resume(partitions, runs_, operators_);
  stats_.resumed_bytes = resumed_.kept_bytes;
  passes_.totals().checksum += resumed_.checksum;
}

// Leaves out the input that is in the resumed output already: no pass reads it.
void MergeJob::skip_written(std::span<Partition> partitions) {
  const std::uint64_t done = partitions.front().begin;
  if (done == 0) return;
  has_all_fingerprints_ = false;
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
  for (std::size_t i = 0; i < runs_.size() && operators_; ++i)
    resumed_.input_records +=
        scan(runs_[i].subspan(0, cut[i]), format_.input(), false, false).records;
}

std::vector<IntermediatePass> MergeJob::intermediate_passes(std::uint64_t widest) const {
  if (options_.copy_only || std::ranges::any_of(runs_, &Run::is_in_memory)) return {};
  std::vector<std::uint64_t> lengths;
  for (const Run& run : runs_) lengths.push_back(run.records());
  return plan_intermediate_passes(lengths, widest);
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

// Replaces the inputs by sorted runs: one temporary run for each memory load but the last, whose
// runs stay in memory if the last pass can merge them with the others.
void MergeJob::form_runs(const Destination& output) {
  folders_ = folders_for_passes(options_, output);
  former_.emplace(resume_runs(output), passes_.context(), budget_, passes_.totals());
  // A query may leave any number of records, so that their size is unknown.
  if (!operators_ && operator_names(options_.query).empty())
    check_space(folders_,
                {.temporary_bytes = former_->spilled_bytes(),
                 .late_bytes = kept_ || options_.temporary_compression ? former_->spilled_bytes()
                                                                       : former_->late_bytes(),
                 .output_bytes = former_->input_bytes()},
                output);
  stats_.io = former_->io();
  progress_.set_total(2 * run_records_ * format_.record_bytes());
  std::size_t num_spilled = runs_.size();
  for (add_load(); !former_->at_end(); add_load()) spill_load(num_spilled++);
  // Runs of variable-length records in memory need chunks, too, if others are in files.
  const std::size_t num_held = format_.counts_bytes() ? runs_.size() : num_spilled;
  if (num_spilled != 0 && num_held > budget_.widest(num_partitions())) {
    spill_load(num_spilled);
    former_->free_load();
  }
  keep_smallest(runs_);
  run_records_ = records_of(runs_);
}

// Replaces the inputs by the temporary runs that a stopped sort left, if there are any. Returns the
// inputs without the records of these.
std::vector<Run> MergeJob::resume_runs(const Destination& output) {
  std::vector<Run> inputs = std::exchange(runs_, {});
  fingerprints_.clear();
  if (output.sink || output.path == "-") return inputs;
  const FingerprintSum sum = passes_.context().fingerprint;
  const std::string content =
      output_description(options_, compression_of(options_, output), format_, inputs);
  // Sums are of use only to processes that compute them alike.
  constexpr std::array<std::byte, 16> example{};
  kept_.emplace(output.path, digest(fmt::format("{:x} {}", sum ? sum(example, 16) : 0, content)));
  if (!options_.resume) {
    kept_.reset();  // removes what a stopped sort left
    return inputs;
  }
  if (kept_->has_others()) warn_starting_over(options_, output.path, others_were_sorted);
  runs_ = kept_->open(format_, options_, sum);
  for (const KeptRun& kept : kept_->runs()) {
    fingerprints_.push_back(kept.fingerprint);
    kept_records_ = kept.records;
  }
  return kept_->runs().empty() ? inputs : after(kept_->runs().back().end, std::move(inputs));
}

// Cuts off the records of sorted runs that are past the limit, if it is not an operator.
void MergeJob::keep_smallest(std::vector<Run>& runs) {
  if (operators_ || !options_.query.limit) return;
  const std::uint64_t records = records_of(runs);
  cuts_.keep_first(*options_.query.limit, runs);
  has_all_fingerprints_ = has_all_fingerprints_ && records_of(runs) == records;
}

// Adds the runs of the next load, without the records that no later step needs.
void MergeJob::add_load() {
  std::vector<Run> load = former_->next_load();
  keep_smallest(load);
  fingerprints_.resize(runs_.size());
  std::ranges::move(load, std::back_inserter(runs_));
  fingerprints_.push_back(former_->fingerprint());  // of the whole load
  fingerprints_.resize(runs_.size());
}

// Merges the load, the runs from `first` on, into a temporary run.
void MergeJob::spill_load(std::size_t first) {
  const std::span<const Run> load = std::span(runs_).subspan(first);
  const std::uint64_t records = records_of(load);
  progress_.add_to_total(records * format_.record_bytes());
  const std::filesystem::path& folder = folders_[first % folders_.size()];
  run_intermediate_pass({first, load.size(), records}, format_.load_operators(),
                        format_.load_limit(),
                        Writer(kept_ ? kept_->create(folder) : open_nameless(folder), folder));
  if (kept_)
    kept_->add({.records = kept_records_ + former_->records(),
                .fingerprint = fingerprints_[first],
                .end = former_->position()});
  else
    runs_[first].make_read_once();
}

void MergeJob::run_intermediate_passes(std::uint64_t widest, const std::filesystem::path& folder) {
  const std::vector<IntermediatePass> passes = intermediate_passes(widest);
  std::uint64_t again = 0;
  for (const IntermediatePass& pass : passes) again += pass.records * format_.record_bytes();
  progress_.add_to_total(again);
  if (!passes.empty())
    warn(options_.notice,
         "the memory budget leaves {} bytes for buffers, which merge {} runs at once, not {}: {} "
         "passes, which write {}{} bytes more, to {}; a larger {} needs fewer",
         budget_.bytes(), widest, runs_.size(), passes.size() + 1,
         format_.has_streams() ? "about " : "", again, folder, Setting::memory);
  for (const IntermediatePass& pass : passes) {
    const bool has_last_run = pass.first + pass.count == runs_.size();
    run_intermediate_pass(pass, format_.intermediate_operators(pass.count, has_last_run), no_limit,
                          Writer(open_nameless(folder), folder));
    runs_[pass.first].make_read_once();
  }
}

// Merges neighbouring runs into a temporary one, which takes their place.
void MergeJob::run_intermediate_pass(const IntermediatePass& pass, const PassOperators& operators,
                                     std::uint64_t limit, Writer temporary) {
  assert(pass.count >= 1 && pass.first + pass.count <= runs_.size());
  const auto first = runs_.begin() + static_cast<std::ptrdiff_t>(pass.first);
  const auto end = first + static_cast<std::ptrdiff_t>(pass.count);
  if (options_.temporary_compression)
    temporary.compress(*options_.temporary_compression, compressing_threads_,
                       {passes_.context().trace, "compress"});
  const std::span<const Run> merged(first, end);
  const Partition all{0, records_of(merged)};
  PassTotals& totals = passes_.totals();
  const std::uint64_t merged_before = totals.records, written_before = totals.records_written;
  const std::uint64_t bytes_before = totals.bytes_written;
  const std::uint64_t fingerprint =
      passes_.run({.runs = merged,
                   .fingerprints = std::span(fingerprints_).subspan(pass.first, pass.count),
                   .partitions = {&all, 1},
                   .writers = {&temporary, 1},
                   .in_place = {},
                   .operators = operators,
                   .is_last = false,
                   .limit = limit,
                   .has_all_fingerprints = has_all_fingerprints_});
  for (const Run& run : merged) run.check_unchanged();
  intermediate_records_ +=
      operators ? totals.records_written - written_before : totals.records - merged_before;
  *first = run_of(temporary, format_.record_bytes(), totals.bytes_written - bytes_before);
  runs_.erase(first + 1, end);
  fingerprints_[pass.first] = fingerprint;
  const auto gone = fingerprints_.begin() + static_cast<std::ptrdiff_t>(pass.first) + 1;
  fingerprints_.erase(gone, gone + static_cast<std::ptrdiff_t>(pass.count) - 1);
  assert(fingerprints_.size() == runs_.size());
}

// Returns the edges of several partitions if intermediate set operations may change the ranks.
std::vector<MergeJob::Edges> MergeJob::edges_of(std::span<const Partition> partitions) const {
  std::vector<Edges> edges;
  if (partitions.size() == 1 || !format_.input().traits().has_fixed_size || !operators_ ||
      !operators_->set_operation())
    return edges;
  ProbeThreads threads;
  const auto last_before = [&](std::uint64_t rank) {
    return cuts_.last_before(cuts_.at(rank, runs_, threads), runs_, threads);
  };
  for (const Partition& partition : partitions)
    edges.push_back({last_before(partition.begin), last_before(partition.end)});
  return edges;
}

// After intermediate set operations there are fewer runs and records than at the start.
void MergeJob::replan_after_set_passes(std::span<Partition> partitions,
                                       std::span<const Edges> edges) {
  assert(edges.empty() || edges.size() == partitions.size());
  const std::uint64_t records = records_of(runs_);
  operators_ = format_.operators(runs_.size());
  if (format_.counts_bytes())
    for (std::size_t i = 0; i < partitions.size(); ++i)
      partitions[i] = {part_of(records, i, partitions.size()),
                       part_of(records, i + 1, partitions.size())};
  else if (edges.empty())
    partitions.front() = {0, records};
  ProbeThreads threads;
  for (std::size_t i = 0; i < edges.size(); ++i)
    partitions[i] = {cuts_.rank_behind(edges[i].before, runs_, threads),
                     cuts_.rank_behind(edges[i].last, runs_, threads)};
  progress_.set_total(progress_.bytes_done() + records * format_.record_bytes());
}

// Called before the output gets its name: nothing may fail after that.
void MergeJob::collect_stats(std::string writing) {
  const PassTotals& totals = passes_.totals();
  stats_.passes = passes_.num_passes();
  stats_.pipeline_seconds = passes_.pipeline_seconds();
  stats_.device = passes_.device();
  stats_.bytes_read = totals.bytes_read;
  stats_.bytes_written = totals.bytes_written - resumed_.remerged_bytes;
  const std::uint64_t merged = format_.counts_bytes()
                                   ? totals.records - intermediate_records_ + resumed_.input_records
                                   : run_records_;
  stats_.records = sorts_ ? kept_records_ + former_->records() : merged;
  stats_.records_skipped = totals.records_skipped;
  if (stats_.records_skipped != 0)
    warn(options_.notice, "{} records were skipped, in which a column is not a number",
         stats_.records_skipped);
  stats_.records_written = operators_ ? totals.records_written + resumed_.records : merged;
  stats_.records_replaced = totals.records_replaced;
  stats_.records_deleted = totals.records_deleted;
  stats_.units = totals.units;
  stats_.checksum = totals.checksum;
  stats_.busy = busy_of(totals);
  stats_.waits = waits_of(totals);
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
