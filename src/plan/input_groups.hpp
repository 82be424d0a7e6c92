// Divides the inputs of a sort into groups of neighbours that are read at the same time.
//
// One input after another would be decompressed by one thread, or its variable-length records
// counted by one. The runs of all groups, in the order of the groups, are in the order of the
// inputs, so that the sort stays stable. Failures are thrown as Error.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/record_format.hpp"
#include "run/run.hpp"

namespace corank {

// Returns the max number of groups that `threads` threads have use for: 1 unless reading takes more
// than one of them. Pipes are read in turn, as one program may feed all of them.
std::uint64_t useful_groups(std::span<const Run> inputs, const RecordFormat& format,
                            unsigned threads);

// Divides the inputs into `count` groups of about the same bytes, none of which is empty. A file is
// cut between two groups if a record can be found from any byte; a group has no records if those of
// others are long. Otherwise, there must be as many inputs, unless `count` is 1.
std::vector<std::vector<Run>> group_inputs(std::span<const Run> inputs, const RecordFormat& format,
                                           std::uint64_t count);

}  // namespace corank
