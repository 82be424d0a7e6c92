// Prints the statistics of a merge: as a line for people, or as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "corank/merge.hpp"

namespace corank {

// Returns the summary of a merge for people: one line, newline included.
std::string summary_of(const Stats& stats);

// Returns the checksum as it is printed.
std::string hexadecimal(std::uint64_t checksum);

// Writes the statistics to `file`, or to standard output if it is "-". Includes the output's
// checksum if `checksum`. Throws Error.
void write_stats(const Stats& stats, bool checksum, const std::string& file);

}  // namespace corank
