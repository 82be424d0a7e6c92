// What travels through the pipeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

// Thrown where units are made or merged: record `record` of run `run` (both counted from 0) sorts
// before its predecessor.
struct RunOutOfOrder : std::exception {
  RunOutOfOrder(std::uint32_t which, std::uint64_t where) : run(which), record(where) {}
  const char* what() const noexcept override { return "a run is out of order"; }
  std::uint32_t run;
  std::uint64_t record;
};

// A block of one run as it was read: whole records only.
struct Chunk {
  std::uint32_t run;            // index into the runs of the merge
  std::uint64_t first;          // the chunk's first record, counted in its run
  std::uint64_t count;          // records, > 0
  Key<max_key_words> last_key;  // the prefix of its last record's key
  Buffer buffer;                // has the records at its start, unless they are elsewhere:
  const std::byte* in_place = nullptr;
  std::optional<std::uint64_t> fingerprint;  // of the records as they were read, where wanted
  // Of the first where records vary in length or are skipped: its number in the run, skipped ones
  // counted, and the byte of the run's file.
  std::uint64_t number = 0, offset = 0;
  bool words_ascend = false;  // of entries: their words are known to
  const std::byte* records() const { return in_place ? in_place : buffer.bytes().data(); }
};
using ChunkRef = std::shared_ptr<const Chunk>;

// The bytes of `count` > 0 of the chunk's records, from `first` on.
inline std::span<const std::byte> bytes_of(const KeyLayout& layout, const Chunk& chunk,
                                           std::uint64_t first, std::uint64_t count) {
  return bytes_of(layout, chunk.records() + first * layout.record_bytes, count);
}

// A stretch of one chunk that one unit consumes. Keeps its chunk alive; copies nothing.
struct Segment {
  ChunkRef chunk;
  std::uint64_t first;  // record within the chunk
  std::uint64_t count;  // > 0
};

// Segments that together hold exactly the records of one output range. They stand in the order of
// their runs, and a run's segments in the order of its records, one after the other without a gap:
// so a stable merge of the segments in this order is the stable merge of the runs.
struct WorkUnit {
  std::uint64_t sequence = 0;  // units are written in this order
  std::uint64_t records = 0;
  std::vector<Segment> segments;
  std::uint64_t rank = 0;    // of its first record
  std::uint64_t bytes = 0;   // of its records; of entries, what they stand for
  std::uint64_t offset = 0;  // of its first byte in the output
};

// What a backend that looks found out about a unit's records, besides that they are in order.
struct UnitProof {
  std::uint64_t read;     // their portable_fingerprint() as they came; 0 if their chunks have it
  std::uint64_t written;  // the same of the merged unit, as it left
  // Where its last record begins in it; of records of variable length, which has to be found.
  std::uint64_t last_offset = 0;
};

}  // namespace corank
