// Cuts work units of equal size from the chunks of the runs.
//
// One thread calls next(). A unit keeps its chunks alive and copies no records.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "run/chunk_reader.hpp"
#include "run/pass_plan.hpp"
#include "run/work_unit.hpp"

namespace corank {

class UnitCutter {
 public:
  // `source` and `encoding` must outlive the cutter. `at_once` units are cut side by side, for
  // whose records there must be chunks.
  UnitCutter(ChunkReader& source, const KeyEncoding& encoding, const PassPlan& plan,
             std::uint64_t at_once);

  // Returns the next unit, with plan.unit_records records, fewer in the last one or while a pipe
  // has no data; nothing after the last. Units of variable-length records have fewer records if
  // necessary to stay within plan.unit_bytes, which only a single record may exceed. Throws
  // RunOutOfOrder if two chunks, or the two sides of a cut, are out of order, and what
  // ChunkReader::next() throws.
  std::optional<WorkUnit> next();

 private:
  // Loaded chunks of one run. The last one stays, to be compared with its successor.
  struct Window {
    std::vector<ChunkRef> chunks;
    std::uint64_t begin = 0;         // first record that is in no unit
    std::uint64_t complete_end = 0;  // records before it precede all records not loaded
    std::uint64_t end = 0;           // first record not loaded

    const Chunk& chunk_of(std::uint64_t record) const;
  };

  void gather(std::uint64_t records, std::uint64_t bytes);
  void complete(Window& window, std::uint64_t end);
  void complete_up_to(const Chunk& drained);
  bool take(std::uint32_t run);
  void cut_units();
  std::uint64_t likely_records() const;
  std::vector<std::vector<std::uint64_t>> cut_at_multiples_of(std::uint64_t records) const;
  std::vector<std::uint64_t> cut(std::uint64_t records) const;
  std::uint64_t bytes_before_cut(std::span<const std::uint64_t> ends) const;
  void consume(std::uint32_t run, std::uint64_t end, WorkUnit& unit);
  bool sorts_before(std::uint32_t run, std::uint32_t other) const;

  ChunkReader& source_;
  const KeyEncoding& encoding_;
  std::uint64_t unit_records_;
  std::uint64_t unit_bytes_;
  std::uint64_t sequence_ = 0;
  std::uint64_t rank_ = 0;    // of the next unit
  std::uint64_t offset_ = 0;  // of the next unit
  bool started_ = false;
  std::vector<Window> windows_;
  std::uint64_t units_at_once_;
  // The next units: where each of them ends in each run.
  std::deque<std::vector<std::uint64_t>> cut_ahead_;

  // The frontier merges the chunks by their last keys. A chunk that leaves the heap is complete:
  // all records not loaded sort after its last record.
  std::vector<std::uint32_t> frontier_;   // heap of runs by the last loaded key
  std::optional<std::uint32_t> drained_;  // run of the chunk that left the heap last
  std::uint64_t complete_ = 0;            // complete records that are in no unit
  std::uint64_t complete_bytes_ = 0;      // bytes of the complete records
};

// Makes units of the runs one after another, whatever their keys. It is the baseline that reads and
// writes what a merge does, but does not merge.
class Concatenation {
 public:
  // A unit has the records and bytes of the plan, or fewer if it reaches `unit_chunks` chunks,
  // which bounds its memory even for very short runs.
  Concatenation(ChunkReader& source, const KeyEncoding& encoding, const PassPlan& plan,
                std::uint64_t unit_chunks)
      : source_(source),
        encoding_(encoding),
        unit_records_(plan.unit_records),
        unit_bytes_(plan.unit_bytes),
        unit_chunks_(unit_chunks) {}

  // Returns the next unit; the last one may have fewer records. Returns nothing after it.
  std::optional<WorkUnit> next();

 private:
  ChunkReader& source_;
  const KeyEncoding& encoding_;
  std::uint64_t unit_records_;
  std::uint64_t unit_bytes_;
  std::uint64_t unit_chunks_;
  std::uint64_t sequence_ = 0;
  std::uint64_t rank_ = 0;
  std::uint64_t offset_ = 0;
  std::uint32_t run_ = 0;
  ChunkRef chunk_;           // the chunk taken last
  std::uint64_t taken_ = 0;  // records of that chunk in units
};

}  // namespace corank
