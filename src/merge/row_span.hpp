// A row span: a run, or part of one, in memory. A view; the records belong to the caller.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "util/prefetch.hpp"

namespace corank {

// Contiguous records in ascending order.
struct SortedSpan {
  const std::byte* records;
  std::uint64_t count;
  bool predecessor;  // the record before the first is part of the same run
};

// Removes the first `count` records.
inline void drop(SortedSpan& span, std::uint64_t count, std::uint32_t record_bytes) {
  assert(count <= span.count);
  span.records += count * record_bytes;
  span.count -= count;
  span.predecessor |= count != 0;
}

// Prefetches the block's part of a later run while that of `run` is read.
[[gnu::always_inline]] inline void prefetch_ahead(std::span<const SortedSpan> block,
                                                  std::size_t run, std::uint32_t record_bytes) {
  constexpr std::size_t ahead = 4;
  if (run + ahead >= block.size()) return;
  const SortedSpan& next = block[run + ahead];
  prefetch(next.records, next.count * record_bytes);
}

}  // namespace corank
