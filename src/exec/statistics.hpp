// What the passes of a merge add up to, in terms of Stats.
#pragma once

#include <cstdint>
#include <string>

#include "corank/stats.hpp"
#include "exec/pass.hpp"

namespace corank {

Stats::Busy busy_of(const PassTotals& totals);
Stats::Waits waits_of(const PassTotals& totals);

// Names the stage that held up the others for the longest time.
//
// The cutter and the writer each have one unit at a time, so at any moment each of them is at work
// or waits for a neighbour. Each moment is held against the stage that was at work then, or that
// was waited for:
//
//   reading      the cutter waited for a chunk
//   cutting      the cutter worked
//   merging,     the cutter waited for a unit to leave the pipeline, and the writer for a unit to
//   verifying    be merged; shared out by how many units were merged and verified meanwhile
//   compressing  the writer waited for a compressed frame
//   writing      the output was written
//
// The largest of these times is the bound. It is not enough that a merge was in progress: a stage
// that takes up each unit as soon as there is one holds up nobody. So a stage after a slow one is
// not the bound, because the cutter does not wait for it, nor one before a slow one, because it
// does little work. Stages overlap, so the times may add up to more than the wall time.
//
// `wall_seconds` is the wall time of all partitions, added up; `writing` names the writing stage.
// Of `stats` only the times and `bytes_written` are read. Returns no name where no stage took time.
Stats::Bound find_bound(const Stats& stats, double wall_seconds, std::string writing);

// The resident set of this process at its largest.
std::uint64_t peak_memory_bytes();

}  // namespace corank
