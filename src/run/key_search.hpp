// Finds keys in whole runs, by probing their files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/key.hpp"
#include "run/run.hpp"

namespace corank {

// The first record of `run` that does not sort before `record`, or else that sorts after it; the
// number of records if there is none. Reads about log2(records) small blocks.
std::uint64_t lower_bound(const Run& run, const KeyLayout& layout, const std::byte* record);
std::uint64_t upper_bound(const Run& run, const KeyLayout& layout, const std::byte* record);

}  // namespace corank
