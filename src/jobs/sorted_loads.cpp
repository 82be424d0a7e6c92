#include "jobs/sorted_loads.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "jobs/merge_output.hpp"

namespace corank {

SortedLoads::SortedLoads(const Context& context, std::vector<Run> inputs, KeptRuns* kept,
                         const Destination& output)
    : context_(context),
      pass_context_(context.passes.context()),
      kept_(kept),
      folders_(folders_for_passes(pass_context_.options, output)),
      former_(resume(std::move(inputs)), pass_context_, context.budget, context.passes.totals()) {
  check_space(output);
}

SortedLoads::SortedLoads(const Context& context, std::vector<Run> inputs,
                         std::uint64_t output_bytes)
    : context_(context),
      pass_context_(context.passes.context()),
      former_(std::move(inputs), pass_context_, context.budget, context.passes.totals(),
              output_bytes) {}

// Puts the runs that a stopped sort left into the list. Returns the inputs without their records.
std::vector<Run> SortedLoads::resume(std::vector<Run> inputs) {
  if (!kept_) return inputs;
  context_.list.runs =
      kept_->open(pass_context_.format, pass_context_.options, pass_context_.fingerprint);
  for (const KeptRun& run : kept_->runs()) {
    context_.list.fingerprints.push_back(run.fingerprint);
    kept_records_ = run.records;
  }
  return kept_->runs().empty() ? inputs : after(kept_->runs().back().end, std::move(inputs));
}

void SortedLoads::check_space(const Destination& output) const {
  const Options& options = pass_context_.options;
  // A query may leave any number of records, so that their size is unknown.
  if (context_.operators || !operator_names(options.query).empty()) return;
  corank::check_space(
      folders_,
      {.temporary_bytes = former_.spilled_bytes(),
       .late_bytes =
           kept_ || options.temporary_compression ? former_.spilled_bytes() : former_.late_bytes(),
       .output_bytes = former_.input_bytes()},
      output);
}

void SortedLoads::form(std::size_t partitions) {
  try {
    for (add_load(); !former_.at_end(); add_load()) make_room();
  } catch (...) {
    spilling_ = {};  // waits: temporary runs are kept only while the output is locked
    throw;
  }
  end_spill();
  former_.finish();
  const std::size_t num_spilled = context_.list.runs.size();
  list_held();
  if (num_spilled != 0 && !context_.passes.can_merge(context_.list.runs, partitions))
    spill_listed(num_spilled);
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
  load.is_whole = !keep_smallest(load.runs);
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
  spilling_ = std::async(std::launch::async, [this, load = std::move(held_.front()),
                                              number = context_.list.runs.size()]() mutable {
    return spill(std::move(load), number);
  });
  held_.pop_front();
}

void SortedLoads::end_spill() {
  if (spilling_.valid()) list_spilled(spilling_.get());
}

void SortedLoads::list_spilled(TemporaryRun spilled) {
  if (!kept_) spilled.run.make_read_once();
  context_.list.runs.push_back(std::move(spilled.run));
  context_.list.fingerprints.push_back(spilled.fingerprint);
}

void SortedLoads::list_held() {
  RunList& list = context_.list;
  for (const Load& load : held_) {
    std::ranges::copy(load.runs, std::back_inserter(list.runs));
    list.fingerprints.push_back(load.fingerprint);  // of the whole load
    list.fingerprints.resize(list.runs.size());
    list.has_all_fingerprints = list.has_all_fingerprints && load.is_whole;
  }
}

// Merges the runs from `first` on, which are those of the loads in memory, into a temporary run.
void SortedLoads::spill_listed(std::size_t first) {
  auto& [runs, fingerprints, has_all_fingerprints] = context_.list;
  TemporaryRun spilled = write(std::span(runs).subspan(first),
                               std::span(fingerprints).subspan(first), has_all_fingerprints, first);
  keep(former_.records(), spilled.fingerprint, held_.back().end);
  runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(first), runs.end());
  fingerprints.resize(first);
  list_spilled(std::move(spilled));
  held_.clear();
  former_.free_loads();
}

// Writes a load to a temporary run, and frees its memory. Runs while the next load is formed.
TemporaryRun SortedLoads::spill(Load load, std::size_t number) {
  std::vector<std::uint64_t> fingerprints(load.runs.size());
  fingerprints.front() = load.fingerprint;
  TemporaryRun spilled = write(load.runs, fingerprints, load.is_whole, number);
  keep(load.records, spilled.fingerprint, load.end);
  return spilled;
}

// Merges runs into the temporary run of this number.
TemporaryRun SortedLoads::write(std::span<const Run> runs,
                                std::span<const std::uint64_t> fingerprints,
                                bool has_all_fingerprints, std::size_t number) {
  const MergeFormat& format = pass_context_.format;
  pass_context_.progress.add_to_total(records_of(runs) * format.record_bytes());
  const std::filesystem::path& folder = folders_[number % folders_.size()];
  return context_.intermediate.merge(
      runs, fingerprints, has_all_fingerprints, format.load_operators(), format.load_limit(),
      Writer(kept_ ? kept_->create(folder) : open_nameless(folder), folder));
}

// Keeps the temporary run that was written last, if this sort may be resumed.
void SortedLoads::keep(std::uint64_t records, std::uint64_t fingerprint, const InputPosition& end) {
  if (kept_)
    kept_->add({.records = kept_records_ + records, .fingerprint = fingerprint, .end = end});
}

}  // namespace corank
