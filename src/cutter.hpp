// Cuts equal-size work units from the chunks in memory.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "reader.hpp"
#include "unit.hpp"

namespace corank {

class Cutter {
 public:
  // `reader` and `encoding` must outlive the cutter.
  Cutter(Reader& reader, std::span<const Run> runs, const KeyEncoding& encoding,
         std::uint64_t unit_records);

  // The next unit: unit_records records, the last one fewer; none after that. Throws RunDisorder
  // where two chunks or the two sides of a cut are out of order, and what Reader::next throws.
  std::optional<WorkUnit> next();

 private:
  // The chunks of one run that are in memory. The last one taken stays until its successor comes,
  // to be compared with it.
  struct Window {
    std::vector<ChunkRef> chunks;
    std::uint64_t begin = 0;         // the first record that no unit has
    std::uint64_t complete_end = 0;  // records before it are known to precede all that is not here
    std::uint64_t end = 0;           // the first record that is not here

    const Chunk& chunk_of(std::uint64_t record) const;
  };

  void gather(std::uint64_t records);
  void take(std::uint32_t run);
  void cut_units();
  std::vector<std::uint64_t> cut(std::uint64_t records) const;
  void consume(std::uint32_t run, std::uint64_t records, WorkUnit& unit);
  bool sorts_before(std::uint32_t run, std::uint32_t other) const;

  Reader& reader_;
  std::span<const Run> runs_;
  const KeyEncoding& encoding_;
  std::uint64_t unit_records_;
  std::uint64_t sequence_ = 0;
  std::uint64_t rank_ = 0;  // of the next unit
  bool started_ = false;
  std::vector<Window> windows_;
  std::uint64_t units_at_once_;
  // What the next units consume of each run, where several were cut side by side.
  std::deque<std::vector<std::uint64_t>> cut_ahead_;

  // A merge of the chunks by their last keys: a chunk that leaves the heap is complete, since
  // everything that is not in memory sorts after its last record.
  std::vector<std::uint32_t> frontier_;   // heap of runs by the last key in memory
  std::optional<std::uint32_t> drained_;  // the run whose chunk left last, if it has more
  std::uint64_t complete_ = 0;            // records that are complete and in no unit
};

// Makes units that are the runs one after another, whatever their keys: what a merge reads and
// writes, without the merge.
class Concatenation {
 public:
  // A unit has `unit_records` records, or fewer in `unit_chunks` chunks, so that its memory is
  // bounded however short the runs are.
  Concatenation(Reader& reader, std::span<const Run> runs, std::uint64_t unit_records,
                std::uint64_t unit_chunks)
      : reader_(reader), runs_(runs), unit_records_(unit_records), unit_chunks_(unit_chunks) {}

  // The next unit; the last one may have fewer records.
  std::optional<WorkUnit> next();

 private:
  Reader& reader_;
  std::span<const Run> runs_;
  std::uint64_t unit_records_;
  std::uint64_t unit_chunks_;
  std::uint64_t sequence_ = 0;
  std::uint64_t rank_ = 0;
  std::uint32_t run_ = 0;
  std::uint64_t taken_ = 0;  // records of run_ that are in units
  ChunkRef chunk_;           // the last one taken
};

}  // namespace corank
