#include "merge/parallel_merger.hpp"

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "corank/algorithm/co_rank.hpp"
#include "format/key_words.hpp"
#include "util/math.hpp"
#include "util/parallel_for.hpp"

namespace corank {
namespace {

// Minimum bytes per tile; smaller tiles cost too much to cut.
constexpr std::uint64_t min_tile_bytes = MiB;

// One merge, as tiles that threads merge independently.
class TiledMerge {
 public:
  // `keys` and `runs` must outlive the merge. `sink` and `sum` may be null.
  TiledMerge(const detail::KeyWords& keys, std::span<const SortedSpan> runs, std::byte* out,
             UnitSink* sink, FingerprintSum sum)
      : keys_(keys), runs_(runs), out_(out), sink_(sink), sum_(sum) {
    for (const SortedSpan& run : runs) counts_.push_back(run.count);
  }

  std::uint64_t records() const { return std::reduce(counts_.begin(), counts_.end()); }

  // Cuts the output into tiles, in parallel: tile t begins at ranks[t] and ends at ranks[t + 1].
  // Tells the sink where each tile is merged to.
  void cut(std::span<const std::uint64_t> ranks) {
    cuts_.resize(ranks.size());
    cuts_.front() = std::vector<std::uint64_t>(runs_.size());
    cuts_.back() = counts_;
    parallel_for(1, tiles(), [&](std::uint64_t t) { cuts_[t] = cut_at(ranks[t]); });
    if (!sink_) return;
    std::vector<std::span<std::byte>> places;
    for (std::uint64_t t = 0; t < tiles(); ++t) places.emplace_back(place(t), place(t + 1));
    sink_->begin(places);
  }

  // Merges a tile. Thread-safe for different tiles, each with the merger of its thread.
  void merge_tile(std::uint64_t t, TileMerger& merger) {
    const std::vector<SortedSpan> segments = segments_of(t);
    TileSink* const sink = sink_ ? &sink_->tile(t) : nullptr;
    if (ordered_) {
      const auto read = merger.merge(segments, place(t), sink, sum_);
      if (read)
        fingerprint_ += *read;
      else
        ordered_ = false;
    }
    if (sink) sink->finish();
  }

  // Returns the sum of the merged tiles' fingerprints; nothing if a run is out of order.
  std::optional<std::uint64_t> fingerprint() const {
    if (!ordered_) return std::nullopt;
    return fingerprint_;
  }

 private:
  struct Probe {
    std::uint64_t word;
    const std::byte* record;
  };

  std::uint64_t tiles() const { return cuts_.size() - 1; }

  // Returns how many of the first `rank` records each run contributes.
  std::vector<std::uint64_t> cut_at(std::uint64_t rank) const {
    const auto probe = [&](std::size_t run, std::uint64_t index) {
      Probe found{0, runs_[run].records + index * keys_.record_bytes()};
      keys_.read(0, found.record, 1, &found.word);
      return found;
    };
    const auto less = [&](const Probe& a, const Probe& b) {
      return a.word < b.word ||
             (a.word == b.word && keys_.words() > 1 && keys_.less(a.record, b.record));
    };
    return co_rank(rank, counts_, probe, less).position;
  }

  // Returns the place of tile `t` in the output; for the number of tiles, the end of the output.
  std::byte* place(std::uint64_t t) const {
    std::byte* at = out_;
    for (std::size_t r = 0; r < runs_.size(); ++r)
      if (cuts_[t][r] != 0) at += bytes_of(keys_, runs_[r].records, cuts_[t][r]).size();
    return at;
  }

  // Returns the tile's part of each run, unless it is empty, and passes it to the sink.
  std::vector<SortedSpan> segments_of(std::uint64_t t) {
    std::vector<SortedSpan> segments;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const std::uint64_t begin = cuts_[t][r], end = cuts_[t + 1][r];
      if (end < begin) ordered_ = false;  // only the cuts of unsorted runs can cross
      if (end <= begin) continue;
      const SortedSpan& segment =
          segments.emplace_back(SortedSpan{runs_[r].records + begin * keys_.record_bytes(),
                                           end - begin, begin != 0 || runs_[r].predecessor});
      if (sink_) sink_->add_segment(t, r, segment.records, segment.count);
    }
    return segments;
  }

  const detail::KeyWords& keys_;
  std::span<const SortedSpan> runs_;
  std::vector<std::uint64_t> counts_;
  std::byte* out_;
  UnitSink* sink_;
  FingerprintSum sum_;
  std::vector<std::vector<std::uint64_t>> cuts_;  // positions in the runs where each tile begins
  std::atomic<bool> ordered_ = true;
  std::atomic<std::uint64_t> fingerprint_ = 0;
};

}  // namespace

ParallelMerger::ParallelMerger(const detail::KeyWords& keys, Output output, unsigned threads,
                               unsigned callers)
    : keys_(keys),
      output_(output),
      threads_(threads),
      callers_(callers),
      arena_(static_cast<int>(threads)),
      mergers_([this] { return make_tile_merger(keys_, output_); }) {
  assert(threads != 0 && callers != 0);
}

std::optional<std::uint64_t> ParallelMerger::merge(std::span<const SortedSpan> runs, std::byte* out,
                                                   UnitSink* sink, FingerprintSum sum) {
  TiledMerge merge(keys_, runs, out, sink, sum);
  const std::vector<std::uint64_t> ranks = tile_ranks(merge.records(), runs.size());
  const std::uint64_t tiles = ranks.size() - 1;
  // Tiles are taken in order, so that the smallest come last.
  std::atomic<std::uint64_t> next = 0;
  const auto merge_tiles = [&] {
    TileMerger& merger = *mergers_.local();
    for (std::uint64_t t = next++; t < tiles; t = next++) merge.merge_tile(t, merger);
  };
  // A single tile is merged by the caller: threads that wait for a slot of the arena, or migrate
  // between the arenas of several mergers, cost more than the merge.
  if (tiles == 1) {
    merge.cut(ranks);
    merge_tiles();
    return merge.fingerprint();
  }
  arena_.execute([&] {
    merge.cut(ranks);
    parallel_for(0, std::min<std::uint64_t>(tiles, threads_),
                 [&](std::uint64_t) { merge_tiles(); });
  });
  return merge.fingerprint();
}

// Returns the rank at which each tile begins, and the end of the last one. Tiles shrink towards the
// end, so that a slow or late thread does not keep the others waiting. Cutting costs O(k), so many
// runs mean fewer tiles. If every thread has a merge of its own, the merge is a single tile, since
// cutting gains nothing. Tuned by bench-cpu; see docs/tuning.md.
std::vector<std::uint64_t> ParallelMerger::tile_ranks(std::uint64_t records,
                                                      std::uint64_t runs) const {
  std::vector<std::uint64_t> ranks{0};
  if (threads_ > callers_) {
    const std::uint64_t least = std::max(
        {min_tile_bytes / bytes_to_merge(keys_),
         std::clamp(records / (2 * threads_), 64 * runs, 1024 * runs), records / (32 * threads_)});
    // A tile is two thirds of a thread's share of the remaining records.
    std::uint64_t left = records;
    for (std::uint64_t tile; left > 2 * least; left -= tile) {
      tile = std::max(least, 2 * left / (3 * threads_));
      ranks.push_back(ranks.back() + tile);
    }
    // One last tile of that size might be the largest of those that all threads wait for.
    if (left > least) ranks.push_back(ranks.back() + left / 2);
  }
  ranks.push_back(records);
  assert(std::ranges::is_sorted(ranks) && ranks.back() == records);
  return ranks;
}

namespace detail {

unsigned thread_count(unsigned threads) {
  // TBB rejects more threads than this, with a message on standard error.
  const auto most = static_cast<unsigned>(
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
  return threads != 0 ? std::min(threads, most) : most;
}

void run_parallel(std::uint64_t tasks, unsigned threads,
                  const std::function<void(std::uint64_t)>& task) {
  tbb::task_arena arena(static_cast<int>(thread_count(threads)));
  arena.execute([&] { parallel_for(0, tasks, task); });
}

void merge_by_words(std::span<const std::span<const std::byte>> runs, const KeyWords& keys,
                    std::byte* out, unsigned threads) {
  std::vector<SortedSpan> spans;
  std::uint64_t bytes = 0;
  for (const auto& run : runs) {
    assert(run.size() % keys.record_bytes() == 0);
    bytes += run.size();
    if (!run.empty()) spans.push_back({run.data(), run.size() / keys.record_bytes(), false});
  }
  if (!ParallelMerger(keys, output_to_rest(bytes), thread_count(threads)).merge(spans, out))
    throw_unsorted();
}

void throw_unsorted() {
  throw std::invalid_argument("corank::multiway_merge: a run is not sorted");
}

void throw_not_strict() {
  throw std::invalid_argument(
      "corank::multiway_merge: `compare` holds for a record and itself; it must be as <, not as "
      "<=");
}

}  // namespace detail
}  // namespace corank
