// Finds a key after which no record is among the smallest of all, while only some of them are
// sorted.
//
// The cutoff holds samples of the sorted blocks. Each stands for the records that sort between it
// and the sample before it. Once the samples up to a key stand for as many records as are wanted,
// no later record from that key on is wanted. Thread-safe; the arguments must outlive it.
//
// Source: Chronis et al., "External Merge Sort for Top-K Queries: Eager input filtering guided by
// histograms" (2020).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <vector>

#include "corank/algorithm/multiway_merge.hpp"
#include "format/rows.hpp"

namespace corank {

class Cutoff {
 public:
  // Finds the key for the smallest `limit` records.
  Cutoff(const KeyLayout& layout, const detail::KeyWords& keys, std::uint64_t limit)
      : layout_(layout), keys_(keys), limit_(limit) {}

  // Adds a sorted block of `count` records; row(i) returns its row i. All calls of keep() for the
  // records of the block must have returned.
  template <class RowAt>
  void add(std::uint64_t count, RowAt row) {
    const std::uint64_t step = std::min(count, limit_ / samples_of_limit + 1);
    const std::lock_guard lock(mutex_);
    for (std::uint64_t end = step; end <= count; end += step)
      if (!add_sample(row(end - 1), step)) break;
    find_cutoff();
  }
  // Keeps the indices of the rows, at most max_batch_rows, that may be among the smallest; returns
  // their number. The rows must follow all records that were added, in the order of the input.
  std::size_t keep(const std::byte* rows, std::span<std::uint16_t> which) const;

 private:
  static constexpr std::uint64_t samples_of_limit = 64;

  struct Sample {
    RowCopy row;
    std::uint64_t records;  // of its block, up to it, since the sample before
  };

  bool add_sample(const std::byte* row, std::uint64_t records);
  void find_cutoff();

  const KeyLayout layout_;
  const detail::KeyWords& keys_;
  const std::uint64_t limit_;
  mutable std::shared_mutex mutex_;
  std::vector<Sample> samples_;  // ascending
  bool has_cutoff_ = false;      // the last sample is it
};

}  // namespace corank
