// Runs the partitions of one pass. This is the only place that knows TBB's pipeline.
#pragma once

#include <span>

#include "exec/pass.hpp"

namespace corank {

// Runs the partitions side by side and adds to `totals`. Throws RunOutOfOrder, Interrupted, or
// Error: Corrupted where the output is not the runs' records in order. The first failure stops all
// partitions.
void run_passes(std::span<const Pass> partitions, PassTotals& totals);

}  // namespace corank
