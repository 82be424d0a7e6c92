// The checksum that does not depend on the order of records or on how they are spread over files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "corank/text_key.hpp"

namespace corank {

// The sum modulo 2^64 of XXH64 (seed 0) of every record.
std::uint64_t records_checksum(std::span<const std::byte> records, std::uint32_t record_bytes);

// The same of the records that entries stand for.
std::uint64_t prefix_refs_checksum(const TextLayout& layout, std::span<const PrefixRef> entries);

}  // namespace corank
