// Divides the inputs of a sort into groups of neighbours that are read at the same time.
//
// One file after another would be decompressed by one thread. The runs of all groups, in the order
// of the groups, are in the order of the inputs, so that the sort stays stable. Throws nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "run/run.hpp"

namespace corank {

// Returns the max number of groups that `threads` threads have use for: 1 unless several files are
// compressed. Pipes are read in turn, as one program may feed all of them.
std::uint64_t useful_groups(std::span<const Run> inputs, unsigned threads);

// Divides the inputs into `count` groups of about the same bytes, none of which is empty. There
// must be as many inputs, unless `count` is 1.
std::vector<std::span<const Run>> group_inputs(std::span<const Run> inputs, std::uint64_t count);

}  // namespace corank
