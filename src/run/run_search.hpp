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

// Returns the position of the first record that does not sort before the bound; that of the end if
// there is none. Searches before `end`, which is the end of a record.
std::uint64_t find(const Run& run, const RecordFormat& format, const RowBound& bound,
                   std::uint64_t end);

// Narrows the runs to the keys in [Query::from, Query::to). Searches all at the same time.
void keep_range(std::span<Run> runs, const RecordFormat& format, const Query& query);

// Returns the cuts of the runs at ascending ranks, none more than their total: a position in each
// run, such that the records before are the first of the merge. If records vary in length, a cut is
// near `rank` bytes, and equal keys are on one side. Throws RunOutOfOrder if records that it reads
// are out of order.
std::vector<std::vector<std::uint64_t>> cuts_at(std::span<const std::uint64_t> ranks,
                                                std::span<const Run> runs,
                                                const RecordFormat& format, ProbeThreads& threads);

// Return where the last record begins that begins at or before `position`, and where the first one
// ends that ends at or after it.
std::uint64_t begin_of_record(const Run& run, const RecordFormat& format, std::uint64_t position);
std::uint64_t end_of_record(const Run& run, const RecordFormat& format, std::uint64_t position);
// Returns the record that begins at `position`.
std::vector<std::byte> record_at(const Run& run, const RecordFormat& format,
                                 std::uint64_t position);

}  // namespace corank
