#include "jobs/sorted_loads.hpp"

#include <algorithm>
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
  std::vector<Run>& runs = context_.list.runs;
  std::size_t num_spilled = runs.size();
  for (add_load(); !former_.at_end(); add_load()) spill_load(num_spilled++);
  if (const std::size_t held = num_held(); held != 0 && held > context_.budget.widest(partitions)) {
    spill_load(num_spilled);
    former_.free_load();
  }
  keep_smallest(runs);
}

// Returns how many runs need memory for chunks in a merge. Those in memory do only if they count
// bytes and others are in files.
std::size_t SortedLoads::num_held() const {
  const std::vector<Run>& runs = context_.list.runs;
  const std::size_t in_memory = std::ranges::count(runs, true, &Run::is_in_memory);
  const bool all_are_held = pass_context_.format.counts_bytes() && in_memory != runs.size();
  return all_are_held ? runs.size() : runs.size() - in_memory;
}

// Cuts off the records of sorted runs that are past the limit, if it is not an operator.
void SortedLoads::keep_smallest(std::vector<Run>& runs) {
  const auto& limit = pass_context_.options.query.limit;
  if (context_.operators || !limit) return;
  const std::uint64_t records = records_of(runs);
  pass_context_.cuts.keep_first(*limit, runs);
  if (records_of(runs) != records) context_.list.has_all_fingerprints = false;
}

// Adds the runs of the next load, without the records that no later step needs.
void SortedLoads::add_load() {
  RunList& list = context_.list;
  std::vector<Run> load = former_.next_load();
  keep_smallest(load);
  std::ranges::move(load, std::back_inserter(list.runs));
  list.fingerprints.push_back(former_.fingerprint());  // of the whole load
  list.fingerprints.resize(list.runs.size());
}

// Merges the load, the runs from `first` on, into a temporary run.
void SortedLoads::spill_load(std::size_t first) {
  RunList& list = context_.list;
  const MergeFormat& format = pass_context_.format;
  const std::size_t count = list.runs.size() - first;
  const std::uint64_t records = records_of(std::span(list.runs).subspan(first));
  pass_context_.progress.add_to_total(records * format.record_bytes());
  const std::filesystem::path& folder = folders_[first % folders_.size()];
  context_.intermediate.run({first, count, records}, format.load_operators(), format.load_limit(),
                            Writer(kept_ ? kept_->create(folder) : open_nameless(folder), folder));
  if (kept_)
    kept_->add({.records = kept_records_ + former_.records(),
                .fingerprint = list.fingerprints[first],
                .end = former_.position()});
  else
    list.runs[first].make_read_once();
}

}  // namespace corank
