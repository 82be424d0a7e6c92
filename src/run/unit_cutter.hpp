// Cuts equal-size work units from the chunks in memory.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "format/work_unit.hpp"
#include "run/chunk_source.hpp"
#include "run/pass_plan.hpp"

namespace corank {

class UnitCutter {
 public:
  // `source` and `encoding` must outlive the cutter. `at_once`: so many units are cut side by side
  // where the memory of chunks is no matter.
  UnitCutter(ChunkSource& source, const KeyEncoding& encoding, const PassPlan& plan,
             std::uint64_t at_once);

  // The next unit: plan.unit_records records, the last one fewer; none after that. Units of records
  // of variable length have fewer where so many have more than plan.unit_bytes bytes, and more
  // bytes only where they are a single record. Throws RunOutOfOrder where two chunks or the two
  // sides of a cut are out of order, and what ChunkSource::next throws.
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

  void gather(std::uint64_t records, std::uint64_t bytes);
  bool take(std::uint32_t run);
  void cut_units();
  std::vector<std::uint64_t> cut(std::uint64_t records) const;
  std::vector<std::uint64_t> cut_text() const;
  std::uint64_t bytes_of_cut(std::span<const std::uint64_t> positions) const;
  void consume(std::uint32_t run, std::uint64_t records, WorkUnit& unit);
  bool sorts_before(std::uint32_t run, std::uint32_t other) const;

  ChunkSource& source_;
  const KeyEncoding& encoding_;
  std::uint64_t unit_records_;
  std::uint64_t unit_bytes_;
  std::uint64_t sequence_ = 0;
  std::uint64_t rank_ = 0;    // of the next unit
  std::uint64_t offset_ = 0;  // of the next unit
  bool started_ = false;
  std::vector<Window> windows_;
  std::uint64_t units_at_once_;
  // What the next units consume of each run, where several were cut side by side.
  std::deque<std::vector<std::uint64_t>> cut_ahead_;

  // A merge of the chunks by their last keys: a chunk that leaves the heap is complete, since
  // everything that is not in memory sorts after its last record.
  std::vector<std::uint32_t> frontier_;   // heap of runs by the last key in memory
  std::optional<std::uint32_t> drained_;  // the run whose chunk left last
  std::uint64_t complete_ = 0;            // records that are complete and in no unit
  std::uint64_t complete_bytes_ = 0;      // of them
};

// Makes units that are the runs one after another, whatever their keys: what a merge reads and
// writes, without the merge.
class Concatenation {
 public:
  // A unit has as many records and bytes as plan says, or fewer in `unit_chunks` chunks, so that
  // its memory is bounded however short the runs are.
  Concatenation(ChunkSource& source, const KeyEncoding& encoding, const PassPlan& plan,
                std::uint64_t unit_chunks)
      : source_(source),
        encoding_(encoding),
        unit_records_(plan.unit_records),
        unit_bytes_(plan.unit_bytes),
        unit_chunks_(unit_chunks) {}

  // The next unit; the last one may have fewer records.
  std::optional<WorkUnit> next();

 private:
  ChunkSource& source_;
  const KeyEncoding& encoding_;
  std::uint64_t unit_records_;
  std::uint64_t unit_bytes_;
  std::uint64_t unit_chunks_;
  std::uint64_t sequence_ = 0;
  std::uint64_t rank_ = 0;
  std::uint64_t offset_ = 0;
  std::uint32_t run_ = 0;
  ChunkRef chunk_;           // the last one taken
  std::uint64_t taken_ = 0;  // records of it that are in units
};

}  // namespace corank
