#include "jobs/sorted_loads.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "jobs/merge_output.hpp"

namespace corank {
namespace {

void append(const RunList& more, RunList& list) {
  std::ranges::copy(more.runs, std::back_inserter(list.runs));
  std::ranges::copy(more.fingerprints, std::back_inserter(list.fingerprints));
  list.has_all_fingerprints = list.has_all_fingerprints && more.has_all_fingerprints;
}

// Returns the runs of a group of inputs in a load.
RunList list_of(const Load& load, std::size_t group) {
  const Load::Part& part = load.parts[group];
  return {part.runs, part.fingerprints, load.is_whole};
}

}  // namespace

SortedLoads::SortedLoads(const Context& context, std::vector<Run> inputs, KeptRuns* kept,
                         const Destination& output)
    : context_(context),
      pass_context_(context.passes.context()),
      kept_(kept),
      folders_(folders_for_passes(pass_context_.options, output)),
      former_(resume(std::move(inputs)), pass_context_, context.budget, context.passes.totals()) {
  assert(!kept || former_.memory().num_groups == 1);
  spilled_.resize(former_.memory().num_groups);
  check_space(output);
}

SortedLoads::SortedLoads(const Context& context, std::vector<Run> inputs,
                         std::uint64_t output_bytes)
    : context_(context),
      pass_context_(context.passes.context()),
      former_(std::move(inputs), pass_context_, context.budget, context.passes.totals(),
              output_bytes) {
  spilled_.resize(former_.memory().num_groups);
}

// Takes the runs that a stopped sort left as spilled. Returns the inputs without their records.
std::vector<Run> SortedLoads::resume(std::vector<Run> inputs) {
  if (!kept_) return inputs;
  RunList& kept = spilled_.emplace_back();
  kept.runs = kept_->open(pass_context_.format, pass_context_.options, pass_context_.fingerprint);
  for (const KeptRun& run : kept_->runs()) {
    kept.fingerprints.push_back(run.fingerprint);
    kept_records_ = run.records;
  }
  return kept_->runs().empty() ? inputs : after(kept_->runs().back().end, std::move(inputs));
}

void SortedLoads::check_space(const Destination& output) const {
  const Options& options = pass_context_.options;
  // A query may leave any number of records, and compression any size.
  const bool is_known = !context_.operators && operator_names(options.query).empty() &&
                        !options.temporary_compression;
  SpaceNeeds needs{};
  if (is_known)
    needs = {.temporary_bytes = former_.spilled_bytes(),
             .late_bytes = kept_ ? former_.spilled_bytes() : former_.late_bytes(),
             .output_bytes = former_.input_bytes()};
  corank::check_space(folders_, needs, output);
}

void SortedLoads::form(std::size_t partitions) {
  try {
    for (add_load(); !former_.at_end(); add_load()) make_room();
  } catch (...) {
    spilling_ = {};  // waits: temporary runs are kept only while the output is locked
    if (!pass_context_.options.stop.stop_requested()) former_.check_inputs();
    throw;
  }
  end_spill();
  former_.finish();
  context_.list = all_runs();
  const bool has_spilled =
      std::ranges::any_of(spilled_, [](const RunList& spilled) { return !spilled.runs.empty(); });
  if (has_spilled && !context_.passes.can_merge(context_.list.runs, partitions)) {
    spill_held();
    context_.list = all_runs();
  }
  if (keep_smallest(context_.list.runs)) context_.list.has_all_fingerprints = false;
}

// Cuts off the records of sorted runs that are past the limit, if it is not an operator. Returns
// whether there were any.
bool SortedLoads::keep_smallest(std::vector<Run>& runs) {
  const auto& limit = pass_context_.options.query.limit;
  if (context_.operators || !limit) return false;
  const std::uint64_t records = records_of(runs);
  pass_context_.cuts.keep_first(*limit, runs);
  return records_of(runs) != records;
}

// Forms the next load, without the records that no later step needs.
void SortedLoads::add_load() {
  Load& load = held_.emplace_back(former_.next_load());
  load.is_whole = !keep_smallest(load.parts.front().runs);
}

// Frees memory for the next load, and has one load spilled while that is formed. Nothing is spilled
// while all records may fit in memory.
void SortedLoads::make_room() {
  const std::uint64_t num_loads = former_.memory().num_loads;
  const bool is_spilling = spilling_.valid();
  const bool may_fit = former_.may_fit() && !is_spilling;
  assert(held_.size() + is_spilling <= num_loads);
  const std::uint64_t num_free = num_loads - held_.size() - is_spilling;
  // The next load takes one. Unless all may fit, another must be free once that is full.
  if (num_free > (may_fit ? 0 : 1)) return;
  end_spill();
  if (held_.size() == num_loads) {
    begin_spill();
    end_spill();
  }
  if (num_loads > 1) begin_spill();
}

void SortedLoads::begin_spill() {
  assert(!spilling_.valid() && !held_.empty());
  spilling_ = std::async(std::launch::async, [this, load = std::move(held_.front())]() mutable {
    return spill(std::move(load));
  });
  held_.pop_front();
}

void SortedLoads::end_spill() {
  if (!spilling_.valid()) return;
  std::vector<std::optional<TemporaryRun>> spilled = spilling_.get();
  for (std::size_t group = 0; group < spilled.size(); ++group)
    if (spilled[group]) add_spilled(group, std::move(*spilled[group]));
}

void SortedLoads::add_spilled(std::size_t group, TemporaryRun spilled) {
  if (!kept_) spilled.run.make_read_once();
  spilled_[group].runs.push_back(std::move(spilled.run));
  spilled_[group].fingerprints.push_back(spilled.fingerprint);
}

// Returns the runs of a group of inputs in the loads that are held.
RunList SortedLoads::held_runs(std::size_t group) const {
  RunList held;
  for (const Load& load : held_) append(list_of(load, group), held);
  return held;
}

// Returns all runs, in the order of the inputs.
RunList SortedLoads::all_runs() const {
  RunList all;
  for (std::size_t group = 0; group < spilled_.size(); ++group) {
    append(spilled_[group], all);
    append(held_runs(group), all);
  }
  return all;
}

// Merges the runs of each group in memory into a temporary run.
void SortedLoads::spill_held() {
  for (std::size_t group = 0; group < spilled_.size(); ++group) {
    const RunList held = held_runs(group);
    if (held.runs.empty()) continue;
    TemporaryRun spilled = write(held);
    keep(former_.records(), spilled.fingerprint, held_.back().end);
    add_spilled(group, std::move(spilled));
  }
  held_.clear();
  former_.free_loads();
}

// Writes each part of a load to a temporary run, and frees its memory. Runs while the next load is
// formed.
std::vector<std::optional<TemporaryRun>> SortedLoads::spill(Load load) {
  std::vector<std::optional<TemporaryRun>> spilled(load.parts.size());
  for (std::size_t group = 0; group < spilled.size(); ++group)
    if (!load.parts[group].runs.empty()) spilled[group] = write(list_of(load, group));
  if (spilled.front()) keep(load.records, spilled.front()->fingerprint, load.end);
  return spilled;
}

// Merges runs into a temporary run.
TemporaryRun SortedLoads::write(const RunList& list) {
  const MergeFormat& format = pass_context_.format;
  pass_context_.progress.add_to_total(records_of(list.runs) * format.record_bytes());
  const std::filesystem::path& folder = folders_[num_written_++ % folders_.size()];
  return context_.intermediate.merge(
      list.runs, list.fingerprints, list.has_all_fingerprints, format.load_operators(),
      format.load_limit(), Writer(kept_ ? kept_->create(folder) : open_nameless(folder), folder));
}

// Keeps the temporary run that was written last, if this sort may be resumed.
void SortedLoads::keep(std::uint64_t records, std::uint64_t fingerprint, const InputPosition& end) {
  if (kept_)
    kept_->add({.records = kept_records_ + records, .fingerprint = fingerprint, .end = end});
}

}  // namespace corank
