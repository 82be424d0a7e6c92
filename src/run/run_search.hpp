// Searches sorted runs by rank and by key, in their files.
//
// Positions count records, or bytes if records vary in length. The format must be searchable; see
// FormatTraits. Throws Error if a file cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "corank/query.hpp"
#include "format/record_format.hpp"
#include "run/run.hpp"
#include "util/probe_threads.hpp"

namespace corank {

// Narrows the runs to the keys in [Query::from, Query::to). Searches all at the same time.
void keep_range(std::span<Run> runs, const RecordFormat& format, const Query& query);

// Returns the cuts of the runs at ascending ranks, none more than their total: a position in each
// run, such that the records before are the first of the merge. If records vary in length, a cut is
// near `rank` bytes, and equal keys are on one side. Throws RunOutOfOrder if records that it reads
// are out of order.
std::vector<std::vector<std::uint64_t>> cuts_at(std::span<const std::uint64_t> ranks,
                                                std::span<const Run> runs,
                                                const RecordFormat& format, ProbeThreads& threads);

}  // namespace corank
