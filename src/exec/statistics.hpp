// Converts the totals of a merge's passes to Stats.
//
// Call these after the passes have ended; times are seconds.
#pragma once

#include <cstdint>
#include <string>

#include "corank/stats.hpp"
#include "exec/pass.hpp"

namespace corank {

// Sets the counts and times of `stats` that are those of all passes together.
void set_totals(const PassTotals& totals, Stats& stats);

// Returns the bottleneck: from the output upstream, the first stage that does not mostly wait for
// the stage before it. `wall_seconds` is the wall time summed over all partitions; `writing` names
// the write stage. Reads `busy`, `waits`, `seconds` and `bytes_written` of `stats`. Returns an
// empty Bound if no pass ran.
Stats::Bound find_bound(const Stats& stats, double wall_seconds, std::string writing);

// Returns the max resident set size of this process so far, in bytes.
std::uint64_t peak_memory_bytes();

}  // namespace corank
