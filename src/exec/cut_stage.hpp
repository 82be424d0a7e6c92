// The first stage: reads chunks ahead of need and cuts work units from them, one at a time.
#pragma once

#include <cstdint>
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

  // Returns the next unit; none after the last. Throws what UnitCutter::next throws.
  std::optional<WorkUnit> next();
  // Counts the time since the last unit as a wait for a free unit in flight.
  void end_wait();

  // Throws Corrupted unless every record was read, of runs that count records.
  void check_all_read() const;
  // Throws Corrupted unless the units held every record that was to be read.
  void check_complete() const;
  ChunkReader& source() { return reader_; }
  void add_to_totals();

 private:
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
};

}  // namespace corank
