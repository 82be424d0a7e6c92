// Finds keys in sorted runs of fixed-size records, by binary search in their files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/key.hpp"
#include "run/block_reader.hpp"

namespace corank {

// lower_bound() returns the first record of `run` that does not sort before `record`; upper_bound()
// returns the first that sorts after it. Both return the number of records if there is none.
// lower_bound() reads about log2(records) records one after another, and the last block;
// upper_bound() about 2 log2(result), so that a result near the start takes one read.
std::uint64_t lower_bound(BlockReader& run, const KeyLayout& layout, const std::byte* record);
std::uint64_t upper_bound(BlockReader& run, const KeyLayout& layout, const std::byte* record);

}  // namespace corank
