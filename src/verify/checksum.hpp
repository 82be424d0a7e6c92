// Checksum of records that depends neither on their order nor on their distribution over files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "corank/key.hpp"
#include "format/rows.hpp"

namespace corank {

// Returns the sum modulo 2^64 of the XXH64 (seed 0) of every record.
std::uint64_t records_checksum(std::span<const std::byte> records, std::uint32_t record_bytes);

// Returns the sum modulo 2^64 of the XXH64 (seed 0) of every record that `refs` point to.
std::uint64_t prefix_refs_checksum(const TextLayout& layout, std::span<const PrefixRef> refs);

// Returns the sum of the XXH64 (seed 0) of lines. `ends` holds the offsets of their terminators
// from `lines`.
std::uint64_t lines_checksum(const std::byte* lines, std::span<const std::uint32_t> ends);

// Returns the sum of the checksums of contiguous rows' records.
inline std::uint64_t rows_checksum(const KeyLayout& layout, const std::byte* rows,
                                   std::uint64_t count) {
  return visit_rows(layout, rows, count, records_checksum, prefix_refs_checksum);
}

}  // namespace corank
