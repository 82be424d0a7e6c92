// Rejects options that contradict each other or do not fit the runs.
//
// The checks throw Error, whose message says what to change; they return nothing otherwise.
#pragma once

#include <cstddef>

#include "corank/options.hpp"
#include "format/record_format.hpp"
#include "run/run.hpp"

namespace corank {

// Max number of parts, whose names sort by their numbers.
inline constexpr unsigned max_parts = 99'999;

// Checks the options of a merge of `runs` runs, before any run is opened. `traits` are those of the
// format that the options describe.
void check_options(const Options& options, const FormatTraits& traits, std::size_t runs);

// Checks the options of a sort, beyond check_options().
void check_sort_options(const Options& options);

// Returns whether a merge of files that can be read from anywhere could resume: whether its options
// would pass check_options() with Options::resume.
bool can_resume(const Options& options, const FormatTraits& traits);

// Checks the options against `run`, which must be a stream: a pipe or a compressed file. Options
// that need random access to the runs are rejected.
void check_stream_options(const Options& options, const FormatTraits& traits, const Run& run);

}  // namespace corank
