// co-rank: where the first `rank` records of a merge's output come from.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "corank/key.hpp"

namespace corank {

// Two runs: how many of the first `rank` outputs come from `a`; the others come from `b`. Stable:
// of equal elements those of `a` come first. `a` and `b` are anything with operator[]: pointers, or
// views of a ring. rank <= a_count + b_count; at most log2(min(rank, a_count, b_count)) + 1 probes
// of each.
//
// Source: Siebert and Träff, "Perfectly load-balanced, optimal, stable, parallel merge" (2013);
// Hwu, Kirk, El Hajj, "Programming Massively Parallel Processors", 4th ed., chapter 12. The same
// split is the merge path of Odeh, Green, Mwassi, Shmueli, Birk (2012).
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

// The first `rank` outputs are exactly the first position[i] records of each run i.
struct Cut {
  std::uint64_t rank = 0;
  std::vector<std::uint64_t> position;  // their sum is `rank`
};

// k runs of counts[i] records: the cut at `rank`, which must not exceed the sum of the counts.
// `probe(run, index)` returns the key of a record by value; `less` orders such keys. Of equal
// records those of the earlier run come first. About 1.5·k·log2(longest run) probes where the
// runs' keys are spread alike, else up to 2.5 times k·log2(longest run).
//
// Source: the sampling scheme of Varman, Scheufler, Iyer, Ricard, "Merging multiple lists on
// hierarchical-memory multiprocessors" (1991). Level by level it is exact on every `step`-th
// record: the last records of whole blocks. Halving the step keeps all blocks taken so far, adds
// the new ones that sort before the last of them, and is then a correct cut of some rank, which
// dropping the greatest or taking the smallest, at most about k of them, brings to the wanted one.
// It starts from the cut at a guess of the last record, on as fine a level as that one is good for.
template <class Probe, class Less>
Cut co_rank(std::uint64_t rank, std::span<const std::uint64_t> counts, Probe&& probe, Less less) {
  using Value = std::decay_t<decltype(probe(std::size_t{}, std::uint64_t{}))>;
  const std::size_t k = counts.size();
  Cut cut{rank, std::vector<std::uint64_t>(k, 0)};
  if (rank == 0) return cut;
  auto& position = cut.position;
  std::vector<Value> last(k), next(k);  // of the taken blocks; of the block after them
  std::vector<std::size_t> heap;
  heap.reserve(k);

  const auto before = [&less](const Value& x, std::size_t i, const Value& y, std::size_t j) {
    return less(x, y) || (!less(y, x) && i < j);
  };
  const auto last_before = [&](std::size_t i, std::size_t j) {
    return before(last[i], i, last[j], j);
  };
  const auto next_before = [&](std::size_t i, std::size_t j) {
    return before(next[i], i, next[j], j);
  };
  const auto next_after = [&](std::size_t i, std::size_t j) { return next_before(j, i); };

  std::uint64_t longest = 0, total = 0;
  for (const std::uint64_t count : counts) {
    longest = std::max(longest, count);
    total += count;
  }
  // The guess: the median of the records that are as far into their runs as the rank is into all.
  const double part = static_cast<double>(rank) / static_cast<double>(total);
  for (std::size_t i = 0; i < k; ++i) {
    if (counts[i] == 0) continue;
    const auto index = static_cast<std::uint64_t>(part * static_cast<double>(counts[i]));
    next[i] = probe(i, std::min(index, counts[i] - 1));
    heap.push_back(i);
  }
  const auto median = heap.begin() + static_cast<std::ptrdiff_t>(heap.size() / 2);
  std::nth_element(heap.begin(), median, heap.end(), next_before);
  const std::size_t guess = *median;
  // All probes of a level stand together, here and below: none waits for another.
  for (std::uint64_t half = std::bit_floor(longest); half != 0; half /= 2)
    for (std::size_t i = 0; i < k; ++i)
      if (position[i] + half <= counts[i] &&
          before(probe(i, position[i] + half - 1), i, next[guess], guess))
        position[i] += half;
  const std::uint64_t guessed = std::reduce(position.begin(), position.end());
  const std::uint64_t error = guessed < rank ? rank - guessed : guessed - rank;
  const std::uint64_t first_step = std::bit_floor(error / k + 1);
  std::uint64_t taken = 0;  // records
  for (std::size_t i = 0; i < k; ++i) {
    position[i] -= position[i] % (2 * first_step);
    taken += position[i];
    if (position[i] != 0) last[i] = probe(i, position[i] - 1);
  }

  for (std::uint64_t step = first_step; step != 0; step /= 2) {
    const auto has_next = [&](std::size_t i) { return position[i] + step <= counts[i]; };
    const auto probe_next = [&](std::size_t i) {
      if (has_next(i)) next[i] = probe(i, position[i] + step - 1);
    };
    for (std::size_t i = 0; i < k; ++i) probe_next(i);
    std::size_t greatest = k;
    for (std::size_t i = 0; i < k; ++i)
      if (position[i] != 0 && (greatest == k || last_before(greatest, i))) greatest = i;
    std::uint64_t growth = 0;  // blocks
    if (greatest != k) {
      const Value bound = last[greatest];
      for (std::size_t i = 0; i < k; ++i) {
        if (!has_next(i) || !before(next[i], i, bound, greatest)) continue;
        position[i] += step;
        last[i] = next[i];
        ++growth;
        probe_next(i);
      }
    }
    taken += growth * step;
    // As many records as now, the finer levels together are likely to add again.
    const std::uint64_t later = std::min(rank, growth * (step - 1));
    std::uint64_t blocks = 0;
    for (const std::uint64_t count : counts) blocks += count / step;
    const std::uint64_t target = std::min((rank - later) / step, blocks) * step;

    heap.clear();
    if (taken > target) {
      for (std::size_t i = 0; i < k; ++i)
        if (position[i] != 0) heap.push_back(i);
      std::make_heap(heap.begin(), heap.end(), last_before);
      for (; taken > target; taken -= step) {
        std::pop_heap(heap.begin(), heap.end(), last_before);
        const std::size_t i = heap.back();
        position[i] -= step;
        if (position[i] == 0) {
          heap.pop_back();
        } else {
          last[i] = probe(i, position[i] - 1);
          std::push_heap(heap.begin(), heap.end(), last_before);
        }
      }
    } else if (taken < target) {
      for (std::size_t i = 0; i < k; ++i)
        if (has_next(i)) heap.push_back(i);
      std::make_heap(heap.begin(), heap.end(), next_after);
      for (; taken < target; taken += step) {
        std::pop_heap(heap.begin(), heap.end(), next_after);
        const std::size_t i = heap.back();
        position[i] += step;
        last[i] = next[i];
        probe_next(i);
        if (has_next(i))
          std::push_heap(heap.begin(), heap.end(), next_after);
        else
          heap.pop_back();
      }
    }
  }
  return cut;
}

}  // namespace corank
