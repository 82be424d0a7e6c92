#include "jobs/intermediate_passes.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Max memory to decompress a frame of a temporary file, which holds 1 MiB.
constexpr std::uint64_t temporary_decoder_bytes = 2 * MiB;

// Returns the contents of a temporary file as a run, and leaves the writer empty. The file holds
// `content_bytes` before compression.
Run run_of(Writer& temporary, std::uint32_t record_bytes, std::uint64_t content_bytes) {
  if (temporary.compressor())
    return Run::compressed(temporary.take_file(), temporary.path(), content_bytes);
  assert(temporary.bytes() % record_bytes == 0);
  const std::uint64_t records = temporary.bytes() / record_bytes;
  return Run(temporary.take_file(), temporary.path(), record_bytes, records);
}

}  // namespace

IntermediatePasses::IntermediatePasses(std::vector<Run>& runs, PassRunner& passes, Budget& budget)
    : runs_(runs), passes_(passes), budget_(budget) {
  const auto& compression = passes.context().options.temporary_compression;
  if (!compression) return;
  budget.expect_streams(temporary_decoder_bytes);
  compressing_threads_ = budget.reserve(*compression);
}

std::vector<IntermediatePass> IntermediatePasses::plan(std::uint64_t widest) const {
  if (passes_.context().options.copy_only || std::ranges::any_of(runs_, &Run::is_in_memory))
    return {};
  std::vector<std::uint64_t> lengths;
  for (const Run& run : runs_) lengths.push_back(run.records());
  return plan_intermediate_passes(lengths, widest);
}

void IntermediatePasses::run(std::uint64_t widest, const std::filesystem::path& folder) {
  const PassRunner::Context& context = passes_.context();
  const std::vector<IntermediatePass> passes = plan(widest);
  if (passes.empty()) return;
  std::uint64_t again = 0;
  for (const IntermediatePass& pass : passes) again += pass.records * context.format.record_bytes();
  context.progress.add_to_total(again);
  const bool has_pipes = std::ranges::any_of(runs_, &Run::is_pipe);
  warn(context.options.notice,
       "the memory budget leaves {} bytes for buffers, which merge {} runs at once, not {}: {} "
       "passes, which write {} bytes more, to {}; a larger {} needs fewer",
       budget_.bytes(), widest, runs_.size(), passes.size() + 1,
       has_pipes ? "an unknown number of"
                 : fmt::format("{}{}", context.format.has_streams() ? "about " : "", again),
       folder, Setting::memory);
  for (const IntermediatePass& pass : passes) {
    const bool has_last_run = pass.first + pass.count == runs_.size();
    const auto first = static_cast<std::ptrdiff_t>(pass.first);
    const auto end = first + static_cast<std::ptrdiff_t>(pass.count);
    assert(pass.count >= 1 && pass.first + pass.count <= runs_.size());
    runs_[pass.first] =
        merge(std::span(runs_).subspan(pass.first, pass.count),
              context.format.intermediate_operators(pass.count, has_last_run),
              std::numeric_limits<std::uint64_t>::max(), Writer(open_nameless(folder), folder));
    runs_[pass.first].make_read_once();
    runs_.erase(runs_.begin() + first + 1, runs_.begin() + end);
  }
}

Run IntermediatePasses::merge(std::span<const Run> runs, const PassOperators& operators,
                              std::uint64_t limit, Writer temporary) {
  const PassRunner::Context& context = passes_.context();
  if (const auto& compression = context.options.temporary_compression)
    temporary.compress(*compression, compressing_threads_, {context.trace, "compress"});
  const Partition all{0, records_of(runs)};
  PassTotals& totals = passes_.totals();
  const std::uint64_t merged_before = totals.records, written_before = totals.records_written;
  const std::uint64_t bytes_before = totals.bytes_written;
  const std::uint64_t fingerprint = passes_.run({.runs = runs,
                                                 .partitions = {&all, 1},
                                                 .writers = {&temporary, 1},
                                                 .in_place = {},
                                                 .operators = operators,
                                                 .is_last = false,
                                                 .limit = limit});
  for (const Run& run : runs) run.check_unchanged();
  records_ += operators ? totals.records_written - written_before : totals.records - merged_before;
  Run run = run_of(temporary, context.format.record_bytes(), totals.bytes_written - bytes_before);
  run.set_fingerprint(fingerprint);
  return run;
}

}  // namespace corank
