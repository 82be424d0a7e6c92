#include "cutter.hpp"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "corank/co_rank.hpp"

namespace corank {
namespace {

// A key as the cut compares it: the prefix, and the record where the tail is looked up.
template <int W>
struct Probe {
  Key<W> key;
  const std::byte* record;
};

// What is left of a chunk: from `begin` on, counted from the first record that no unit has.
struct Stretch {
  std::uint64_t begin;
  const std::byte* records;
};

}  // namespace

Cutter::Cutter(Reader& reader, std::span<const Run> runs, const KeyEncoding& encoding,
               std::uint64_t unit_records)
    : reader_(reader),
      runs_(runs),
      encoding_(encoding),
      unit_records_(unit_records),
      windows_(runs.size()),
      units_at_once_(std::ranges::all_of(
                         runs, [](const Run& run) { return run.in_place(0) && !run.is_mapped(); })
                         ? 4
                         : 1) {}

const Chunk& Cutter::Window::chunk_of(std::uint64_t record) const {
  const auto after = std::ranges::upper_bound(chunks, record, {},
                                              [](const ChunkRef& chunk) { return chunk->first; });
  return **(after - 1);
}

std::optional<WorkUnit> Cutter::next() {
  if (cut_ahead_.empty()) cut_units();
  if (cut_ahead_.empty()) return std::nullopt;
  WorkUnit unit{sequence_++, 0, {}, rank_};
  for (std::uint32_t run = 0; run < runs_.size(); ++run) {
    const std::uint64_t count = cut_ahead_.front()[run];
    unit.records += count;
    if (count != 0) consume(run, count, unit);
  }
  rank_ += unit.records;
  cut_ahead_.pop_front();
  return unit;
}

// Runs in memory need no chunks, so that the records of several units can be at hand at once: their
// cuts, which wait for memory, are made side by side.
void Cutter::cut_units() {
  gather(units_at_once_ * unit_records_);
  const std::uint64_t units =
      std::clamp<std::uint64_t>(complete_ / unit_records_, complete_ != 0 ? 1 : 0, units_at_once_);
  cut_ahead_.resize(units);
  const auto cut_unit = [&](std::uint64_t unit) {
    cut_ahead_[unit] = cut(std::min(complete_, (unit + 1) * unit_records_));
  };
  if (units == 1)
    cut_unit(0);
  else
    tbb::this_task_arena::isolate([&] { tbb::parallel_for(std::uint64_t{0}, units, cut_unit); });
  for (std::uint64_t unit = units; unit-- > 1;)
    for (std::uint32_t run = 0; run < runs_.size(); ++run) {
      const std::uint64_t before = cut_ahead_[unit - 1][run];
      // Only the cuts of a run that is out of order cross.
      if (cut_ahead_[unit][run] < before) throw RunDisorder(run, windows_[run].begin + before);
      cut_ahead_[unit][run] -= before;
    }
}

// Takes chunks until so many records are complete, or all.
void Cutter::gather(std::uint64_t records) {
  const auto lower_on_top = [this](std::uint32_t x, std::uint32_t y) { return sorts_before(y, x); };
  const auto extend = [&](std::uint32_t run) {
    take(run);
    frontier_.push_back(run);
    std::ranges::push_heap(frontier_, lower_on_top);
  };
  if (!started_) {
    started_ = true;
    for (std::uint32_t run = 0; run < runs_.size(); ++run)
      if (runs_[run].records() != 0) extend(run);
  }
  while (complete_ < records) {
    if (drained_) extend(*std::exchange(drained_, std::nullopt));
    if (frontier_.empty()) break;
    std::ranges::pop_heap(frontier_, lower_on_top);
    const std::uint32_t run = frontier_.back();
    frontier_.pop_back();
    Window& window = windows_[run];
    complete_ += window.end - std::max(window.begin, window.complete_end);
    window.complete_end = window.end;
    if (window.end < runs_[run].records()) drained_ = run;
  }
}

void Cutter::take(std::uint32_t run) {
  const KeyLayout layout = encoding_.layout();
  Window& window = windows_[run];
  ChunkRef chunk = reader_.next(run);
  const std::byte* last = chunk->records() + (chunk->count - 1) * layout.record_bytes;
  if (!window.chunks.empty()) {
    const Chunk& before = *window.chunks.back();
    if (record_less(layout, chunk->records(),
                    before.records() + (before.count - 1) * layout.record_bytes))
      throw RunDisorder(run, chunk->first);
    if (window.begin == window.end) window.chunks.clear();
  }
  // Only the ends of chunks steer the reading, so they must be right before the rest is checked.
  if (record_less(layout, last, chunk->records()))
    throw RunDisorder(run, chunk->first + chunk->count - 1);
  window.end = chunk->first + chunk->count;
  window.chunks.push_back(std::move(chunk));
}

bool Cutter::sorts_before(std::uint32_t run, std::uint32_t other) const {
  const Chunk& x = *windows_[run].chunks.back();
  const Chunk& y = *windows_[other].chunks.back();
  if (!(x.last_key == y.last_key)) return x.last_key < y.last_key;
  if (encoding_.has_tail()) {
    const KeyLayout layout = encoding_.layout();
    const std::byte* x_last = x.records() + (x.count - 1) * layout.record_bytes;
    const std::byte* y_last = y.records() + (y.count - 1) * layout.record_bytes;
    if (tail_less(layout, x_last, y_last)) return true;
    if (tail_less(layout, y_last, x_last)) return false;
  }
  return run < other;
}

std::vector<std::uint64_t> Cutter::cut(std::uint64_t records) const {
  const KeyLayout layout = encoding_.layout();
  // Side by side, so that a probe misses the cache at most once: at its record.
  std::vector<Stretch> stretches;
  std::vector<std::size_t> ends;  // of each run's stretches
  std::vector<std::uint64_t> counts;
  for (const Window& window : windows_) {
    for (const ChunkRef& chunk : window.chunks) {
      const std::uint64_t from = std::max(window.begin, chunk->first);
      stretches.push_back(
          {from - window.begin, chunk->records() + (from - chunk->first) * layout.record_bytes});
    }
    ends.push_back(stretches.size());
    counts.push_back(window.end - window.begin);
  }
  const auto co_rank_by = [&]<int W>(std::integral_constant<int, W>) {
    const auto probe = [&](std::size_t run, std::uint64_t index) {
      const Stretch* stretch = stretches.data() + ends[run] - 1;
      while (stretch->begin > index) --stretch;
      const std::byte* record = stretch->records + (index - stretch->begin) * layout.record_bytes;
      return Probe<W>{encode<W>(layout, record), record};
    };
    const auto less = [&](const Probe<W>& x, const Probe<W>& y) {
      return x.key < y.key ||
             (layout.has_tail() && x.key == y.key && tail_less(layout, x.record, y.record));
    };
    return co_rank(records, counts, probe, less).position;
  };
  switch (encoding_.prefix_words()) {
    case 1:
      return co_rank_by(std::integral_constant<int, 1>{});
    case 2:
      return co_rank_by(std::integral_constant<int, 2>{});
    default:
      return co_rank_by(std::integral_constant<int, max_key_words>{});
  }
}

void Cutter::consume(std::uint32_t run, std::uint64_t records, WorkUnit& unit) {
  Window& window = windows_[run];
  const std::uint64_t end = window.begin + records;
  complete_ -= std::min(end, window.complete_end) - std::min(window.begin, window.complete_end);
  for (const ChunkRef& chunk : window.chunks) {
    const std::uint64_t from = std::max(window.begin, chunk->first);
    const std::uint64_t to = std::min(end, chunk->first + chunk->count);
    if (from < to) unit.segments.push_back({chunk, from - chunk->first, to - from});
  }
  window.begin = end;
  if (end < window.end) {
    const Chunk& chunk = window.chunk_of(end);
    const KeyLayout layout = encoding_.layout();
    const std::byte* record = chunk.records() + (end - chunk.first) * layout.record_bytes;
    if (end > chunk.first && record_less(layout, record, record - layout.record_bytes))
      throw RunDisorder(run, end);
  }
  // The last chunk stays for the comparison with its successor.
  std::erase_if(window.chunks, [&](const ChunkRef& chunk) {
    return chunk->first + chunk->count <= end && chunk != window.chunks.back();
  });
}

std::optional<WorkUnit> Concatenation::next() {
  WorkUnit unit{sequence_++, 0, {}, rank_};
  while (unit.records < unit_records_ && unit.segments.size() < unit_chunks_ &&
         run_ < runs_.size()) {
    if (taken_ == runs_[run_].records()) {
      ++run_;
      taken_ = 0;
      chunk_.reset();
      continue;
    }
    if (!chunk_ || taken_ == chunk_->first + chunk_->count) chunk_ = reader_.next(run_);
    const std::uint64_t first = taken_ - chunk_->first;
    const std::uint64_t count = std::min(chunk_->count - first, unit_records_ - unit.records);
    unit.segments.push_back({chunk_, first, count});
    unit.records += count;
    taken_ += count;
  }
  if (unit.records == 0) return std::nullopt;
  rank_ += unit.records;
  return unit;
}

}  // namespace corank
