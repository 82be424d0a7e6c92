// Merges runs in memory on all cores.
#pragma once

#include <tbb/task_arena.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "merge/tile_merger.hpp"
#include "ops/unit_operators.hpp"

namespace corank {

class ParallelMerger {
 public:
  // `keys` must outlive the merger; `callers` are as many as call merge() at once, as a rule.
  ParallelMerger(const detail::KeyWords& keys, Output output, unsigned threads,
                 unsigned callers = 1);

  // Merges `runs`, stably, into `out`, and shapes each tile where there is a shaper: then they are
  // the segments of its unit. Returns the sum of their records' fingerprints, 0 without a `sum`;
  // nothing if one of them is out of order: what is in `out` then means nothing. Thread-safe: all
  // callers together have the threads.
  std::optional<std::uint64_t> merge(std::span<const Stretch> runs, std::byte* out,
                                     UnitOperators* shaper = nullptr, FingerprintSum sum = nullptr,
                                     TextUnitOperators* text_shaper = nullptr);

 private:
  struct Probe {
    std::uint64_t word;
    const std::byte* record;
  };

  std::vector<std::uint64_t> tile_ranks(std::uint64_t records, std::uint64_t runs) const;

  const detail::KeyWords& keys_;
  unsigned threads_, callers_;
  tbb::task_arena arena_;
  std::vector<std::unique_ptr<TileMerger>> mergers_;  // of each place in the arena
};

}  // namespace corank
