// The header: bytes, comment lines, header lines and the line of column names at the start of each
// file. The output has it once. One thread at a time may take headers; failures are thrown as
// Error.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "corank/options.hpp"
#include "corank/text.hpp"
#include "run/run.hpp"

namespace corank {

struct Header {
  std::string preamble;  // comment lines and header lines of text, or Schema::header_bytes
  std::string names;     // line of TextFormat::header; each line has its terminator
};

struct HeaderRules {
  bool may_differ = false;  // whether header bytes and header lines may differ between runs
  std::function<void(const Message&)> notice = {};  // called if comment lines differ
  std::stop_token stop = {};
};

// Removes the header from each run and returns that of the first run that has one. Runs must count
// bytes; an empty file needs no header. Throws Error if a header differs from those before it and
// must not, and Interrupted if `stop` is requested while a pipe is empty.
Header take_header(std::vector<Run>& runs, const TextFormat& format, const HeaderRules& rules);

// Removes the headers from the runs of a merge, which may hold fixed-size records, and returns the
// first. Warns through Options::notice if a first record looks like a header, or a header like a
// record. `are_sorted` tells whether the runs must be in order.
Header take_header(std::vector<Run>& runs, const Options& options, bool are_sorted);

// Returns the first record of the run whose first record has the most columns. Stops reading runs
// at one that has all columns that the options name. Returns an empty string if no column is named,
// no run has a record, or a record is too long.
std::string widest_first_record(std::vector<Run>& runs, const TextFormat& format,
                                const Query& query, std::stop_token stop = {});

}  // namespace corank
