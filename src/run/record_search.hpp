// Binary search in the files of sorted records, for the bounds of parts, of key ranges and of
// resumed merges.
//
// Positions count records, or bytes if records vary in length. Where no byte tells that a record
// ends (FormatTraits::can_search), records are found from the last known start before them; see
// Run::start_before(). Searches skip records that have no order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "format/record_format.hpp"
#include "run/block_reader.hpp"
#include "run/run.hpp"
#include "util/probe_threads.hpp"

namespace corank {

// Returns the start of the first record that begins after `at`, or a position at or after `to` if
// none begins before `to`; at most the run's end.
std::uint64_t next_record(BlockReader& run, const RecordFormat& format, std::uint64_t at,
                          std::uint64_t to = std::numeric_limits<std::uint64_t>::max());
// Returns the start of the record before the one at `at`. Searches from `from` < `at` on, where a
// record begins.
std::uint64_t record_before(BlockReader& run, const RecordFormat& format, std::uint64_t at,
                            std::uint64_t from = 0);
// Returns the record that begins at `at`, with its terminator.
std::vector<std::byte> record_at(BlockReader& run, const RecordFormat& format, std::uint64_t at);

enum class Bound {
  lower,  // after all records that sort before the key
  upper,  // after its equals, too
};

// Returns the bound of `key` in `run`. Searches between `from` and `to`, where records begin. Reads
// a few KiB about log2(to - from) times, and the last block.
std::uint64_t find_record(BlockReader& run, const RecordFormat& format, const RowBound& key,
                          Bound bound, std::uint64_t from, std::uint64_t to);
// Returns the upper bound of `key` in `run`. Reads only once if it is near the start.
std::uint64_t find_near_start(BlockReader& run, const RecordFormat& format, const RowBound& key);

// Returns a position in each run such that all records before them sort before all other records,
// which vary in length. The positions add up to about `rank`: as near as equal keys allow, or
// within `precision` bytes. Searches all runs at the same time. Throws RunOutOfOrder if it notices
// that one is.
std::vector<std::uint64_t> cut_records(std::uint64_t rank, std::span<const Run> runs,
                                       const RecordFormat& format, std::uint64_t precision,
                                       ProbeThreads& threads);

}  // namespace corank
