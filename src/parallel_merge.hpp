// Merges runs in memory on all cores.
#pragma once

#include <tbb/enumerable_thread_specific.h>

#include <cstddef>
#include <memory>
#include <span>

#include "tile_merge.hpp"

namespace corank {

class ParallelMerger {
 public:
  // `keys` must outlive the merger.
  ParallelMerger(const detail::KeyWords& keys, unsigned threads);

  // Merges `runs`, stably, into `out`, in the caller's task arena. False if one of them is out of
  // order; what is in `out` then means nothing. Thread-safe.
  bool merge(std::span<const Stretch> runs, std::byte* out);

 private:
  struct Probe {
    std::uint64_t word;
    const std::byte* record;
  };

  const detail::KeyWords& keys_;
  unsigned threads_;
  tbb::enumerable_thread_specific<std::unique_ptr<TileMerger>> mergers_;
};

}  // namespace corank
