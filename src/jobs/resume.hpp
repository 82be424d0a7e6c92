// Validates the partial output of a stopped merge, and finds the position at which to resume: in
// the output and in the runs.
//
// Reads the partial output and probes the runs by binary search; changes neither. Ranks and
// positions count records, or bytes if records vary in length. Throws Error if a file cannot be
// read, and Interrupted if Options::stop asks for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corank/options.hpp"
#include "io/atomic_file.hpp"
#include "jobs/merge_format.hpp"
#include "jobs/run_cuts.hpp"
#include "jobs/scan.hpp"
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
Resumption resume_at_rank(std::uint64_t partial_bytes, std::uint32_t output_bytes);

// Returns where to resume any other output, at the first record of a group, in the output and in
// the runs. `left` is the output after its header. Returns nothing if no run has the group's key.
// Without a selected key, everything is merged again, and the partial output only compared.
std::optional<Resumption> resume_at_key(const Run& left, const MergeFormat& format,
                                        bool has_operators, std::span<const Run> runs);

// Describes how the resuming merge makes its output from the runs. Borrows everything.
struct OutputOrigin {
  const Options& options;
  const MergeFormat& format;
  std::string_view output_header;  // of this file
  const PassOperators& operators;
};

// Returns where to resume the output of `partition`, whose partial output is `left`. Returns
// nothing if that does not come from `runs`.
std::optional<Resumption> find_resumption(const AtomicFile& left, const OutputOrigin& origin,
                                          std::span<const Run> runs, const Partition& partition);

// Returns the number and the checksum of the records in the first `bytes` of a partial output,
// which must be whole records. Records of variable length are counted only if a checksum is wanted
// or operators may have dropped some. Throws PartialOutputDiffers if records are out of order.
ScanResult count_left(const AtomicFile& left, const std::filesystem::path& output,
                      const OutputOrigin& origin, std::uint64_t bytes);

// Returns how many runs end without the end of their last record; the merge adds one byte to each.
std::uint64_t missing_terminators(std::span<const Run> runs, const RecordFormat& format);

// Returns all that determines the bytes of the output, as text to be hashed: the options and the
// identities of the runs. `runs` are already cut to the range.
std::string output_description(const Options& options, const Compression& compression,
                               const MergeFormat& format, std::span<const Run> runs);

}  // namespace corank
