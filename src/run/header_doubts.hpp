// Guesses whether a header was taken for a record, or a record for a header. Each function returns
// a warning, which is empty if nothing looks wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "corank/text.hpp"
#include "run/run.hpp"

namespace corank {

// Doubts that `header`, the line that every run begins with, is one: a cell of it is a number where
// the numeric key column, given by its position, is.
std::string doubt_header(const TextFormat& format, std::string_view header);

// Doubts that the first records of the runs, which have no header, are records: all are the same,
// there are at least two, and either a key column holds a number only after them, or some other
// column does so in every run, or they are out of order. With `is_verified` the merge itself reads
// everything, and reports a first record that is out of order. Pipes are not read.
std::string doubt_first_records(std::vector<Run>& runs, const TextFormat& format, bool is_verified);

}  // namespace corank
