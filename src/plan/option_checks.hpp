// Refuses options that contradict each other, or the runs.
#pragma once

#include <cstddef>

#include "corank/options.hpp"
#include "run/run.hpp"

namespace corank {

// All of these throw Error, which says what to change. Of a merge of `runs` runs:
void check_options(const Options& options, std::size_t runs);
// Of a run that is a stream, in which nothing is found but by reading.
void check_stream_options(const Options& options, const Run& run);

}  // namespace corank
