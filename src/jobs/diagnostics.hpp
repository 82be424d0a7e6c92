// Error reports of a merge: find the offending records in the runs and throw an error that names
// them.
//
// Slow paths: they may read whole runs again. Each function throws, always.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "corank/query.hpp"
#include "format/record_format.hpp"
#include "jobs/scan.hpp"
#include "run/run.hpp"
#include "run/work_unit.hpp"

namespace corank {

// Throws OutOfOrder for record `index` of the block, which sorts before its predecessor. May read
// the file up to there again, to count its lines.
[[noreturn]] void throw_disorder(const Run& run, const RecordFormat& format,
                                 const ScannedBlock& block, std::uint64_t index);

// Throws OutOfOrder for the first record of `run` that is out of order. `found` is any such record;
// it is reported itself if the run is a pipe, which cannot be read again. Throws Corrupted if the
// run is in order after all, or is a temporary run.
[[noreturn]] void throw_first_out_of_order(const Run& run, const RunOutOfOrder& found,
                                           const RecordFormat& format);

// Throws Corrupted: a temporary run does not hold the bytes that were written to it.
[[noreturn]] void throw_temporary_corrupted(const Run& run);

// Throws Error, which names the first two records of `runs` that fulfil Query::where and have the
// key of `record`. Runs that `are_sorted` are searched for it. Skips pipes, which cannot be read
// again.
[[noreturn]] void throw_equal(std::span<const Run> runs, bool are_sorted,
                              const RecordFormat& format, const Query& query,
                              std::span<const std::byte> record);

}  // namespace corank
