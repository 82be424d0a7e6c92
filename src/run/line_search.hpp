// Binary search in the files of sorted lines, for the bounds of parts, of key ranges and of resumed
// merges.
//
// Positions are byte offsets in runs that count bytes. RecordFormat::end_of_record() must be one
// byte, which occurs only at line ends. Searches skip lines that have no order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/record_format.hpp"
#include "run/block_reader.hpp"
#include "run/run.hpp"
#include "util/probe_threads.hpp"

namespace corank {

// Returns the start of the first line that begins after byte `at`; the run's end if there is none.
std::uint64_t next_line(BlockReader& run, const RecordFormat& format, std::uint64_t at);
// Returns the start of the line before the one at `at` > 0.
std::uint64_t line_before(BlockReader& run, const RecordFormat& format, std::uint64_t at);
// Returns the line that begins at byte `at`, with its terminator.
std::vector<std::byte> line_at(BlockReader& run, const RecordFormat& format, std::uint64_t at);

enum class Bound {
  lower,  // after all lines that sort before the key
  upper,  // after its equals, too
};

// Returns the bound of `key` in `run`. Searches between `from` and `to`, where lines begin. Reads a
// few KiB about log2(to - from) times, and the last block.
std::uint64_t find_line(BlockReader& run, const RecordFormat& format, const RowBound& key,
                        Bound bound, std::uint64_t from, std::uint64_t to);

// Returns a position in each run such that all lines before them sort before all other lines. The
// positions add up to about `rank`: as near as equal keys allow, or within `precision` bytes.
// Searches all runs at the same time.
std::vector<std::uint64_t> cut_lines(std::uint64_t rank, std::span<const Run> runs,
                                     const RecordFormat& format, std::uint64_t precision,
                                     ProbeThreads& threads);

}  // namespace corank
