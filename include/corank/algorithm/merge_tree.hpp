// Merges runs in cache by a comparator: a tree of two-way merges without branches on the data. Call
// add() and end_run() for each run, then merge(). Not thread-safe; a tree owns and reuses its
// memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "corank/algorithm/co_rank.hpp"

namespace corank::detail {

template <class Item, class Less>
class MergeTree {
 public:
  explicit MergeTree(Less less) : less_(less) {}

  void clear() {
    items_.clear();
    ends_.clear();
  }

  // Appends an item to the current run; end_run() completes the run.
  void add(const Item& item) { items_.push_back(item); }
  void end_run() { ends_.push_back(items_.size()); }

  // Merges all runs stably. The result is valid until the tree changes.
  std::span<const Item> merge() {
    spare_.resize(items_.size());
    while (ends_.size() > 1) {
      merge_level();
      items_.swap(spare_);
    }
    return items_;
  }

 private:
  // Two-way merges run in lockstep, so that the latencies of their steps overlap.
  static constexpr std::size_t lanes = 4;
  static constexpr std::size_t part_items = 4096;

  struct Job {
    const Item *a, *a_end, *b, *b_end;
    Item* out;

    // Steps that need no bounds check.
    std::size_t safe_steps() const {
      return static_cast<std::size_t>(std::min(a_end - a, b_end - b));
    }
    void finish() { std::copy(b, b_end, std::copy(a, a_end, out)); }
  };

  void merge_level() {
    jobs_.clear();
    const Item* const from = items_.data();
    std::size_t begin = 0, merged = 0;
    for (std::size_t r = 0; r < ends_.size(); r += 2) {
      const std::size_t middle = ends_[r];
      const std::size_t end = r + 1 < ends_.size() ? ends_[r + 1] : middle;
      add_jobs(from + begin, from + middle, from + end, spare_.data() + begin);
      ends_[merged++] = begin = end;
    }
    ends_.resize(merged);
    run_jobs();
  }

  // Cuts merges into parts for all lanes if there are few of them.
  void add_jobs(const Item* a, const Item* b, const Item* end, Item* out) {
    const auto a_count = static_cast<std::uint64_t>(b - a);
    const auto b_count = static_cast<std::uint64_t>(end - b);
    const std::uint64_t count = a_count + b_count;
    const bool cut = ends_.size() < 4 * lanes && count >= 64 * lanes;
    const std::uint64_t parts =
        cut ? (count + lanes * part_items - 1) / (lanes * part_items) * lanes : 1;
    std::uint64_t last = 0, from_a = 0;
    for (std::uint64_t p = 1; p <= parts; ++p) {
      const std::uint64_t rank = count * p / parts;
      // Only cuts of unsorted runs can cross.
      const std::uint64_t to_a = p == parts
                                     ? a_count
                                     : std::clamp(co_rank(rank, a, a_count, b, b_count, less_),
                                                  from_a, from_a + (rank - last));
      jobs_.push_back({a + from_a, a + to_a, b + (last - from_a), b + (rank - to_a), out + last});
      last = rank;
      from_a = to_a;
    }
  }

  void run_jobs() {
    std::array<Job, lanes> lane;
    std::size_t next = std::min(lanes, jobs_.size());
    std::copy_n(jobs_.begin(), next, lane.begin());
    for (std::size_t busy = next; busy == lanes;) {
      std::size_t steps = lane[0].safe_steps();
      for (const Job& job : lane) steps = std::min(steps, job.safe_steps());
      advance<lanes>(lane.data(), steps);
      for (std::size_t l = 0; l < busy;) {
        if (lane[l].safe_steps() != 0) {
          ++l;
          continue;
        }
        lane[l].finish();
        lane[l] = next < jobs_.size() ? jobs_[next++] : lane[--busy];
      }
      if (busy < lanes) next = busy;
    }
    for (std::size_t l = 0; l < std::min(next, lanes); ++l) {
      while (lane[l].safe_steps() != 0) advance<1>(&lane[l], lane[l].safe_steps());
      lane[l].finish();
    }
  }

  template <std::size_t N>
  void advance(Job* jobs, std::size_t steps) {
    const Item *a[N], *b[N];
    Item* out[N];
    for (std::size_t l = 0; l < N; ++l) {
      a[l] = jobs[l].a;
      b[l] = jobs[l].b;
      out[l] = jobs[l].out;
    }
    for (std::size_t step = 0; step < steps; ++step)
#pragma GCC unroll 4
      for (std::size_t l = 0; l < N; ++l) {
        // Selects by arithmetic: compilers would emit a branch, which is mispredicted half of the
        // time.
        const auto take_b = static_cast<std::uintptr_t>(static_cast<bool>(less_(*b[l], *a[l])));
        const auto x = reinterpret_cast<std::uintptr_t>(a[l]);
        const auto y = reinterpret_cast<std::uintptr_t>(b[l]);
        out[l][step] = *reinterpret_cast<const Item*>(x ^ ((x ^ y) & (0 - take_b)));
        a[l] += 1 - take_b;
        b[l] += take_b;
      }
    for (std::size_t l = 0; l < N; ++l) {
      jobs[l].a = a[l];
      jobs[l].b = b[l];
      jobs[l].out += steps;
    }
  }

  Less less_;
  std::vector<Item> items_, spare_;
  std::vector<std::size_t> ends_;
  std::vector<Job> jobs_;
};

}  // namespace corank::detail
