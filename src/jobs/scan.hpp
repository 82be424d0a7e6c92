// Full scan of one run: checks the order, sums the checksum, or visits every record.
//
// Blocks until the run is read; callbacks run on the calling thread. Variable-length runs must
// count bytes (Run::count_bytes()). Throws Error if the run cannot be read, and Interrupted if its
// stop token asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "format/text_columns.hpp"
#include "run/run.hpp"

namespace corank {

// Consecutive records of a run. Valid only during the callback.
struct ScannedBlock {
  const std::byte* before;   // record before the first; null at the start of the run
  const std::byte* records;  // fixed-size records, or prefix references of variable-length ones
  std::uint64_t count;       // number of records, at least 1
  std::uint64_t first;       // number of the first record in the run, skipped ones included
  std::uint64_t offset;      // byte at which the first record begins, after decompression
};

// Returns the byte of the run at which record `index` of the block begins, after decompression.
std::uint64_t offset_of(const KeyLayout& layout, const ScannedBlock& block, std::uint64_t index);

// Calls `visit` with all records of the run, block by block, in order. Returns how many records
// were skipped (see BadNumbers).
std::uint64_t scan_blocks(const Run& run, const KeyEncoding& encoding,
                          const std::function<void(const ScannedBlock&)>& visit);

struct ScanResult {
  std::uint64_t records = 0;   // without skipped ones
  std::uint64_t checksum = 0;  // see CheckResult::checksum
};

// Counts the records of the run and sums their checksum, if wanted. Throws OutOfOrder for the first
// record that sorts before its predecessor.
ScanResult scan(const Run& run, const KeyEncoding& encoding, bool checksum);

struct FoundRecord {
  std::uint64_t record;  // number in the run, from 0, skipped ones included
  std::uint64_t byte;    // byte at which it begins, after decompression
};

// Returns the first variable-length records, at most `most`, that have the key of `record` and pass
// `filter` (null: any).
std::vector<FoundRecord> find_equals(const Run& run, const KeyEncoding& encoding,
                                     const TextFilter* filter, std::span<const std::byte> record,
                                     unsigned most);

}  // namespace corank
