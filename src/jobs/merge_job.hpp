// The job that merge() and sort() share: open, form runs if the inputs are unsorted, merge,
// publish. Options must be checked. Throws what merge() throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "corank/options.hpp"
#include "corank/stats.hpp"
#include "corank/streams.hpp"
#include "io/writer.hpp"

namespace corank {

enum class Inputs : std::uint8_t { sorted, unsorted };

Stats run_job(std::span<const std::filesystem::path> files, const Destination& output,
              const Options& options, Inputs inputs);
Stats run_job(std::span<const NamedSource> sources, const Destination& output,
              const Options& options, Inputs inputs);
// Returns what run_job() would do, as text for people.
std::string explain_job(std::span<const std::filesystem::path> paths,
                        const std::filesystem::path& output, const Options& options, Inputs inputs);
// Sorts fixed-size records in memory.
Stats run_job(std::span<std::byte> records, const Options& options);

}  // namespace corank
