// Cuts slices: co-rank over whole runs, found by probing their files.
#pragma once

#include <cstdint>
#include <span>

#include "corank/algorithm/co_rank.hpp"
#include "corank/key.hpp"
#include "run/run.hpp"

namespace corank {

// The cut of `runs` at `rank`, which must not exceed their records. Reads a small block a probe,
// near 2·log2(records) of them a run.
Cut cut_runs(std::uint64_t rank, std::span<const Run> runs, const KeyEncoding& encoding);

}  // namespace corank
