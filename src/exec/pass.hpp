// Plain data of one pass: its runs, how they are merged, and where the output goes; and the totals
// of all passes.
//
// A Pass borrows everything that it points to, which must outlive its execution.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stop_token>

#include "backend/backend.hpp"
#include "exec/progress_meter.hpp"
#include "format/record_format.hpp"
#include "io/writer.hpp"
#include "plan/pass_planner.hpp"
#include "run/run.hpp"
#include "util/stopwatch.hpp"
#include "verify/fingerprint.hpp"
#include "verify/output_verifier.hpp"

namespace corank {

// Totals of the passes of one merge, added to by any thread. A wait is time in which a stage had
// nothing to do; it is named after the neighbour that the stage waited for.
struct PassTotals {
  std::atomic<std::uint64_t> bytes_read = 0;
  std::atomic<std::uint64_t> bytes_written = 0;
  std::atomic<std::uint64_t> records_written = 0;   // by operators; 0 without operators
  std::atomic<std::uint64_t> records_replaced = 0;  // see ResolvedCounts
  std::atomic<std::uint64_t> records_deleted = 0;
  std::atomic<std::uint64_t> units = 0;
  std::atomic<std::uint64_t> records = 0;  // merged
  std::atomic<std::uint64_t> records_skipped = 0;
  std::atomic<std::uint64_t> checksum = 0;
  std::atomic<bool> ended_early = false;  // some runs were not read to their ends

  StageClock wall = 0;  // of all partitions, added up
  StageClock read = 0;  // by all reading threads
  StageClock read_for_cut = 0;
  StageClock cut = 0;
  StageClock cut_for_read = 0;
  StageClock cut_for_merge = 0;  // until a unit in flight is free
  StageClock merge = 0;          // of all units, added up
  StageClock merge_for_cut = 0;  // while no unit was being merged
  StageClock merge_for_write = 0;
  StageClock write = 0;
  StageClock compress = 0;            // by all compressing threads
  StageClock write_for_compress = 0;  // not part of `write`
  StageClock verify = 0;              // of the output, while it is being written
  StageClock write_for_merge = 0;
};

// Shares of several part files that are written one after another: of the limit or of the bytes.
struct PartShares {
  bool of_limit = false;
  std::optional<std::uint64_t> bytes;  // of all parts, if known; not used with `of_limit`
  std::filesystem::path folder;        // for a temporary file, if `bytes` are unknown
  bool keep_keys = false;              // whether records with equal keys stay in one part
};

// One partition of a pass; most passes have only one.
struct Pass {
  // Whether runs are read from start to end and count bytes: always so for variable-length records.
  bool counts_bytes = false;
  std::span<const Run> runs;
  const RecordFormat& format;
  const PassPlan& plan;
  const OperatorChain* operators;  // applied by the backend; null: records are emitted unchanged
  std::uint64_t limit;             // max number of records that operators emit
  const OutputOrder& output;
  Backend* backend;           // null: the runs are copied, one after another
  Backend* sorter = nullptr;  // forms sorted runs of them; null: the CPU does
  // Empty if the output is in memory, at `in_place`. Several writers are filled one after another.
  std::span<Writer> writers;
  PartShares shares = {};
  std::span<std::byte> in_place;
  unsigned threads;
  std::stop_token stop;
  bool checksum;  // computes the checksum of the output
  // The hash by which input and output are compared; null: nothing is verified. A backend that
  // verifies its units supports the portable one only.
  FingerprintSum fingerprint;
  // One sum a run, added to as its records are read. Stays 0 for runs in memory that the backend
  // is the first to read.
  std::span<std::atomic<std::uint64_t>> fingerprints;
  std::atomic<std::uint64_t>* read = nullptr;     // hash of all that was read is added
  std::atomic<std::uint64_t>* written = nullptr;  // hash of the output is added; null: not wanted
  ProgressMeter& progress;                        // counts the input bytes of each unit
  Trace* trace;                                   // null: no trace is wanted
  unsigned partition;

  // Returns what reads the records of chunks; null if the pass itself does.
  Backend* reader() const { return backend ? backend : sorter; }
};

}  // namespace corank
