// Finds the bounds of partitions: co-ranking over whole runs, by probing their files.
#pragma once

#include <cstdint>
#include <span>

#include "corank/algorithm/co_rank.hpp"
#include "corank/key.hpp"
#include "run/run.hpp"

namespace corank {

// Returns the cut of `runs` at `rank`, which must not exceed their number of records. Reads about
// 2·log2(records) small blocks per run.
Cut cut_runs(std::uint64_t rank, std::span<const Run> runs, const KeyEncoding& encoding);

}  // namespace corank
