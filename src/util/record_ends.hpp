// Finds the ends of lines and of CSV records by SIMD. Functions own nothing, are thread-safe, and
// count in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace corank {

// Entries of `ends` that a search may write beyond those that it returns.
inline constexpr std::size_t min_ends_room = 64;

// Writes the offset of each `terminator` in `bytes` to `ends`, as long as `ends` has room for
// min_ends_room more. Returns their number, and sets `scanned` to the number of bytes searched.
using FindEnds = std::size_t(std::span<const std::byte> bytes, char terminator,
                             std::span<std::uint32_t> ends, std::size_t& scanned);

// The bytes that mean something in CSV besides the quote; `escape` is 0 if there is none.
struct CsvBytes {
  char delimiter, terminator, escape;
};

// Writes the offsets of the terminators of the CSV records in `bytes`, which begins with a record,
// to `ends`, as long as `ends` has room for min_ends_room more. Returns their number. May stop
// before any record, and stops before one that is incomplete, has an escape or a quote inside an
// unquoted column, or has more than a carriage return between a closing quote and the end of its
// column.
using FindCsvEnds = std::size_t(const CsvBytes& csv, std::span<const std::byte> bytes,
                                std::span<std::uint32_t> ends);

// One implementation of both searches.
struct EndFinder {
  FindEnds* lines;
  FindCsvEnds* csv;
};
// Returns the implementations that this processor supports, the fastest first.
std::span<const EndFinder> end_finders();

}  // namespace corank
