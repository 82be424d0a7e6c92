#include "run/unit_cutter.hpp"

#include <tbb/task_arena.h>

#include <algorithm>
#include <cassert>
#include <ranges>
#include <utility>

#include "corank/algorithm/co_rank.hpp"
#include "format/key_order.hpp"
#include "util/math.hpp"
#include "util/parallel_for.hpp"

namespace corank {
namespace {

// A key as the cut compares it: the prefix, and the record for its tail.
template <int W>
struct CutKey {
  Key<W> key;
  const std::byte* record;
};

// The rest of a chunk. `begin` counts from the first record that is in no unit.
struct ChunkRest {
  std::uint64_t begin;
  const std::byte* records;
};

// Returns how many of the `count` > 0 records fit in `room_bytes`.
std::uint64_t fitting(const KeyLayout& layout, const std::byte* records, std::uint64_t count,
                      std::uint64_t room_bytes) {
  assert(count != 0);
  const auto ends = std::views::iota(std::uint64_t{1}, count + 1);
  return static_cast<std::uint64_t>(
      std::ranges::upper_bound(
          ends, room_bytes, {},
          [&](std::uint64_t end) { return bytes_of(layout, records, end).size(); }) -
      ends.begin());
}

const std::byte* record_of(const Chunk& chunk, std::uint64_t index, std::uint32_t record_bytes) {
  assert(index < chunk.count);
  return chunk.records() + index * record_bytes;
}

// Returns whether the segments hold the unit's records and bytes, in the order of the runs and
// without a gap.
[[maybe_unused]] bool covers(const KeyLayout& layout, const WorkUnit& unit) {
  std::uint64_t records = 0, bytes = 0;
  const Segment* before = nullptr;
  for (const Segment& segment : unit.segments) {
    const Chunk& chunk = *segment.chunk;
    if (segment.count == 0 || segment.first + segment.count > chunk.count) return false;
    if (before && chunk.run < before->chunk->run) return false;
    if (before && chunk.run == before->chunk->run &&
        chunk.first + segment.first != before->chunk->first + before->first + before->count)
      return false;
    records += segment.count;
    bytes += bytes_of(layout, chunk, segment.first, segment.count).size();
    before = &segment;
  }
  return records != 0 && records == unit.records && bytes == unit.bytes;
}

}  // namespace

UnitCutter::UnitCutter(ChunkReader& source, const KeyEncoding& encoding, const PassPlan& plan,
                       std::uint64_t at_once)
    : source_(source),
      encoding_(encoding),
      unit_records_(plan.unit_records),
      unit_bytes_(plan.unit_bytes),
      windows_(source.runs()),
      units_at_once_(at_once) {
  assert(unit_records_ != 0 && at_once != 0);
}

const Chunk& UnitCutter::Window::chunk_of(std::uint64_t record) const {
  const auto after = std::ranges::upper_bound(chunks, record, {},
                                              [](const ChunkRef& chunk) { return chunk->first; });
  assert(after != chunks.begin() && record < (*(after - 1))->first + (*(after - 1))->count);
  return **(after - 1);
}

std::optional<WorkUnit> UnitCutter::next() {
  if (cut_ahead_.empty()) cut_units();
  if (cut_ahead_.empty()) return std::nullopt;
  WorkUnit unit{sequence_++, 0, {}, rank_, 0, offset_};
  for (std::uint32_t run = 0; run < windows_.size(); ++run) {
    const std::uint64_t end = cut_ahead_.front()[run];
    if (end != windows_[run].begin) consume(run, end, unit);
  }
  assert(covers(encoding_.layout(), unit));
  rank_ += unit.records;
  offset_ += unit.bytes;
  cut_ahead_.pop_front();
  return unit;
}

// Cuts the next units. If the records of one are longer than was likely, it and those after it are
// cut again, as smaller ones.
void UnitCutter::cut_units() {
  gather(units_at_once_ * unit_records_, units_at_once_ * unit_bytes_);
  if (complete_ == 0) return;
  for (std::uint64_t records = likely_records();;) {
    std::uint64_t bytes_before = 0;
    for (std::vector<std::uint64_t>& ends : cut_at_multiples_of(records)) {
      const std::uint64_t bytes = bytes_before_cut(ends);
      if (bytes - bytes_before > unit_bytes_ && records > 1) {
        if (!cut_ahead_.empty()) return;
        records =
            std::max<std::uint64_t>(std::min(records - 1, scaled(records, unit_bytes_, bytes)), 1);
        break;
      }
      cut_ahead_.push_back(std::move(ends));
      bytes_before = bytes;
    }
    if (!cut_ahead_.empty()) return;
  }
}

// Returns how many records are likely to fit in a unit: about as long as the complete ones.
std::uint64_t UnitCutter::likely_records() const {
  const std::uint64_t records = std::min(complete_, unit_records_);
  if (scaled(records, complete_bytes_, complete_) <= unit_bytes_) return records;
  // Records vary in length, so aim below the bound: a unit that exceeds it is cut twice.
  return std::max<std::uint64_t>(scaled(complete_, unit_bytes_ - unit_bytes_ / 32, complete_bytes_),
                                 1);
}

// Cuts the complete records after every `records` records, side by side, at most units_at_once_
// times; if they are fewer, after all of them.
std::vector<std::vector<std::uint64_t>> UnitCutter::cut_at_multiples_of(
    std::uint64_t records) const {
  std::vector<std::vector<std::uint64_t>> cuts(
      std::clamp<std::uint64_t>(complete_ / records, 1, units_at_once_));
  const auto cut_one = [&](std::uint64_t unit) {
    cuts[unit] = cut(std::min(complete_, (unit + 1) * records));
  };
  if (cuts.size() == 1)
    cut_one(0);
  else
    tbb::this_task_arena::isolate([&] { parallel_for(0, cuts.size(), cut_one); });
  for (std::size_t unit = 1; unit < cuts.size(); ++unit)
    for (std::uint32_t run = 0; run < windows_.size(); ++run)
      // Cuts cross only if a run is out of order.
      if (cuts[unit][run] < cuts[unit - 1][run]) throw RunOutOfOrder(run, cuts[unit - 1][run]);
  return cuts;
}

// Takes chunks until `records` records or `bytes` bytes are complete, or all runs have ended. Takes
// fewer while a pipe has no data, but at least one record.
void UnitCutter::gather(std::uint64_t records, std::uint64_t bytes) {
  const auto lower_on_top = [this](std::uint32_t x, std::uint32_t y) { return sorts_before(y, x); };
  const auto extend = [&](std::uint32_t run) {
    if (!take(run)) return;
    frontier_.push_back(run);
    std::ranges::push_heap(frontier_, lower_on_top);
  };
  if (!started_) {
    started_ = true;
    for (std::uint32_t run = 0; run < windows_.size(); ++run) extend(run);
  }
  while (complete_ < records && complete_bytes_ < bytes) {
    // A pipe without data must not delay complete records, whose buffers other pipes may need.
    if (drained_ && complete_ != 0 && !source_.arrives(*drained_))
      return complete_up_to(*windows_[*drained_].chunks.back());
    if (drained_) extend(*std::exchange(drained_, std::nullopt));
    if (frontier_.empty()) break;
    std::ranges::pop_heap(frontier_, lower_on_top);
    const std::uint32_t run = frontier_.back();
    frontier_.pop_back();
    complete(windows_[run], windows_[run].end);
    drained_ = run;
  }
}

// Counts the records of the last chunk of `window` before `end` as complete.
void UnitCutter::complete(Window& window, std::uint64_t end) {
  const Chunk& chunk = *window.chunks.back();
  assert(window.begin <= window.end && chunk.first + chunk.count == window.end);
  const std::uint64_t from = std::max({window.begin, window.complete_end, chunk.first});
  if (from >= end) return;
  complete_ += end - from;
  complete_bytes_ += bytes_of(encoding_.layout(), chunk, from - chunk.first, end - from).size();
  window.complete_end = end;
}

// Completes the loaded records that sort before the last one of `drained`, the chunk that left the
// heap last.
void UnitCutter::complete_up_to(const Chunk& drained) {
  const KeyLayout layout = encoding_.layout();
  const std::byte* const last = record_of(drained, drained.count - 1, layout.record_bytes);
  for (std::uint32_t run = 0; run < windows_.size(); ++run) {
    Window& window = windows_[run];
    if (run == drained.run || window.chunks.empty()) continue;
    const Chunk& chunk = *window.chunks.back();
    const std::uint64_t from = std::min(std::max(window.begin, chunk.first), window.end);
    const auto records = std::views::iota(from, window.end);
    const auto after = std::ranges::partition_point(records, [&](std::uint64_t record) {
      const std::byte* const at = record_of(chunk, record - chunk.first, layout.record_bytes);
      return run < drained.run ? !record_less(layout, last, at) : record_less(layout, at, last);
    });
    complete(window, from + static_cast<std::uint64_t>(after - records.begin()));
  }
}

// Takes the next chunk of `run`. Returns false at the run's end.
bool UnitCutter::take(std::uint32_t run) {
  const KeyLayout layout = encoding_.layout();
  Window& window = windows_[run];
  ChunkRef chunk = source_.next(run);
  if (!chunk) return false;
  assert(chunk->run == run && chunk->count != 0 && chunk->first == window.end);
  const std::byte* last = chunk->records() + (chunk->count - 1) * layout.record_bytes;
  if (!window.chunks.empty()) {
    const Chunk& chunk_before = *window.chunks.back();
    const std::byte* const before =
        chunk_before.records() + (chunk_before.count - 1) * layout.record_bytes;
    if (record_less(layout, chunk->records(), before))
      throw RunOutOfOrder(layout, *chunk, 0, before);
    if (window.begin == window.end) window.chunks.clear();
  }
  // The ends of chunks steer the read-ahead, so check them here; the rest is checked in the merge.
  if (record_less(layout, last, chunk->records()))
    throw RunOutOfOrder(layout, *chunk, first_descent(layout, chunk->records(), chunk->count));
  window.end = chunk->first + chunk->count;
  window.chunks.push_back(std::move(chunk));
  return true;
}

bool UnitCutter::sorts_before(std::uint32_t run, std::uint32_t other) const {
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

// Returns where each run is cut: the record that follows those among the next `records` records of
// the merge.
std::vector<std::uint64_t> UnitCutter::cut(std::uint64_t records) const {
  const KeyLayout layout = encoding_.layout();
  // One array for all runs, so that a probe misses the cache at most once: at its record.
  std::vector<ChunkRest> rests;
  std::vector<std::size_t> rest_ends;  // of each run in `rests`
  std::vector<std::uint64_t> counts;
  for (const Window& window : windows_) {
    for (const ChunkRef& chunk : window.chunks) {
      const std::uint64_t from = std::max(window.begin, chunk->first);
      assert(from <= chunk->first + chunk->count);
      rests.push_back(
          {from - window.begin, chunk->records() + (from - chunk->first) * layout.record_bytes});
    }
    rest_ends.push_back(rests.size());
    counts.push_back(window.end - window.begin);
  }
  const auto cut_by = [&]<int W>(std::integral_constant<int, W>) {
    const auto probe = [&](std::size_t run, std::uint64_t index) {
      const ChunkRest* rest = rests.data() + rest_ends[run] - 1;
      while (rest->begin > index) --rest;
      const std::byte* record = rest->records + (index - rest->begin) * layout.record_bytes;
      return CutKey<W>{encode<W>(layout, record), record};
    };
    const auto less = [&](const CutKey<W>& x, const CutKey<W>& y) {
      return x.key < y.key ||
             (layout.has_tail() && x.key == y.key && tail_less(layout, x.record, y.record));
    };
    std::vector<std::uint64_t> ends = co_rank(records, counts, probe, less).position;
    for (std::size_t run = 0; run < ends.size(); ++run) ends[run] += windows_[run].begin;
    return ends;
  };
  switch (encoding_.prefix_words()) {
    case 1:
      return cut_by(std::integral_constant<int, 1>{});
    case 2:
      return cut_by(std::integral_constant<int, 2>{});
    default:
      return cut_by(std::integral_constant<int, max_key_words>{});
  }
}

// Returns the bytes of the records that are in no unit and before `ends`, the record of each run.
std::uint64_t UnitCutter::bytes_before_cut(std::span<const std::uint64_t> ends) const {
  std::uint64_t bytes = 0;
  for (std::size_t run = 0; run < windows_.size(); ++run) {
    const Window& window = windows_[run];
    for (const ChunkRef& chunk : window.chunks) {
      const std::uint64_t from = std::max(window.begin, chunk->first);
      const std::uint64_t to = std::min(ends[run], chunk->first + chunk->count);
      if (from < to)
        bytes += bytes_of(encoding_.layout(), *chunk, from - chunk->first, to - from).size();
    }
  }
  return bytes;
}

// Moves the records of `run` before `end` into the unit.
void UnitCutter::consume(std::uint32_t run, std::uint64_t end, WorkUnit& unit) {
  Window& window = windows_[run];
  const KeyLayout layout = encoding_.layout();
  const std::uint64_t completed =
      std::min(end, window.complete_end) - std::min(window.begin, window.complete_end);
  assert(window.begin < end && end <= window.end && completed <= complete_);
  unit.records += end - window.begin;
  complete_ -= completed;
  for (const ChunkRef& chunk : window.chunks) {
    const std::uint64_t from = std::max(window.begin, chunk->first);
    const std::uint64_t to = std::min(end, chunk->first + chunk->count);
    if (from >= to) continue;
    unit.segments.push_back({chunk, from - chunk->first, to - from});
    const std::uint64_t bytes = bytes_of(layout, *chunk, from - chunk->first, to - from).size();
    unit.bytes += bytes;
    const std::uint64_t complete_to = std::min(to, window.complete_end);
    if (from < complete_to)
      complete_bytes_ -= bytes_of(layout, *chunk, from - chunk->first, complete_to - from).size();
  }
  window.begin = end;
  if (end < window.end) {
    const Chunk& chunk = window.chunk_of(end);
    const std::byte* record = chunk.records() + (end - chunk.first) * layout.record_bytes;
    if (end > chunk.first && record_less(layout, record, record - layout.record_bytes))
      throw RunOutOfOrder(layout, chunk, end - chunk.first);
  }
  // The last chunk stays for the comparison with its successor.
  std::erase_if(window.chunks, [&](const ChunkRef& chunk) {
    return chunk->first + chunk->count <= end && chunk != window.chunks.back();
  });
}

std::optional<WorkUnit> Concatenation::next() {
  const KeyLayout layout = encoding_.layout();
  WorkUnit unit{sequence_++, 0, {}, rank_, 0, offset_};
  while (unit.records < unit_records_ && unit.segments.size() < unit_chunks_ &&
         run_ < source_.runs()) {
    if (!chunk_ || taken_ == chunk_->count) {
      chunk_ = source_.next(run_);
      taken_ = 0;
      if (!chunk_) {
        ++run_;
        continue;
      }
    }
    assert(chunk_->run == run_ && taken_ < chunk_->count);
    std::uint64_t count = fitting(layout, chunk_->records() + taken_ * layout.record_bytes,
                                  std::min(chunk_->count - taken_, unit_records_ - unit.records),
                                  unit_bytes_ - unit.bytes);
    if (count == 0 && unit.records != 0) break;
    count = std::max<std::uint64_t>(count, 1);
    unit.segments.push_back({chunk_, taken_, count});
    unit.records += count;
    unit.bytes += bytes_of(layout, *chunk_, taken_, count).size();
    taken_ += count;
    if (unit.bytes > unit_bytes_) break;  // a single record
  }
  if (unit.records == 0) return std::nullopt;
  assert(covers(layout, unit));
  rank_ += unit.records;
  offset_ += unit.bytes;
  return unit;
}

}  // namespace corank
