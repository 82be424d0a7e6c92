// A part of a run, in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "prefetch.hpp"

namespace corank {

// Records that lie end to end and ascend: a run, or a part of one.
struct Stretch {
  const std::byte* records;
  std::uint64_t count;
  bool predecessor;           // the record before the first belongs to the same run
  bool words_ascend = false;  // of entries: their words are known to
};

// Leaves out the first `count` records.
inline void drop(Stretch& stretch, std::uint64_t count, std::uint32_t record_bytes) {
  stretch.records += count * record_bytes;
  stretch.count -= count;
  stretch.predecessor |= count != 0;
}

// While a run's part of a block is looked at, that of another one comes into the caches.
inline void prefetch_ahead(std::span<const Stretch> block, std::size_t run,
                           std::uint32_t record_bytes) {
  constexpr std::size_t ahead = 4;
  if (run + ahead >= block.size()) return;
  const Stretch& next = block[run + ahead];
  prefetch(next.records, next.count * record_bytes);
}

}  // namespace corank
