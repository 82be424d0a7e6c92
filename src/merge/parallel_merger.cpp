#include "merge/parallel_merger.hpp"

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <stdexcept>
#include <vector>

#include "corank/algorithm/co_rank.hpp"
#include "util/parallel_for.hpp"

namespace corank {
namespace {

// Minimum bytes per tile; smaller tiles cost too much to cut.
constexpr std::uint64_t min_tile_bytes = std::uint64_t{1} << 20;

}  // namespace

ParallelMerger::ParallelMerger(const detail::KeyWords& keys, Output output, unsigned threads,
                               unsigned callers)
    : keys_(keys), threads_(threads), callers_(callers), arena_(static_cast<int>(threads)) {
  assert(threads != 0 && callers != 0);
  // A one-thread arena has a second slot, for the thread that waits for it.
  for (unsigned i = 0; i < std::max(threads, 2u); ++i)
    mergers_.push_back(make_tile_merger(keys, output));
}

std::optional<std::uint64_t> ParallelMerger::merge(std::span<const Stretch> runs, std::byte* out,
                                                   UnitOperators* shaper, FingerprintSum sum,
                                                   TextUnitOperators* text_shaper) {
  assert(keys_.text() ? !shaper : !text_shaper);
  std::vector<std::uint64_t> counts;
  std::uint64_t records = 0;
  for (const Stretch& run : runs) {
    counts.push_back(run.count);
    records += run.count;
  }
  const std::vector<std::uint64_t> ranks = tile_ranks(records, runs.size());
  const std::uint64_t tiles = ranks.size() - 1;
  const std::uint32_t record_bytes = keys_.record_bytes();
  const auto cut = [&](std::uint64_t tile) {
    return co_rank(
        ranks[tile], counts,
        [&](std::size_t run, std::uint64_t index) {
          Probe probe{0, runs[run].records + index * record_bytes};
          keys_.read(0, probe.record, 1, &probe.word);
          return probe;
        },
        [&](const Probe& a, const Probe& b) {
          return a.word < b.word ||
                 (a.word == b.word && keys_.words() > 1 && keys_.less(a.record, b.record));
        });
  };
  const TextLayout* const text = keys_.text();
  const auto offset = [&](const Cut& at) {
    if (!text) return at.rank * record_bytes;
    std::uint64_t bytes = 0;
    for (std::size_t r = 0; r < runs.size(); ++r)
      if (at.position[r] != 0) bytes += bytes_of(*text, runs[r].records, at.position[r]).size();
    return bytes;
  };
  std::vector<Cut> cuts(tiles + 1);
  cuts.front() = {0, std::vector<std::uint64_t>(runs.size(), 0)};
  cuts.back() = {records, counts};
  std::atomic<bool> ordered = true;
  std::atomic<std::uint64_t> fingerprint = 0;
  arena_.execute([&] {
    parallel_for(1, tiles, [&](std::uint64_t t) { cuts[t] = cut(t); });
    if (shaper) {
      std::vector<std::byte*> places;
      for (std::uint64_t t = 0; t < tiles; ++t) places.push_back(out + cuts[t].rank * record_bytes);
      shaper->begin(places);
    }
    if (text_shaper) {
      std::vector<std::span<std::byte>> places;
      for (std::uint64_t t = 0; t < tiles; ++t)
        places.emplace_back(out + offset(cuts[t]), out + offset(cuts[t + 1]));
      text_shaper->begin(places);
    }
    const auto merge_tile = [&](std::uint64_t t) {
      std::vector<Stretch> tile;
      for (std::size_t r = 0; r < runs.size(); ++r) {
        const std::uint64_t begin = cuts[t].position[r];
        const std::uint64_t end = cuts[t + 1].position[r];
        assert(begin <= runs[r].count && end <= runs[r].count);
        if (end < begin) ordered = false;  // only the cuts of unsorted runs can cross
        if (end <= begin) continue;
        tile.push_back({runs[r].records + begin * record_bytes, end - begin,
                        begin != 0 || runs[r].predecessor, runs[r].words_ascend});
        if (shaper) shaper->add_segment(t, r, tile.back().records, tile.back().count);
        if (text_shaper) text_shaper->add_segment(t, r, tile.back().records, tile.back().count);
      }
      const int thread = tbb::this_task_arena::current_thread_index();
      assert(thread >= 0 && static_cast<std::size_t>(thread) < mergers_.size());
      TileOperators* const tile_shaper = shaper ? &shaper->tile(t) : nullptr;
      TextTileOperators* const of_text = text_shaper ? &text_shaper->tile(t) : nullptr;
      if (ordered) {
        const auto read = mergers_[static_cast<std::size_t>(thread)]->merge(
            tile, out + offset(cuts[t]), tile_shaper, sum, of_text);
        if (read)
          fingerprint += *read;
        else
          ordered = false;
      }
      if (tile_shaper) tile_shaper->finish();
      if (of_text && ordered) of_text->finish();
    };
    // Tiles are taken in order, so that the smallest come last.
    std::atomic<std::uint64_t> next = 0;
    parallel_for(0, std::min<std::uint64_t>(tiles, threads_), [&](std::uint64_t) {
      for (std::uint64_t t = next++; t < tiles; t = next++) merge_tile(t);
    });
  });
  if (!ordered) return std::nullopt;
  return fingerprint;
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
  std::vector<Stretch> stretches;
  std::uint64_t bytes = 0;
  for (const auto& run : runs) {
    assert(run.size() % keys.record_bytes() == 0);
    bytes += run.size();
    if (!run.empty()) stretches.push_back({run.data(), run.size() / keys.record_bytes(), false});
  }
  if (!ParallelMerger(keys, output_to_rest(bytes), thread_count(threads)).merge(stretches, out))
    throw_unsorted();
}

void throw_unsorted() {
  throw std::invalid_argument("corank::multiway_merge: a run is not sorted");
}

}  // namespace detail
}  // namespace corank
