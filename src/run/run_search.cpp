#include "run/run_search.hpp"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>
#include <optional>

#include "run/block_reader.hpp"
#include "run/rank_search.hpp"
#include "run/record_search.hpp"
#include "run/work_unit.hpp"

namespace corank {

void keep_range(std::span<Run> runs, const RecordFormat& format, const Query& query) {
  const std::optional<RowBound> from = format.bound(query, Setting::from);
  const std::optional<RowBound> to = format.bound(query, Setting::to);
  if (!from && !to) return;
  ProbeThreads().for_each(runs.size(), [&](std::size_t i) {
    Run& run = runs[i];
    std::uint64_t first = 0, end = run.records();
    BlockReader reader(run);
    const std::uint64_t reads = reader.reads_of([&](BlockReader& searched) {
      if (from) first = find_record(searched, format, *from, Bound::lower, 0, end);
      if (to) end = find_record(searched, format, *to, Bound::lower, 0, end);
    });
    run = run.subspan(first, std::max(first, end) - first);
    return reads;
  });
}

namespace {

using Positions = std::vector<std::uint64_t>;

std::uint64_t sum(const Positions& positions) {
  return std::reduce(positions.begin(), positions.end());
}

// Cuts at several ranks: each cut narrows the search for the ranks on both sides.
class CutTree {
 public:
  CutTree(std::span<const Run> runs, const RecordFormat& format, ProbeThreads& threads)
      : runs_(runs), format_(format), threads_(threads) {
    for (const Run& run : runs) ends_.push_back(run.records());
  }

  std::vector<Positions> cuts(std::span<const std::uint64_t> ranks) {
    std::vector<Positions> cuts(ranks.size());
    cut(ranks, cuts, Positions(runs_.size()), ends_);
    return cuts;
  }

 private:
  // Fraction of the total that is precise enough: parts of text need not be equal to the byte.
  static constexpr std::uint64_t enough_precision = 1024;

  void cut(std::span<const std::uint64_t> ranks, std::span<Positions> cuts, const Positions& low,
           const Positions& high) {
    if (ranks.empty()) return;
    const std::size_t middle = ranks.size() / 2;
    const Positions found = cut_between(ranks[middle], low, high);
    cuts[middle] = found;
    // The cuts of little text do not depend on each other.
    const bool narrows = format_.traits().has_fixed_size || sum(ends_) > max_blocks_bytes;
    cut(ranks.first(middle), cuts.first(middle), low, narrows ? found : high);
    cut(ranks.subspan(middle + 1), cuts.subspan(middle + 1), narrows ? found : low, high);
  }

  Positions cut_between(std::uint64_t rank, const Positions& low, const Positions& high) {
    std::vector<Run> between;
    for (std::size_t run = 0; run < runs_.size(); ++run)
      between.push_back(runs_[run].subspan(low[run], high[run] - low[run]));
    // Equal keys may have moved a cut of text across the rank.
    rank = std::clamp(rank, sum(low), sum(high)) - sum(low);
    Positions positions;
    try {
      positions =
          format_.traits().has_fixed_size
              ? cut_runs(rank, between, format_.keys(), threads_).position
              : cut_records(rank, between, format_, sum(ends_) / enough_precision, threads_);
    } catch (const RunOutOfOrder& wrong) {
      throw RunOutOfOrder(wrong.run, low[wrong.run] + wrong.record);
    }
    std::ranges::transform(positions, low, positions.begin(), std::plus());
    return positions;
  }

  const std::span<const Run> runs_;
  const RecordFormat& format_;
  ProbeThreads& threads_;
  Positions ends_;
};

}  // namespace

std::vector<std::vector<std::uint64_t>> cuts_at(std::span<const std::uint64_t> ranks,
                                                std::span<const Run> runs,
                                                const RecordFormat& format, ProbeThreads& threads) {
  assert(std::ranges::is_sorted(ranks));
  return CutTree(runs, format, threads).cuts(ranks);
}

}  // namespace corank
