// Checksum of records that depends neither on their order nor on their distribution over files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "corank/text_key.hpp"

namespace corank {

// Returns the sum modulo 2^64 of the XXH64 (seed 0) of every record.
std::uint64_t records_checksum(std::span<const std::byte> records, std::uint32_t record_bytes);

// Returns the sum modulo 2^64 of the XXH64 (seed 0) of every record that `entries` point to.
std::uint64_t prefix_refs_checksum(const TextLayout& layout, std::span<const PrefixRef> entries);

}  // namespace corank
