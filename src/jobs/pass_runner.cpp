#include "jobs/pass_runner.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <limits>

#include "exec/pipeline.hpp"
#include "jobs/diagnostics.hpp"
#include "util/math.hpp"

namespace corank {
namespace {

// Throws Error if a file was changed meanwhile: then that is the cause of any other error.
void check_unchanged(const PassSpec& spec) {
  for (const Run& run : spec.runs) run.check_unchanged();
}

// Returns the fingerprint of the records in `partitions`, if these are all records of the runs and
// that of each run is known.
std::optional<std::uint64_t> known_fingerprint(std::span<const Run> runs,
                                               std::span<const std::vector<Run>> partitions) {
  std::uint64_t fingerprint = 0, records = 0;
  for (const std::vector<Run>& partition : partitions) records += records_of(partition);
  if (records != records_of(runs)) return std::nullopt;
  for (const Run& run : runs) {
    if (!run.fingerprint()) return std::nullopt;
    fingerprint += *run.fingerprint();
  }
  return fingerprint;
}

// Returns a unit of `count` records in memory.
WorkUnit unit_of(std::span<const std::byte> records, std::uint64_t count) {
  const auto chunk = std::make_shared<Chunk>();
  chunk->count = count;
  chunk->in_place = records.data();
  WorkUnit unit;
  unit.records = count;
  unit.bytes = records.size();
  unit.segments.push_back({chunk, 0, count});
  return unit;
}

}  // namespace

std::optional<PassPlan> PassRunner::plan(const PassSpec& spec, std::uint64_t held, bool is_direct,
                                         bool is_direct_output, std::uint64_t in_memory) const {
  return context_.budget.plan(spec.runs, {.partitions = spec.partitions.size(),
                                          .held = held,
                                          .in_memory = in_memory,
                                          .direct = is_direct,
                                          .direct_output = is_direct_output,
                                          .devices = context_.backends.devices(),
                                          .wanted_bytes = wanted_bytes(spec)});
}

PassPlan PassRunner::plan(const PassSpec& spec) const {
  const auto [held, in_memory] = held_runs(spec.runs, spec.partitions.size());
  return plan(spec, held, std::ranges::any_of(spec.runs, &Run::is_direct),
              std::ranges::any_of(spec.writers, &Writer::is_direct), in_memory)
      .value();
}

bool PassRunner::can_merge(std::span<const Run> runs, std::size_t partitions) const {
  const auto [held, in_memory] = held_runs(runs, partitions);
  return held <= context_.budget.widest(partitions) &&
         context_.budget.plan(runs, {.partitions = partitions,
                                     .held = held,
                                     .in_memory = in_memory,
                                     .direct = false,
                                     .direct_output = false,
                                     .devices = context_.backends.devices(),
                                     .wanted_bytes = std::numeric_limits<std::uint64_t>::max()});
}

// Runs in memory have no chunks if their records have a fixed size and are not copied. Runs that
// are copied are read one after another, so they have only the chunks that are read ahead, as many
// as in any merge.
PassRunner::HeldRuns PassRunner::held_runs(std::span<const Run> runs,
                                           std::size_t partitions) const {
  const std::uint64_t in_memory = std::ranges::count(runs, true, &Run::is_in_memory);
  const bool varies = !context_.format.input().traits().has_fixed_size;
  const std::uint64_t in_files = runs.size() - in_memory;
  if (in_memory != 0 && varies && in_files != 0) return {in_files, in_memory};
  if (in_memory != 0 && !context_.format.counts_bytes())
    return {std::max<std::uint64_t>(in_files, 2), 0};
  if (!context_.options.copy_only) return {runs.size(), 0};
  return {std::min<std::uint64_t>({runs.size(), 32, context_.budget.widest(partitions)}), 0};
}

unsigned PassRunner::threads_of(const PassSpec& spec) const {
  assert(!spec.partitions.empty());
  return std::max(context_.threads / static_cast<unsigned>(spec.partitions.size()), 1u);
}

// Returns the max input that a limit needs; units and chunks never need to be larger. Small ones
// cost more, so much less is not worth it.
std::uint64_t PassRunner::wanted_bytes(const PassSpec& spec) const {
  constexpr std::uint64_t min_bytes = MiB;
  constexpr std::uint64_t usual_text_bytes = 256;  // of a record
  constexpr auto all = std::numeric_limits<std::uint64_t>::max();
  const Options& options = context_.options;
  if (!spec.is_last || !spec.operators || !options.query.limit) return all;
  const std::uint64_t limit = *options.query.limit;
  const std::uint64_t records = spec.partitions.back().end;
  const std::uint32_t record_bytes = context_.format.input().record_bytes();
  if (record_bytes == 0) return std::max(min_bytes, std::min(limit, records) * usual_text_bytes);
  return std::max(min_bytes, limit < records ? limit * record_bytes : all);
}

// Returns the bytes of merged units that are not read again soon, which are written with
// non-temporal stores. Returns 0 if a compressor reads them soon.
std::uint64_t PassRunner::streamed_unit_bytes(const PassSpec& spec, const PassPlan& plan) const {
  if (spec.writers.empty()) return spec.in_place.size();
  const bool wait = std::ranges::all_of(spec.writers, [](const Writer& writer) {
    return writer.is_direct() && !writer.compressor();
  });
  return wait ? plan.tokens * plan.unit_bytes : 0;
}

std::vector<std::unique_ptr<Backend>> PassRunner::make_backends(const PassSpec& spec,
                                                                PassPlan& plan) {
  if (context_.options.copy_only) return {};
  const BackendConfig config{.encoding = &context_.format.input().keys(),
                             .unit_records = plan.unit_records,
                             .tokens = plan.tokens,
                             .threads = threads_of(spec),
                             .verify = context_.options.verify,
                             .unit_bytes = plan.unit_bytes,
                             .streamed_unit_bytes = streamed_unit_bytes(spec, plan),
                             .operators = spec.operators.get(),
                             .fingerprint = context_.fingerprint};
  auto backends =
      context_.backends.make(spec.partitions.size(), config, plan, context_.format.record_bytes());
  device_ = backends.front()->device();
  return backends;
}

std::uint64_t PassRunner::run(const PassSpec& spec) {
  assert(spec.writers.empty() || spec.in_place.empty());
  assert(spec.partitions.size() == 1 || spec.partitions.size() == spec.writers.size());
  const Options& options = context_.options;
  PassPlan plan = this->plan(spec);
  const std::vector<std::vector<Run>> partitions =
      context_.cuts.runs_of(spec.runs, spec.partitions);
  const std::vector<std::unique_ptr<Backend>> backends = make_backends(spec, plan);
  std::vector<std::atomic<std::uint64_t>> fingerprints(options.verify ? spec.runs.size() : 0);
  std::atomic<std::uint64_t> read = 0, written = 0;
  totals_.ended_early = false;
  // A sort has read all records before.
  const RecordFormat& format =
      context_.inputs_are_sorted ? context_.format.input() : context_.format.checked();
  const OutputOrder order = context_.format.order(spec.operators, spec.is_last);
  std::vector<Pass> passes;
  for (std::size_t i = 0; i < partitions.size(); ++i)
    passes.push_back({.counts_bytes = context_.format.counts_bytes(),
                      .runs = partitions[i],
                      .format = format,
                      .plan = plan,
                      .operators = spec.operators.get(),
                      .limit = spec.limit,
                      .output = order,
                      .backend = options.copy_only ? nullptr : backends[i].get(),
                      .writers = partitions.size() == 1 ? spec.writers : spec.writers.subspan(i, 1),
                      .shares = spec.shares,
                      .in_place = spec.in_place,
                      .threads = threads_of(spec),
                      .stop = options.stop,
                      .checksum = spec.is_last && options.checksum,
                      .fingerprint = context_.fingerprint,
                      .fingerprints = fingerprints,
                      .read = &read,
                      .written = spec.is_last ? nullptr : &written,
                      .progress = context_.progress,
                      .trace = context_.trace,
                      .partition = static_cast<unsigned>(i)});
  std::vector<std::shared_ptr<void>> pinned;
  if (!backends.empty()) pinned = pin(*backends.front(), spec.runs, spec.in_place);
  execute(spec, passes);
  if (!totals_.ended_early) {
    check_temporaries(spec, partitions, fingerprints);
    const std::optional<std::uint64_t> known = known_fingerprint(spec.runs, partitions);
    if (options.verify && known && read != *known) {
      check_unchanged(spec);
      throw Corrupted("the merged records are not those that were read to be sorted");
    }
  }
  return written;
}

bool PassRunner::sort_at_once(std::span<std::byte> records) {
  const KeyEncoding& keys = context_.format.input().keys();
  const std::uint64_t count = records.size() / keys.record_bytes();
  if (count == 0 || count > context_.backends.max_sorted_at_once(keys)) return false;
  if (context_.options.stop.stop_requested()) throw Interrupted();
  PassPlan plan{};
  plan.unit_records = count;
  plan.unit_bytes = records.size();
  plan.tokens = 1;
  const auto sorter = context_.backends.make_sorter(keys, context_.threads, plan);
  if (!sorter || plan.unit_records < count) return false;
  const auto pinned = pin(*sorter, {}, records);
  const auto start = TraceClock::now();
  if (!sorter->sort(unit_of(records, count), records.data())) return false;
  totals_.bytes_read += records.size();
  totals_.bytes_written += records.size();
  ++totals_.units;
  device_ = sorter->device();
  pipeline_seconds_ += std::chrono::duration<double>(TraceClock::now() - start).count();
  ++num_passes_;
  return true;
}

// Executes the passes; errors that name a unit's record become errors that name a file's.
void PassRunner::execute(const PassSpec& spec, std::span<const Pass> passes) {
  const RecordFormat& format = context_.format.input();
  const auto start = TraceClock::now();
  try {
    run_passes(passes, totals_);
  } catch (const RunOutOfOrder& found) {
    check_unchanged(spec);
    throw_first_out_of_order(spec.runs[found.run], found, format);
  } catch (const EqualKeys& found) {
    throw_equal(context_.inputs, context_.inputs_are_sorted, format, context_.options.query,
                found.record);
  } catch (const Error&) {
    if (std::ranges::any_of(spec.runs, &Run::is_mapped) && !context_.options.stop.stop_requested())
      check_unchanged(spec);
    throw;
  }
  pipeline_seconds_ += std::chrono::duration<double>(TraceClock::now() - start).count();
  ++num_passes_;
}

// Checks that temporary runs that were read to their ends hold the records written to them.
void PassRunner::check_temporaries(const PassSpec& spec,
                                   std::span<const std::vector<Run>> partitions,
                                   std::span<const std::atomic<std::uint64_t>> read) const {
  for (std::size_t i = 0; i < read.size(); ++i) {
    assert(i < spec.runs.size());
    std::uint64_t records = 0;
    for (const std::vector<Run>& partition : partitions) records += partition[i].records();
    const Run& run = spec.runs[i];
    if (run.is_temporary() && records == run.whole().records() && run.fingerprint() != read[i])
      throw_temporary_corrupted(run);
  }
}

}  // namespace corank
