// Guesses whether a header was taken for a record, or a record for a header. Each function returns
// a warning; it is empty if nothing looks wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "corank/text.hpp"
#include "run/run.hpp"

namespace corank {

// Warns if `header`, the line at the start of every run, has a number in a numeric key column that
// is named by its position: it may be a record.
std::string doubt_header(const TextFormat& format, std::string_view header);

// Warns if the first records of the runs, which have no header, look like a header. They must be
// equal, and there must be at least two. Also, they must be out of order in runs that `are_sorted`,
// or a key column must hold a number only in the second records, or another column must do so in
// every run. With `is_verified` the merge reads everything and reports a first record that is out
// of order itself. Pipes are not read.
std::string doubt_first_records(std::vector<Run>& runs, const TextFormat& format, bool are_sorted,
                                bool is_verified);

}  // namespace corank
