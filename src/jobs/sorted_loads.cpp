#include "jobs/sorted_loads.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "jobs/merge_output.hpp"

namespace corank {
namespace {

void append(const std::vector<Run>& more, std::vector<Run>& runs) {
  runs.insert(runs.end(), more.begin(), more.end());
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
  spilled_.push_back(
      kept_->open(pass_context_.format, pass_context_.options, pass_context_.fingerprint));
  if (kept_->runs().empty()) return inputs;
  kept_records_ = kept_->runs().back().records;
  return after(kept_->runs().back().end, std::move(inputs));
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
  context_.runs = all_runs();
  const bool has_spilled =
      std::ranges::any_of(spilled_, [](const auto& spilled) { return !spilled.empty(); });
  if (has_spilled && !context_.passes.can_merge(context_.runs, partitions)) {
    spill_held();
    context_.runs = all_runs();
  }
  keep_smallest(context_.runs);
}

// Cuts off the records of sorted runs that are past the limit, if it is not an operator.
void SortedLoads::keep_smallest(std::vector<Run>& runs) {
  const auto& limit = pass_context_.options.query.limit;
  if (!context_.operators && limit) pass_context_.cuts.keep_first(*limit, runs);
}

// Forms the next load, without the records that no later step needs.
void SortedLoads::add_load() {
  keep_smallest(held_.emplace_back(former_.next_load()).parts.front().runs);
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
  std::vector<std::optional<Run>> spilled = spilling_.get();
  for (std::size_t group = 0; group < spilled.size(); ++group)
    if (spilled[group]) add_spilled(group, std::move(*spilled[group]));
}

void SortedLoads::add_spilled(std::size_t group, Run spilled) {
  if (!kept_) spilled.make_read_once();
  spilled_[group].push_back(std::move(spilled));
}

// Returns the runs of a group of inputs in the loads that are held.
std::vector<Run> SortedLoads::held_runs(std::size_t group) const {
  std::vector<Run> held;
  for (const Load& load : held_) append(load.parts[group].runs, held);
  return held;
}

// Returns all runs, in the order of the inputs.
std::vector<Run> SortedLoads::all_runs() const {
  std::vector<Run> all;
  for (std::size_t group = 0; group < spilled_.size(); ++group) {
    append(spilled_[group], all);
    append(held_runs(group), all);
  }
  return all;
}

// Merges the runs of each group in memory into a temporary run.
void SortedLoads::spill_held() {
  for (std::size_t group = 0; group < spilled_.size(); ++group) {
    const std::vector<Run> held = held_runs(group);
    if (held.empty()) continue;
    Run spilled = write(held);
    keep(former_.records(), spilled, held_.back().end);
    add_spilled(group, std::move(spilled));
  }
  held_.clear();
  former_.free_loads();
}

// Writes each part of a load to a temporary run, and frees its memory. Runs while the next load is
// formed.
std::vector<std::optional<Run>> SortedLoads::spill(Load load) {
  std::vector<std::optional<Run>> spilled(load.parts.size());
  for (std::size_t group = 0; group < spilled.size(); ++group)
    if (!load.parts[group].runs.empty()) spilled[group] = write(load.parts[group].runs);
  if (spilled.front()) keep(load.records, *spilled.front(), load.end);
  return spilled;
}

// Merges runs into a temporary run.
Run SortedLoads::write(std::span<const Run> runs) {
  const MergeFormat& format = pass_context_.format;
  pass_context_.progress.add_to_total(records_of(runs) * format.record_bytes());
  const std::filesystem::path& folder = folders_[num_written_++ % folders_.size()];
  return context_.intermediate.merge(
      runs, format.load_operators(), format.load_limit(),
      Writer(kept_ ? kept_->create(folder) : open_nameless(folder), folder));
}

// Keeps the temporary run that was written last, if this sort may be resumed.
void SortedLoads::keep(std::uint64_t records, const Run& run, const InputPosition& end) {
  if (kept_)
    kept_->add({.records = kept_records_ + records, .fingerprint = *run.fingerprint(), .end = end});
}

}  // namespace corank
