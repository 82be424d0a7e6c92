// Finds the position at which a merge resumes a partial output: in the output and in the runs.
//
// Reads the end of the partial output and probes the runs by binary search. Ranks and positions
// count records, or bytes if records vary in length. Throws Error if a file cannot be read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "corank/options.hpp"
#include "jobs/merge_format.hpp"
#include "run/run.hpp"

namespace corank {

// Position at which a merge resumes. The end of the partial output is merged again and compared
// with the partial output, not written again. Operators may have merged any number of records into
// few bytes, so they limit that end to a hundredth of the output.
struct Resumption {
  std::uint64_t kept_bytes = 0;    // valid prefix of the output: whole records
  std::uint64_t merged_bytes = 0;  // part of it that is not merged again
  std::uint64_t rank = 0;          // in the merged input: first record that is merged again
  std::vector<std::uint64_t> cut;  // position of `rank` in each run, if it was searched
};

// Returns where to resume an output that has one record of `output_bytes` for each input record.
Resumption resume_at_rank(std::uint64_t left_bytes, std::uint32_t output_bytes);

// Returns where to resume any other output, at the first record of a group, in the output and in
// the runs. `left` is the output after its header. Returns nothing if no run has the group's key.
// Without a selected key, everything is merged again, and the partial output only compared.
std::optional<Resumption> resume_at_key(const Run& left, const MergeFormat& format,
                                        bool has_operators, std::span<const Run> runs);

// Returns how many runs end without the end of their last record; the merge adds one byte to each.
std::uint64_t missing_terminators(std::span<const Run> runs, const RecordFormat& format);

// Returns all that determines the bytes of the output, as text to be hashed: the options and the
// identities of the runs. `runs` are already cut to the range.
std::string output_description(const Options& options, const Compression& compression,
                               const MergeFormat& format, std::span<const Run> runs);

}  // namespace corank
