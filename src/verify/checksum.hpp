// Checksum of records that depends neither on their order nor on their distribution over files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "corank/key.hpp"

namespace corank {

// Returns the sum modulo 2^64 of the XXH64 (seed 0) of every record.
std::uint64_t records_checksum(std::span<const std::byte> records, std::uint32_t record_bytes);

// Returns the sum modulo 2^64 of the XXH64 (seed 0) of every record that `entries` point to.
std::uint64_t prefix_refs_checksum(const TextLayout& layout, std::span<const PrefixRef> entries);

// Returns the sum of the checksums of contiguous rows' records.
inline std::uint64_t rows_checksum(const KeyLayout& layout, const std::byte* rows,
                                   std::uint64_t count) {
  if (layout.text)
    return prefix_refs_checksum(*layout.text, {reinterpret_cast<const PrefixRef*>(rows), count});
  return records_checksum({rows, count * layout.record_bytes}, layout.record_bytes);
}

}  // namespace corank
