// Looks at what a stopped merge left of an output, for the one that goes on with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "corank/key.hpp"
#include "corank/options.hpp"
#include "io/atomic_file.hpp"
#include "jobs/resume.hpp"
#include "jobs/run_cuts.hpp"
#include "jobs/scan.hpp"
#include "ops/text_operators.hpp"
#include "run/run.hpp"

namespace corank {

// The merge that goes on, as far as its output tells what it came from.
struct OutputOrigin {
  const Options& options;
  const KeyEncoding& encoding;  // of the runs
  std::string_view header;      // of the runs
  std::string_view output_header;
  bool keeps_count;                         // every record goes out, if not as it is
  const TextOperatorChain* text_operators;  // null: lines go out as they are
};

// Where the merge goes on with the part of its output that is this slice of `runs`; none if what
// was left is not of them.
std::optional<Resumption> find_resumption(const AtomicFile& left, const OutputOrigin& origin,
                                          std::span<const Run> runs, const Partition& partition);

// What the first `bytes`, whole records, come to; of lines only where a checksum is wanted or some
// may have gone. Throws PartialOutputDiffers where lines are out of order, and Interrupted.
ScanResult count_left(const AtomicFile& left, const std::filesystem::path& output,
                      const OutputOrigin& origin, std::uint64_t bytes);

}  // namespace corank
