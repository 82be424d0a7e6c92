// check() and describe() of files that are read side by side, each with its share of the threads
// and of the memory for very long records.
#pragma once

#include <filesystem>
#include <span>

#include "corank/check.hpp"
#include "jobs/scan.hpp"

namespace corank {

CheckResult check_within(const ScanShare& share, const std::filesystem::path& file,
                         const Options& options, std::span<const std::filesystem::path> before);
FileReport describe_within(const ScanShare& share, const std::filesystem::path& file,
                           const Options& options, std::span<const std::filesystem::path> before);

}  // namespace corank
