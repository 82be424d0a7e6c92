// The job that merge() and sort() share: open, form runs if the inputs are unsorted, merge,
// publish. Options must be checked. Throws what merge() throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "corank/options.hpp"
#include "corank/stats.hpp"
#include "corank/streams.hpp"
#include "io/writer.hpp"
#include "run/run.hpp"

namespace corank {

enum class Inputs : std::uint8_t { sorted, unsorted };

Stats run_job(std::span<const std::filesystem::path> files, const Destination& output,
              const Options& options, Inputs inputs);
Stats run_job(std::span<const NamedSource> sources, const Destination& output,
              const Options& options, Inputs inputs);
// Merges parts of the files: `narrow` cuts the runs, which lack their headers, to these.
Stats run_job(std::span<const std::filesystem::path> files, const Destination& output,
              const Options& options, const std::function<void(std::vector<Run>&)>& narrow);
// Cuts the merge of files into `count` partitions, and returns the part of each run, in the order
// of the files. Throws Error if a run is a pipe or compressed, or if a limit is an operator.
std::vector<std::vector<Run>> cut_job(std::span<const std::filesystem::path> files,
                                      std::size_t count, const Options& options);
// Returns what run_job() would do, as text for people.
std::string explain_job(std::span<const std::filesystem::path> paths,
                        const std::filesystem::path& output, const Options& options, Inputs inputs);
// Sorts fixed-size records in memory.
Stats run_job(std::span<std::byte> records, const Options& options);

}  // namespace corank
