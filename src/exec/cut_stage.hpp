// The first stage: reads chunks ahead of need and cuts work units from them.
//
// Units of runs in memory are cut several at a time, by a thread of their own while those before
// are merged: a filter of the pipeline would begin only when a unit in flight is free.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <vector>

#include "exec/pass.hpp"
#include "exec/pass_facts.hpp"
#include "run/chunk_reader.hpp"
#include "run/unit_cutter.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

class CutStage {
 public:
  // Begins to read. The arguments must outlive the stage.
  CutStage(const Pass& pass, const PassFacts& facts, PassTotals& totals);

  // Returns the next unit; none after the last. Throws what UnitCutter::next throws. Time in which
  // no unit was cut before the call counts as a wait for a free unit in flight.
  std::optional<WorkUnit> next();

  // Throws Corrupted unless every record was read, of runs that count records.
  void check_all_read() const;
  // Throws Corrupted unless the units held every record that was to be read.
  void check_complete() const;
  ChunkReader& source() { return reader_; }
  void add_to_totals();

 private:
  void cut_ahead();
  void check_gapless(const WorkUnit& unit);

  const Pass& pass_;
  const PassFacts& facts_;
  PassTotals& totals_;
  BufferPool chunk_pool_;
  ChunkReader reader_;
  UnitCutter cutter_;
  Concatenation concatenation_;
  std::vector<std::uint64_t> records_in_units_;  // of each run
  TraceClock::time_point cut_until_ = TraceClock::now();
  const bool cuts_ahead_;
  std::future<void> ahead_;  // last: its thread uses the other members
};

}  // namespace corank
