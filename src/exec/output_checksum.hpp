// The checksum of merged pieces, on the cores of the caller's arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "corank/key.hpp"

namespace corank {

// Returns the sum modulo 2^64 of the XXH64 of every record of the pieces. Throws Corrupted where a
// piece does not consist of whole records.
std::uint64_t output_checksum(const KeyLayout& layout,
                              std::span<const std::span<const std::byte>> pieces);

}  // namespace corank
