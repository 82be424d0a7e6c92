// Rejects options that contradict each other or do not fit the runs.
//
// Both functions throw Error, whose message says what to change; they return nothing otherwise.
#pragma once

#include <cstddef>

#include "corank/options.hpp"
#include "format/record_format.hpp"
#include "run/run.hpp"

namespace corank {

// Checks the options of a merge of `runs` runs, before any run is opened. `traits` are those of the
// format that the options describe.
void check_options(const Options& options, const FormatTraits& traits, std::size_t runs);

// Checks the options against `run`, which must be a stream: a pipe or a compressed file. Options
// that need random access to the runs are rejected.
void check_stream_options(const Options& options, const FormatTraits& traits, const Run& run);

}  // namespace corank
