// A part of a run, in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "util/prefetch.hpp"

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
[[gnu::always_inline]] inline void prefetch_ahead(std::span<const Stretch> block, std::size_t run,
                                                  std::uint32_t record_bytes) {
  constexpr std::size_t ahead = 4;
  if (run + ahead >= block.size()) return;
  const Stretch& next = block[run + ahead];
  prefetch(next.records, next.count * record_bytes);
}

// Brings into the caches what lies ahead in stretches that are read one after another.
class FetchAhead {
 public:
  FetchAhead(std::span<const Stretch> stretches, std::uint32_t record_bytes)
      : stretches_(stretches), record_bytes_(record_bytes) {}

  // The next `bytes`, of however many stretches.
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
  std::uint64_t at_ = 0;  // of that run's bytes
};

}  // namespace corank
