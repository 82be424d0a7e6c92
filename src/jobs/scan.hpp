// Full scan of one run: checks the order, sums the checksum, or visits every record.
//
// Blocks until the run is read. Runs of variable-length records must count bytes. Throws Error if
// the run cannot be read, and Interrupted if its stop token asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "corank/options.hpp"
#include "format/record_format.hpp"
#include "run/run.hpp"

namespace corank {

// Threads and memory of a scan.
struct ScanShare {
  unsigned threads = 1;  // that find records of variable length
  // Half of it is for very long records; 0: the default of Options::memory_bytes.
  std::uint64_t memory_bytes = 0;
};

// How many files are scanned at a time, and what each scan may use.
struct ScansAtOnce {
  std::uint64_t files;
  ScanShare share;
};

// Returns as many scans of `files` files as the threads and the memory of the options allow.
ScansAtOnce scans_at_once(std::size_t files, const Options& options);

// Consecutive records of a run. Valid only during the callback.
struct ScannedBlock {
  const std::byte* before;  // row before the first; null at the start of the run
  RowSpan rows;             // at least one
  std::uint64_t first;      // number of the first record in the run, skipped ones included
  std::uint64_t offset;     // byte at which the first record begins, after decompression
};

// Returns the byte of the run at which record `index` of the block begins, after decompression.
std::uint64_t offset_of(const RecordFormat& format, const ScannedBlock& block, std::uint64_t index);

// Calls `visit` with all records of the run, block by block, in order, on the calling thread.
// Returns how many records were skipped (see BadNumbers).
std::uint64_t scan_blocks(const Run& run, const RecordFormat& format,
                          const std::function<void(const ScannedBlock&)>& visit,
                          const ScanShare& share = {});

// Looks at a block, on any thread, and returns what is to be called in the order of the blocks.
using LookAt = std::function<std::function<void()>(const ScannedBlock&)>;

// Calls `look` with all records of the run, several blocks at a time, on up to `share.threads`
// threads. The first failure in the order of the records is thrown. Returns how many records were
// skipped.
std::uint64_t scan_side_by_side(const Run& run, const RecordFormat& format, const ScanShare& share,
                                const LookAt& look);

// Throws OutOfOrder for the first record of the block that sorts before its predecessor.
void check_order(const Run& run, const RecordFormat& format, const ScannedBlock& block);

struct ScanResult {
  std::uint64_t records = 0;   // without skipped ones
  std::uint64_t checksum = 0;  // see CheckResult::checksum
};

// Counts the records of the run and sums their checksum, if wanted. Throws OutOfOrder for the first
// record that sorts before its predecessor, if `is_ordered`.
ScanResult scan(const Run& run, const RecordFormat& format, bool checksum, bool is_ordered = true,
                const ScanShare& share = {});

}  // namespace corank
