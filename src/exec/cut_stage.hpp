// The first stage: reads chunks ahead of need and cuts work units from them, one at a time.
//
// Units of runs in memory are cut by a thread of their own, ahead of need: a filter of the pipeline
// would begin only when a unit in flight is free.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "exec/pass.hpp"
#include "exec/pass_facts.hpp"
#include "run/chunk_reader.hpp"
#include "run/unit_cutter.hpp"
#include "util/buffer_pool.hpp"
#include "util/worker_queue.hpp"

namespace corank {

class CutStage {
 public:
  // Begins to read. The arguments must outlive the stage.
  CutStage(const Pass& pass, const PassFacts& facts, PassTotals& totals);

  // Returns the next unit; none after the last, and must not be called again then. Throws what
  // UnitCutter::next throws. Time in which no unit is cut counts as a wait for a free unit in
  // flight.
  std::optional<WorkUnit> next();

  // Throws Corrupted unless every record was read, of runs that count records.
  void check_all_read() const;
  // Throws Corrupted unless the units held every record that was to be read.
  void check_complete() const;
  ChunkReader& source() { return reader_; }
  void add_to_totals();

 private:
  // A unit, none after the last, or what was thrown instead.
  struct Cut {
    std::optional<WorkUnit> unit = {};
    std::exception_ptr failure = nullptr;
    bool is_last() const { return !unit; }
  };
  struct CutJob {};

  std::optional<WorkUnit> cut();
  void cut_ahead();
  std::optional<WorkUnit> take_ahead();
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

  std::once_flag memory_left_;                // to the thread of ahead_
  std::deque<Cut> ready_;                     // guarded by the lock of ahead_
  std::optional<WorkerQueue<CutJob>> ahead_;  // last: its thread uses the other members
};

}  // namespace corank
