// Validates the partial output of a stopped merge and finds where to resume.
//
// Reads the partial output and probes the runs; changes neither. Ranks count records, or bytes if
// records vary in length. Throws Error if a file cannot be read, and Interrupted if
// Options::stop asks for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "corank/options.hpp"
#include "io/atomic_file.hpp"
#include "jobs/merge_format.hpp"
#include "jobs/resume.hpp"
#include "jobs/run_cuts.hpp"
#include "jobs/scan.hpp"
#include "run/run.hpp"

namespace corank {

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

}  // namespace corank
