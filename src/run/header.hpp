// What precedes the records of a file: bytes, comment lines, header lines, and the line that names
// columns. The output keeps it once.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "corank/options.hpp"
#include "corank/text.hpp"
#include "run/run.hpp"

namespace corank {

struct Header {
  std::string preamble;  // of text comment lines and header lines, else Schema::header_bytes
  std::string names;     // the line of TextFormat::header; each line has its terminator
};

struct HeaderRules {
  bool may_differ = false;  // whether header bytes and header lines of runs may
  std::function<void(const std::string&)> notice = {};  // told of comment lines that differ
  std::stop_token stop = {};
};

// Makes the runs, which count bytes, begin after their headers, and returns the header of the first
// run that has one. An empty file needs none. Throws Error where runs differ that must not, and
// Interrupted where `stop` asks for it while a pipe is empty.
Header take_header(std::vector<Run>& runs, const TextFormat& format, const HeaderRules& rules);

// The same for runs of a merge, which may hold fixed-size records. Warns through Options::notice of
// a first record that looks like a header, and of a header that looks like a record.
Header take_header(std::vector<Run>& runs, const Options& options);

// Returns the first record of a run, the one with the most columns; runs after one that has all
// columns that the options number are not read. Returns nothing if no column is wanted, no run has
// a record, or one is too long.
std::string widest_first_record(std::vector<Run>& runs, const TextFormat& format,
                                const Query& query, std::stop_token stop = {});

}  // namespace corank
