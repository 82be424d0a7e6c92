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
#include "run/run.hpp"

namespace corank {

// Returns the start of the first line that begins after byte `at`; the run's end if there is none.
std::uint64_t next_line(const Run& run, const RecordFormat& format, std::uint64_t at);
// Returns the start of the line before the one at `at` > 0.
std::uint64_t line_before(const Run& run, const RecordFormat& format, std::uint64_t at);
// Returns the line that begins at byte `at`, with its terminator.
std::vector<std::byte> line_at(const Run& run, const RecordFormat& format, std::uint64_t at);

enum class Bound {
  lower,  // after all lines that sort before the key
  upper,  // after its equals, too
};

// Returns the bound of `key` in `run`. Searches between `from` and `to`, where lines begin. Reads a
// few KiB about log2(to - from) times.
std::uint64_t find_line(const Run& run, const RecordFormat& format, const RowBound& key,
                        Bound bound, std::uint64_t from, std::uint64_t to);

// Returns a position in each run such that all lines before them sort before all other lines. The
// positions add up to about `bytes`: as near as equal keys allow, or within a thousandth of the
// total.
std::vector<std::uint64_t> cut_lines(std::uint64_t bytes, std::span<const Run> runs,
                                     const RecordFormat& format);

}  // namespace corank
