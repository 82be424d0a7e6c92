// The header: bytes, comment lines, header lines and the line of column names at the start of each
// file. The output has it once. One thread at a time may take headers; failures are thrown as
// Error.
#pragma once

#include <string>
#include <vector>

#include "corank/options.hpp"
#include "format/record_format.hpp"
#include "run/run.hpp"

namespace corank {

struct Header {
  std::string preamble;  // comment lines and header lines of text, or Schema::header_bytes
  std::string names;     // line of TextFormat::header; each line has its terminator
};

// Removes the header from each run and returns that of the first run that has one. Runs must count
// bytes if the header is lines; an empty file needs no header. Throws Error if a header differs
// from those before it and must not, and Interrupted if Options::stop is requested while a pipe is
// empty. Warns through Options::notice if comment lines differ, if a first record looks like a
// header, or a header like a record. `are_sorted` tells whether the runs must be in order.
Header take_header(std::vector<Run>& runs, const RecordFormat& format, const Options& options,
                   bool are_sorted);

// Returns the first record of the run whose first record has the most columns. Stops reading runs
// at one that has all columns that the options name. Returns an empty string if no column is named,
// no run has a record, or a record is too long.
std::string widest_first_record(std::vector<Run>& runs, const TextHeader& header,
                                const Options& options);

}  // namespace corank
