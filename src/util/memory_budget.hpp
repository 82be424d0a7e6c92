// Memory budget of a merge.
#pragma once

#include <cstdint>

namespace corank {

// Returns `wanted_bytes`; if that is 0, a quarter of the physical memory, at most 4 GiB.
std::uint64_t memory_budget(std::uint64_t wanted_bytes);

}  // namespace corank
