// Co-rank: how many of the first `rank` records of a stable merge each run contributes. Stateless
// and thread-safe; ranks, positions and counts are records. The overload for two runs also works on
// a device.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "corank/host_device.hpp"

namespace corank {

// Returns how many of the first `rank` outputs of a two-way merge come from `a`; the others come
// from `b`. Equal elements of `a` come first. `a` and `b` are anything with operator[]: pointers,
// or views of a ring. `rank` must not exceed a_count + b_count. Probes each run at most
// log2(min(rank, a_count, b_count)) + 1 times.
//
// Source: Siebert and Träff, "Perfectly load-balanced, optimal, stable, parallel merge" (2013);
// Hwu, Kirk, El Hajj, "Programming Massively Parallel Processors", 4th ed., chapter 12. The split
// is also the merge path of Odeh, Green, Mwassi, Shmueli, Birk (2012).
template <class A, class B, class Less>
CORANK_HOST_DEVICE constexpr std::uint64_t co_rank(std::uint64_t rank, const A& a,
                                                   std::uint64_t a_count, const B& b,
                                                   std::uint64_t b_count, Less less) {
  std::uint64_t low = rank > b_count ? rank - b_count : 0;
  std::uint64_t high = rank < a_count ? rank : a_count;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (less(b[rank - middle - 1], a[middle]))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// A cut of k runs: the first `rank` outputs are exactly the first position[i] records of each run
// i.
struct Cut {
  std::uint64_t rank = 0;
  std::vector<std::uint64_t> position;  // adds up to `rank`
};

namespace detail {

// Finds the co-rank of k runs, level by level; co_rank() describes the algorithm.
template <class Probe, class Less>
class CutSearch {
 public:
  CutSearch(std::uint64_t rank, std::span<const std::uint64_t> counts, Probe& probe,
            const Less& less)
      : rank_(rank),
        counts_(counts),
        probe_(probe),
        less_(less),
        positions_(counts.size(), 0),
        last_(counts.size()),
        next_(counts.size()) {}

  std::vector<std::uint64_t> find() {
    if (rank_ == 0) return positions_;
    for (std::uint64_t step = start(); step != 0; step /= 2) {
      const std::uint64_t growth = grow(step);
      std::uint64_t blocks = 0;
      for (const std::uint64_t count : counts_) blocks += count / step;
      // All finer levels together are likely to add as much as this one has.
      const std::uint64_t later = std::min(rank_, growth * (step - 1));
      const std::uint64_t target = std::min((rank_ - later) / step, blocks) * step;
      if (taken_ > target)
        drop_max(step, target);
      else
        take_min(step, target);
    }
    return std::move(positions_);
  }

 private:
  using Value = std::decay_t<decltype(std::declval<Probe&>()(std::size_t{}, std::uint64_t{}))>;

  bool before(const Value& x, std::size_t i, const Value& y, std::size_t j) const {
    return i < j ? !less_(y, x) : less_(x, y);
  }
  bool last_before(std::size_t i, std::size_t j) const { return before(last_[i], i, last_[j], j); }
  bool next_before(std::size_t i, std::size_t j) const { return before(next_[i], i, next_[j], j); }
  bool has_next(std::size_t i, std::uint64_t step) const {
    return step <= counts_[i] - positions_[i];
  }
  void probe_next(std::size_t i, std::uint64_t step) {
    if (has_next(i, step)) next_[i] = probe_(i, positions_[i] + step - 1);
  }

  // Cuts at a guess: the median of the records that are as far into their runs as `rank` is into
  // all. Returns the step to continue with. All probes of a level are issued together, here and
  // below, so that their latencies overlap.
  std::uint64_t start() {
    const std::size_t k = counts_.size();
    const double part = static_cast<double>(rank_) /
                        static_cast<double>(std::reduce(counts_.begin(), counts_.end()));
    constexpr double max_index = 0x1p63;    // a product may round to more than 64 bits hold
    std::vector<std::uint64_t> ends(k, 0);  // upper bounds of the positions
    runs_.clear();
    for (std::size_t i = 0; i < k; ++i) {
      if (counts_[i] == 0) continue;
      const double index = std::min(part * static_cast<double>(counts_[i]), max_index);
      ends[i] = std::min(static_cast<std::uint64_t>(index), counts_[i] - 1);
      next_[i] = probe_(i, ends[i]);
      runs_.push_back(i);
    }
    const auto median = runs_.begin() + static_cast<std::ptrdiff_t>(runs_.size() / 2);
    std::nth_element(runs_.begin(), median, runs_.end(),
                     [this](std::size_t i, std::size_t j) { return next_before(i, j); });
    const std::size_t guess_run = *median;
    const Value guess = next_[guess_run];
    if (less_(guess, guess))
      throw std::invalid_argument("corank::co_rank: `less` must be as <, not as <=");
    const auto sorts_before = [&](std::size_t i) { return before(next_[i], i, guess, guess_run); };
    positions_[guess_run] = ends[guess_run];
    for (auto i = runs_.begin(); i != median; ++i) {
      positions_[*i] = ends[*i] + 1;
      ends[*i] = counts_[*i];
    }
    const auto found = [&](std::size_t i) { return positions_[i] == ends[i]; };
    const auto gallop = [&](bool up, auto run, auto run_end) {
      run_end = std::remove_if(run, run_end, found);
      for (std::uint64_t stride = 1; run != run_end; stride *= 2) {
        const auto place = [&](std::size_t i) {
          const std::uint64_t ahead = std::min(stride, ends[i] - positions_[i]);
          return up ? positions_[i] + ahead - 1 : ends[i] - ahead;
        };
        for (auto i = run; i != run_end; ++i) next_[*i] = probe_(*i, place(*i));
        run_end = std::remove_if(run, run_end, [&](std::size_t i) {
          const std::uint64_t at = place(i);
          const bool takes = sorts_before(i);
          (takes ? positions_[i] = at + 1 : ends[i] = at);
          return takes != up || found(i);
        });
      }
    };
    gallop(true, runs_.begin(), median);
    gallop(false, median + 1, runs_.end());
    std::uint64_t widest = 0;
    for (std::size_t i = 0; i < k; ++i) widest = std::max(widest, ends[i] - positions_[i]);
    for (std::uint64_t half = std::bit_floor(widest); half != 0; half /= 2) {
      const auto fits = [&](std::size_t i) { return half <= ends[i] - positions_[i]; };
      for (std::size_t i = 0; i < k; ++i)
        if (fits(i)) next_[i] = probe_(i, positions_[i] + half - 1);
      for (std::size_t i = 0; i < k; ++i)
        if (fits(i) && sorts_before(i)) positions_[i] += half;
    }

    const std::uint64_t guessed = std::reduce(positions_.begin(), positions_.end());
    const std::uint64_t error = guessed < rank_ ? rank_ - guessed : guessed - rank_;
    constexpr std::uint64_t max_step = std::uint64_t{1} << 62;  // twice of it fits
    const std::uint64_t step = std::bit_floor(std::min(error / k, max_step - 1) + 1);
    for (std::size_t i = 0; i < k; ++i) {
      positions_[i] -= positions_[i] % (2 * step);
      taken_ += positions_[i];
      if (positions_[i] != 0) last_[i] = probe_(i, positions_[i] - 1);
    }
    return step;
  }

  // Takes the blocks that sort before the last one taken so far, and returns their number.
  std::uint64_t grow(std::uint64_t step) {
    const std::size_t k = counts_.size();
    for (std::size_t i = 0; i < k; ++i) probe_next(i, step);
    std::size_t greatest = k;
    for (std::size_t i = 0; i < k; ++i)
      if (positions_[i] != 0 && (greatest == k || last_before(greatest, i))) greatest = i;
    if (greatest == k) return 0;
    const Value bound = last_[greatest];
    std::uint64_t growth = 0;
    for (std::size_t i = 0; i < k; ++i) {
      if (!has_next(i, step) || !before(next_[i], i, bound, greatest)) continue;
      positions_[i] += step;
      last_[i] = next_[i];
      probe_next(i, step);
      ++growth;
    }
    taken_ += growth * step;
    return growth;
  }

  // Drops the max blocks until `target` records are taken.
  void drop_max(std::uint64_t step, std::uint64_t target) {
    const auto less = [this](std::size_t i, std::size_t j) { return last_before(i, j); };
    runs_.clear();
    for (std::size_t i = 0; i < counts_.size(); ++i)
      if (positions_[i] != 0) runs_.push_back(i);
    std::make_heap(runs_.begin(), runs_.end(), less);
    for (; taken_ > target; taken_ -= step) {
      std::pop_heap(runs_.begin(), runs_.end(), less);
      const std::size_t i = runs_.back();
      positions_[i] -= step;
      if (positions_[i] == 0) {
        runs_.pop_back();
      } else {
        last_[i] = probe_(i, positions_[i] - 1);
        std::push_heap(runs_.begin(), runs_.end(), less);
      }
    }
  }

  // Takes the min blocks until `target` records are taken.
  void take_min(std::uint64_t step, std::uint64_t target) {
    const auto greater = [this](std::size_t i, std::size_t j) { return next_before(j, i); };
    runs_.clear();
    for (std::size_t i = 0; i < counts_.size(); ++i)
      if (has_next(i, step)) runs_.push_back(i);
    std::make_heap(runs_.begin(), runs_.end(), greater);
    for (; taken_ < target; taken_ += step) {
      std::pop_heap(runs_.begin(), runs_.end(), greater);
      const std::size_t i = runs_.back();
      positions_[i] += step;
      last_[i] = next_[i];
      if (has_next(i, step)) {
        probe_next(i, step);
        std::push_heap(runs_.begin(), runs_.end(), greater);
      } else {
        runs_.pop_back();
      }
    }
  }

  const std::uint64_t rank_;
  const std::span<const std::uint64_t> counts_;
  Probe& probe_;
  const Less& less_;
  std::uint64_t taken_ = 0;               // records taken
  std::vector<std::uint64_t> positions_;  // where the taken blocks end
  std::vector<Value> last_, next_;        // last records: of the taken blocks, of the next
  std::vector<std::size_t> runs_;         // the runs under consideration
};

}  // namespace detail

// Returns the cut of k runs of counts[i] records at `rank`, which must not exceed the sum of the
// counts. `probe(run, index)` returns a record's key by value; `less` orders keys. Equal records of
// the earlier run come first. Throws std::invalid_argument if `less` holds for a record and itself.
// Takes about k·log2(longest run) probes if the runs' keys are
// distributed alike, and at most about three times as many otherwise.
//
// Source: the sampling scheme of Varman, Scheufler, Iyer, Ricard, "Merging multiple lists on
// hierarchical-memory multiprocessors" (1991). Each level cuts the last records of whole blocks,
// of `step` records each, exactly. Halving the step keeps all blocks taken so far, and adds the new
// ones that sort before the last of them. This is a correct cut of some rank. Dropping the max
// blocks, or taking the min ones, about k at most, moves it to the wanted rank. The search starts
// from the cut at a guessed last record, on the finest level that the guess is good enough for.
template <class Probe, class Less>
Cut co_rank(std::uint64_t rank, std::span<const std::uint64_t> counts, Probe&& probe, Less less) {
  assert(rank <= std::reduce(counts.begin(), counts.end()));
  Cut cut{
      rank,
      detail::CutSearch<std::remove_reference_t<Probe>, Less>(rank, counts, probe, less).find()};
  assert(std::ranges::equal(cut.position, counts, std::ranges::less_equal{}));
  assert(std::reduce(cut.position.begin(), cut.position.end()) == rank);
  return cut;
}

}  // namespace corank
