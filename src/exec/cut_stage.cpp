#include "exec/cut_stage.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "corank/error.hpp"
#include "util/math.hpp"
#include "util/worker_allowance.hpp"

namespace corank {
namespace {

// Returns how many threads read chunks. Tuned by bench-files; see docs/tuning.md.
unsigned reading_threads(const Pass& pass, const PassFacts& facts) {
  // Decompression is work for all cores.
  if (facts.has_streams) return std::max(pass.threads, 2u);
  const bool in_place = std::ranges::all_of(pass.runs, is_in_place);
  const Backend* const reader = pass.reader();
  // Beside a device, cores have little else to do than to copy from the page cache.
  if (!in_place && reader && !reader->computes()) return std::clamp(pass.threads * 3 / 4, 2u, 12u);
  // The more threads, the more of them wait, and waking one costs more than its chunk.
  const bool hands_over = in_place && !pass.counts_bytes && facts.backend_reads;
  return hands_over && reader->computes() ? 2 : std::clamp(pass.threads / 2, 2u, 8u);
}

// Max threads for which one thread finds the records of all runs in memory: handing chunks from
// thread to thread costs more then. Tuned by bench-sort; see docs/tuning.md.
constexpr unsigned max_framed_for_threads = 2;

Reading reading_of(const Pass& pass, const PassFacts& facts) {
  return {pass.format, pass.plan, pass.backend ? ReadOrder::forecast : ReadOrder::one_by_one,
          facts.backend_reads ? nullptr : pass.fingerprint, pass.threads <= max_framed_for_threads};
}

BufferPool chunk_pool(const Pass& pass, const PassFacts& facts) {
  const PinMemory pin = pass.reader() ? pass.reader()->pin_memory() : nullptr;
  // For variable-length records that stay where they are, a chunk holds only prefix references,
  // which fill whole pages.
  const bool holds_only_refs =
      pass.format.ref_bytes() != 0 && std::ranges::all_of(pass.runs, [](const Run& run) {
        return !run.is_stream() && run.in_place(0);
      });
  const bool huge = holds_only_refs || std::ranges::any_of(pass.runs, &Run::is_direct);
  return BufferPool(holds_only_refs
                        ? round_up(pass.plan.chunk_records * pass.format.ref_bytes(), page_bytes())
                        : pass.plan.chunk_bytes,
                    std::min(pass.plan.chunks, facts.chunks_in_runs), pin,
                    huge ? BufferPool::Pages::huge : BufferPool::Pages::small);
}

// Units of runs in memory hold at most prefix references, so several can be cut ahead, side by
// side; that pays because cuts mostly wait for memory.
bool cuts_ahead(const Pass& pass) {
  return pass.backend && std::ranges::all_of(pass.runs, &Run::is_in_memory);
}

}  // namespace

CutStage::CutStage(const Pass& pass, const PassFacts& facts, PassTotals& totals)
    : pass_(pass),
      facts_(facts),
      totals_(totals),
      chunk_pool_(chunk_pool(pass, facts)),
      reader_(make_producers(pass.runs, pass.counts_bytes, reading_of(pass, facts), pass.stop),
              reading_of(pass, facts), chunk_pool_, reading_threads(pass, facts), pass.stop,
              {pass.trace, "read", pass.partition}),
      cutter_(reader_, pass.format.keys(), pass.plan, cuts_ahead(pass) ? units_cut_at_once : 1),
      // A unit of whole chunks begins and ends within one.
      concatenation_(reader_, pass.format.keys(), pass.plan,
                     pass.plan.unit_records / pass.plan.chunk_records + 2),
      records_in_units_(pass.runs.size()) {
  if (!cuts_ahead(pass)) return;
  ahead_.emplace(1, [this](CutJob&, unsigned) { cut_ahead(); });
  for (unsigned job = 0; job <= max_units_ready; ++job) ahead_->submit({});
}

std::optional<WorkUnit> CutStage::next() {
  if (!ahead_) totals_.cut_for_merge += (TraceClock::now() - cut_until_).count();
  std::optional<WorkUnit> unit = ahead_ ? take_ahead() : cut();
  cut_until_ = TraceClock::now();
  if (unit && facts_.backend_reads) check_gapless(*unit);
  return unit;
}

std::optional<WorkUnit> CutStage::cut() {
  Stopwatch cutting(totals_.cut, {pass_.trace, "cut", pass_.partition});
  return pass_.backend ? cutter_.next() : concatenation_.next();
}

// Cuts the next unit, unless the last one was cut.
void CutStage::cut_ahead() {
  std::call_once(memory_left_, leave_memory_to_thread);
  if (const auto lock = ahead_->lock(); !ready_.empty() && ready_.back().is_last()) return;
  Cut next;
  try {
    next.unit = cut();
  } catch (...) {
    next.failure = std::current_exception();
  }
  const auto lock = ahead_->lock();
  ready_.push_back(std::move(next));
}

// Takes the next of the units that are cut ahead, and has another one cut. A failure comes after
// the units before it.
std::optional<WorkUnit> CutStage::take_ahead() {
  auto lock = ahead_->lock();
  ahead_->wait(lock, pass_.stop, [&] { return !ready_.empty(); });
  Cut next = std::move(ready_.front());
  if (next.failure) std::rethrow_exception(next.failure);
  if (next.is_last()) return std::nullopt;
  ready_.pop_front();
  ahead_->submit({}, lock);
  return std::move(next.unit);
}

// A backend hashes the records of its units, so a record in two units or in none would go unseen.
void CutStage::check_gapless(const WorkUnit& unit) {
  for (const Segment& segment : unit.segments) {
    std::uint64_t& next = records_in_units_[segment.chunk->run];
    const std::uint64_t first = segment.chunk->first + segment.first;
    if (first != next)
      throw Corrupted(fmt::format("{}: record {} was to be merged where record {} is the next",
                                  pass_.runs[segment.chunk->run].path().string(), first, next));
    next += segment.count;
  }
}

void CutStage::check_all_read() const {
  if (pass_.counts_bytes) return;
  for (std::uint32_t run = 0; run < pass_.runs.size(); ++run)
    if (reader_.taken(run) != pass_.runs[run].records())
      throw Corrupted(fmt::format("{}: {} of its {} records were read",
                                  pass_.runs[run].path().string(), reader_.taken(run),
                                  pass_.runs[run].records()));
}

void CutStage::check_complete() const {
  check_all_read();
  if (!facts_.backend_reads) return;
  for (std::size_t run = 0; run < pass_.runs.size(); ++run)
    if (records_in_units_[run] != pass_.runs[run].records())
      throw Corrupted(fmt::format("{}: {} of its {} records were merged",
                                  pass_.runs[run].path().string(), records_in_units_[run],
                                  pass_.runs[run].records()));
}

void CutStage::add_to_totals() {
  if (ahead_) totals_.cut_for_merge += ahead_->idle().load();
  totals_.records_skipped += reader_.skipped();
  totals_.bytes_read += reader_.bytes_read();
  totals_.read += reader_.busy().load();
  totals_.read_for_cut += reader_.idle().load();
  totals_.cut_for_read += reader_.wait().load();
  totals_.cut -= reader_.wait().load();
}

}  // namespace corank
