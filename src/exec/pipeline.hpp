// Runs the partitions of one pass. This is the only place that knows TBB's pipeline.
#pragma once

#include <span>

#include "exec/pass.hpp"

namespace corank {

// What the passes of a merge add up to. A wait is the time that a stage had nothing to do, named
// by the neighbour that it waited for.
struct PassTotals {
  std::atomic<std::uint64_t> bytes_read = 0;
  std::atomic<std::uint64_t> bytes_written = 0;
  std::atomic<std::uint64_t> records_written = 0;                        // by shapes
  std::atomic<std::uint64_t> records_replaced = 0, records_deleted = 0;  // see ResolvedCounts
  std::atomic<std::uint64_t> units = 0;
  std::atomic<std::uint64_t> records = 0;  // written
  std::atomic<std::uint64_t> records_skipped = 0;
  std::atomic<std::uint64_t> checksum = 0;
  std::atomic<bool> ended_early = false;  // some runs were not read to their ends

  StageClock wall = 0;  // of every slice
  StageClock read = 0;  // by all threads that read
  StageClock read_for_cut = 0;
  StageClock cut = 0;
  StageClock cut_for_read = 0;
  StageClock cut_for_merge = 0;  // for a token
  StageClock merge = 0;          // of all units, added up
  StageClock merge_for_cut = 0;  // while no unit was being merged
  StageClock merge_for_write = 0;
  StageClock write = 0;
  StageClock compress = 0;            // by all its threads
  StageClock write_for_compress = 0;  // no part of write
  StageClock verify = 0;              // of the output, while it is being written
  StageClock write_for_merge = 0;
};

// One slice of a pass, the only one as a rule.
struct Pass {
  // Whether the runs are read from their beginnings to their ends, and count bytes: always where
  // records vary in length.
  bool sequential = false;
  std::span<const Run> runs;
  const KeyEncoding& encoding;
  const PassPlan& plan;
  const OperatorChain* shape;  // that the backend has; null: every record goes out as it is
  std::uint64_t limit;  // of the records that go out of either shape; the rest need not be read
  const TextOperatorChain* text_operators = nullptr;  // the same of records of variable length
  const OutputOrder& output;
  Backend* backend;  // null: the runs are copied, one after another
  // None: the output is in memory, at `in_place`. Several are filled one after another, each with
  // an equal part of the limit.
  std::span<Writer> writers;
  std::span<std::byte> in_place;
  unsigned threads;
  std::stop_token stop;
  bool checksum;  // of the output
  // How what is read and written is verified; null: not at all. A backend that looks at its units
  // has only the portable one.
  FingerprintSum fingerprint;
  // Of each run, added up as its records are read; 0 where the backend reads them, which are in
  // memory then.
  std::span<std::atomic<std::uint64_t>> fingerprints;
  std::atomic<std::uint64_t>* written = nullptr;   // the same of what goes out; null: nobody asks
  std::function<void(std::uint64_t)> on_progress;  // told the bytes that each unit was made from
  Trace* trace;                                    // null: none is wanted
  unsigned partition;
};

// Runs the slices side by side. Throws RunOutOfOrder, Interrupted or Error: Corrupted where the
// output is not the runs' records in order.
void run_passes(std::span<const Pass> partitions, PassTotals& totals);

}  // namespace corank
