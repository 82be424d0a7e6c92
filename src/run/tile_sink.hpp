// Takes merged rows while they are in cache. Operators implement it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "corank/key.hpp"
#include "format/rows.hpp"
#include "util/prefetch.hpp"

namespace corank {

// Takes the merged rows of one tile; used by one thread.
class TileSink {
 public:
  virtual ~TileSink() = default;

  // Takes the tile's next `count` rows, in order, and overwrites them. If records are merged to the
  // sink's own memory, returns the lowest address there that the next ones may be merged to, which
  // is most likely in cache.
  virtual std::byte* take(std::byte* rows, std::uint64_t count) = 0;
  // Ends the tile.
  virtual void finish() = 0;
};

// Takes the tiles of one unit.
class UnitSink {
 public:
  virtual ~UnitSink() = default;

  // Sets the memory of each tile's output, which its records are merged to unless they are prefix
  // references. Must precede all other calls.
  virtual void begin(std::span<const std::span<std::byte>> places) = 0;
  // Tells that `count` > 0 rows of the unit's segment are merged into the tile. Segments are added
  // in order.
  virtual void add_segment(std::size_t tile, std::size_t segment, const std::byte* rows,
                           std::uint64_t count) = 0;
  // Returns the sink of a tile; different tiles may be used by different threads.
  virtual TileSink& tile(std::size_t index) = 0;
};

// Collects merged prefix references for a sink, a batch at a time. Has the interface of a
// GatherWriter. Prefetches the records, which the sink reads next.
class RefBatch {
 public:
  explicit RefBatch(TileSink& sink) : sink_(sink) {}

  void write(const std::byte* refs, std::uint64_t bytes) {
    write_each(0, bytes / sizeof(PrefixRef),
               [refs](std::size_t i) { return refs + i * sizeof(PrefixRef); });
  }
  // Writes the prefix references ref_at(first) to ref_at(end - 1).
  template <class RefAt>
  void write_each(std::size_t first, std::size_t end, RefAt ref_at) {
    while (first < end) {
      const std::size_t part_end = std::min(end, first + max_batch_rows - count_);
      PrefixRef* to = &refs_[count_];
      count_ += part_end - first;
      for (; first < part_end; ++first, ++to) {
        std::memcpy(to, ref_at(first), sizeof(PrefixRef));
        __builtin_prefetch(record_of(*to) + many_runs_prefetch_bytes);
      }
      if (count_ == max_batch_rows) flush();
    }
  }
  // Passes on what is collected.
  void flush() {
    if (count_ != 0) sink_.take(reinterpret_cast<std::byte*>(refs_.data()), count_);
    count_ = 0;
  }

 private:
  TileSink& sink_;
  std::array<PrefixRef, max_batch_rows> refs_;
  std::size_t count_ = 0;
};

}  // namespace corank
