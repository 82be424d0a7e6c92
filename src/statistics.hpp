// What the passes of a merge add up to, in terms of Stats.
#pragma once

#include <cstdint>
#include <string>

#include "corank/stats.hpp"
#include "pipeline.hpp"

namespace corank {

Stats::Busy busy_of(const PassTotals& totals);
Stats::Waits waits_of(const PassTotals& totals);

// From the end of the pipeline upstream: the first stage that does not mostly wait for the one
// before it. `wall_seconds` are of all slices, `writing` is what writing is called; of `stats` it
// looks at the times and at what was written.
Stats::Bound find_bound(const Stats& stats, double wall_seconds, std::string writing);

// The resident set of this process at its largest.
std::uint64_t peak_memory_bytes();

}  // namespace corank
