// Data that the stages of the pipeline pass on: chunks, segments and work units. Chunks are
// immutable once read and shared between threads by reference counts. Sizes and offsets are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "format/rows.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

// Records that were skipped after the first of a chunk.
struct Gap {
  std::uint64_t index;  // in the chunk, of the record after them; its size if there is none
  std::uint64_t records;
  std::uint64_t bytes;
};

// Returns the sums of the gaps before record `index` of a chunk that has these gaps.
inline Gap gaps_before(std::span<const Gap> gaps, std::uint64_t index) {
  Gap sum{index, 0, 0};
  for (const Gap& gap : gaps) {
    if (gap.index > index) break;
    sum.records += gap.records;
    sum.bytes += gap.bytes;
  }
  return sum;
}

// Block of one run as it was read. Holds complete records only.
struct Chunk {
  std::uint32_t run;            // index into the runs of the merge
  std::uint64_t first;          // number of its first record in the run
  std::uint64_t count;          // records, > 0
  Key<max_key_words> last_key;  // key prefix of its last record
  Buffer buffer;                // holds the records at its start, unless in_place is set
  const std::byte* in_place = nullptr;
  std::optional<std::uint64_t> fingerprint;  // of the records as read, if verified
  std::uint64_t number = 0;    // of its first record in the run, skipped ones included
  std::uint64_t offset = 0;    // of its first record in the file
  std::vector<Gap> gaps = {};  // in their order
  // Whether its pages stay in this process's memory, if it lies in a mapped file, after it is
  // released. Set by a thread that holds it.
  mutable bool stays_mapped = false;
  const std::byte* records() const { return in_place ? in_place : buffer.bytes().data(); }
};
using ChunkRef = std::shared_ptr<const Chunk>;

// Returns the bytes of `count` > 0 of the chunk's records, from `first` on.
inline std::span<const std::byte> bytes_of(const KeyLayout& layout, const Chunk& chunk,
                                           std::uint64_t first, std::uint64_t count) {
  return bytes_of(layout, chunk.records() + first * layout.record_bytes, count);
}

// Thrown while units are cut or merged: record `record` of run `run`, both counted from 0, sorts
// before its predecessor.
struct RunOutOfOrder : std::exception {
  RunOutOfOrder(std::uint32_t which, std::uint64_t where) : run(which), record(where) {}
  // Record `index` of the chunk sorts before the row `before`. Copies both, because a pipe cannot
  // be read again.
  RunOutOfOrder(const KeyLayout& layout, const Chunk& chunk, std::uint64_t index,
                const std::byte* before)
      : run(chunk.run),
        record(chunk.number + index + gaps_before(chunk.gaps, index).records),
        rows(new Rows{{layout, before},
                      {layout, chunk.records() + index * layout.record_bytes},
                      chunk.offset + gaps_before(chunk.gaps, index).bytes +
                          (index == 0 ? 0 : bytes_of(layout, chunk, 0, index).size())}) {}
  // Record `index`, which is not the first of the chunk, sorts before its predecessor.
  RunOutOfOrder(const KeyLayout& layout, const Chunk& chunk, std::uint64_t index)
      : RunOutOfOrder(layout, chunk, index, chunk.records() + (index - 1) * layout.record_bytes) {}
  const char* what() const noexcept override { return "a run is out of order"; }

  struct Rows {
    RowCopy before, record;
    std::uint64_t byte;  // of a pipe: at which the record begins
  };
  std::uint32_t run;
  std::uint64_t record;
  std::shared_ptr<const Rows> rows;  // null: they can be found in the run
};

// Row span of one chunk that one unit consumes. Keeps its chunk alive; copies nothing.
struct Segment {
  ChunkRef chunk;
  std::uint64_t first;  // record within the chunk
  std::uint64_t count;  // > 0
};

// Segments that together hold exactly the records of one output range. They are in the order of
// their runs, and the segments of one run are contiguous and in the order of its records. So a
// stable merge of the segments in this order is the stable merge of the runs.
struct WorkUnit {
  std::uint64_t sequence = 0;  // units are written in this order
  std::uint64_t records = 0;
  std::vector<Segment> segments;
  std::uint64_t rank = 0;    // global rank of its first record
  std::uint64_t bytes = 0;   // of its records, not of the prefix references to them
  std::uint64_t offset = 0;  // of its first byte in the output
};

}  // namespace corank
