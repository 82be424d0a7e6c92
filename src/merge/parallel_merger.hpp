// Merges runs in memory on all cores.
//
// `ParallelMerger` cuts the output into tiles by co-rank and merges each tile with a TileMerger
// of its own. Thread-safe: concurrent callers share the threads. Row spans and output belong to
// the caller.
#pragma once

#include <tbb/enumerable_thread_specific.h>
#include <tbb/task_arena.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "merge/tile_merger.hpp"
#include "run/tile_sink.hpp"

namespace corank {

class ParallelMerger {
 public:
  // `keys` must outlive the merger. `callers` is the usual number of concurrent merge() calls.
  ParallelMerger(const detail::KeyWords& keys, Output output, unsigned threads,
                 unsigned callers = 1);

  // Merges `runs` stably into `out`. Returns the sum of the records' fingerprints, 0 without a
  // `sum`. Returns nothing if a run is out of order; the contents of `out` are then undefined.
  // `sink`, unless null, takes the rows of each tile; `runs` must be the segments of its unit.
  std::optional<std::uint64_t> merge(std::span<const SortedSpan> runs, std::byte* out,
                                     UnitSink* sink = nullptr, FingerprintSum sum = nullptr);

 private:
  std::vector<std::uint64_t> tile_ranks(std::uint64_t records, std::uint64_t runs) const;

  const detail::KeyWords& keys_;
  Output output_;
  unsigned threads_, callers_;
  tbb::task_arena arena_;
  tbb::enumerable_thread_specific<std::unique_ptr<TileMerger>> mergers_;  // with large buffers
};

}  // namespace corank
