// Finds keys in sorted lines by their place in the file: cuts for parts, ranges, and for going on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "run/run.hpp"

namespace corank {

// All of it is for lines, whose terminator stands nowhere else; runs count bytes.

// Where the first line begins that does so behind byte `at`; the run's end if there is none.
std::uint64_t next_line(const Run& run, const TextLayout& text, std::uint64_t at);
// Where the line before the one at `at` > 0 begins.
std::uint64_t line_before(const Run& run, const TextLayout& text, std::uint64_t at);
// The line that begins at byte `at`, with its terminator.
std::vector<std::byte> line_at(const Run& run, const TextLayout& text, std::uint64_t at);

// Lines that sort nowhere, since a key of theirs that is to be a number is none, are passed over
// by the searches below: they may stand anywhere.
enum class Bound {
  lower,  // behind all records that sort before a key
  upper,  // behind its equals, too
};

// The bound of `key`, a whole line, in `run`. Lines are compared with it by `by`, which is `text`
// or has the first of its columns only. They begin at `from` and `to`, between which it is sought.
// Takes about log2 of the bytes between them reads of a few KiB.
std::uint64_t find_line(const Run& run, const TextLayout& text, const TextLayout& by,
                        std::span<const std::byte> key, Bound bound, std::uint64_t from,
                        std::uint64_t to);

// Positions in the runs so that all lines before them sort before all others. Together they are
// near `bytes`: as near as equal keys allow, or within a thousandth of all.
std::vector<std::uint64_t> cut_lines(std::uint64_t bytes, std::span<const Run> runs,
                                     const TextLayout& text);

}  // namespace corank
