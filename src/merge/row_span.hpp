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
struct Stretch {
  const std::byte* records;
  std::uint64_t count;
  bool predecessor;           // the record before the first is part of the same run
  bool words_ascend = false;  // known to hold for the prefixes of prefix references
};

// Removes the first `count` records.
inline void drop(Stretch& stretch, std::uint64_t count, std::uint32_t record_bytes) {
  assert(count <= stretch.count);
  stretch.records += count * record_bytes;
  stretch.count -= count;
  stretch.predecessor |= count != 0;
}

// Prefetches the block's part of a later run while that of `run` is read.
[[gnu::always_inline]] inline void prefetch_ahead(std::span<const Stretch> block, std::size_t run,
                                                  std::uint32_t record_bytes) {
  constexpr std::size_t ahead = 4;
  if (run + ahead >= block.size()) return;
  const Stretch& next = block[run + ahead];
  prefetch(next.records, next.count * record_bytes);
}

// Prefetches ahead of a reader of consecutive row spans.
class FetchAhead {
 public:
  FetchAhead(std::span<const Stretch> stretches, std::uint32_t record_bytes)
      : stretches_(stretches), record_bytes_(record_bytes) {}

  // Prefetches the next `bytes`, across row spans.
  void fetch(std::uint64_t bytes) {
    while (bytes > 0 && run_ < stretches_.size()) {
      const Stretch& stretch = stretches_[run_];
      const std::uint64_t here = std::min(bytes, stretch.count * record_bytes_ - at_);
      prefetch(stretch.records + at_, here);
      at_ += here;
      bytes -= here;
      if (at_ == stretch.count * record_bytes_) {
        at_ = 0;
        ++run_;
      }
    }
  }

 private:
  std::span<const Stretch> stretches_;
  std::uint64_t record_bytes_;
  std::size_t run_ = 0;
  std::uint64_t at_ = 0;  // byte position in that run
};

}  // namespace corank
