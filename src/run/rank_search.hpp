// Finds the bounds of partitions: co-ranking over whole runs of fixed-size records, by probing
// their files.
//
// All runs are probed at the same time, so that a cut waits for few reads one after another,
// however many runs there are. Failures to read are thrown as Error.
#pragma once

#include <cstdint>
#include <span>

#include "corank/algorithm/co_rank.hpp"
#include "corank/key.hpp"
#include "run/run.hpp"
#include "util/probe_threads.hpp"

namespace corank {

// Returns the cut of `runs` at `rank`, which must not exceed their number of records. Throws
// RunOutOfOrder if the probed records of a run are out of order. If runs are samples of the same
// distribution, it reads about ten records per run, and 64 KiB around the cut; otherwise about
// 2·log2(records) records. It takes at most log2(records) rounds and a few more.
Cut cut_runs(std::uint64_t rank, std::span<const Run> runs, const KeyEncoding& encoding,
             ProbeThreads& threads);

}  // namespace corank
