// Looks at every record of one run.
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

// Some of a run's records, one after another.
struct ScannedBlock {
  const std::byte* before;  // the record before the first; null if there is none
  const std::byte* records;
  std::uint64_t count;   // more than 0
  std::uint64_t first;   // the number of the first, in the run, skipped ones counted
  std::uint64_t offset;  // of the first in the run's file, or in what that is decompressed to
};

// Where record `index` of the block begins, as `offset` counts.
std::uint64_t offset_of(const KeyLayout& layout, const ScannedBlock& block, std::uint64_t index);

// Calls `look` with all records of a run that is open or in memory, in their order; where they vary
// in length, of one that counts bytes. Returns how many were skipped, see BadNumbers.
std::uint64_t scan_blocks(const Run& run, const KeyEncoding& encoding,
                          const std::function<void(const ScannedBlock&)>& look);

struct ScanResult {
  std::uint64_t records = 0;
  std::uint64_t checksum = 0;
};

// What check() does, for runs as of scan_blocks().
ScanResult scan(const Run& run, const KeyEncoding& encoding, bool checksum);

struct FoundRecord {
  std::uint64_t record;  // counted in the run, skipped ones, too, from 0
  std::uint64_t byte;    // of the file
};

// The first records of variable length, at most `most`, that pass the filter, if any, and have the
// key of `record`; the run counts bytes.
std::vector<FoundRecord> find_equals(const Run& run, const KeyEncoding& encoding,
                                     const TextFilter* filter, std::span<const std::byte> record,
                                     unsigned most);

}  // namespace corank
