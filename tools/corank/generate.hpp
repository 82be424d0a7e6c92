// Generates sorted runs for tests and benchmarks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "corank/record.hpp"

namespace corank {

enum class Distribution {
  uniform,
  equal,        // one key
  disjoint,     // run i entirely before run i + 1
  zipf,         // about a million keys; the share of the n-th is proportional to 1/n
  interleaved,  // the runs alternate, record by record
  lopsided,     // uniform, but the first run has 99 % of the records
};

struct GenerateOptions {
  Schema record;
  std::vector<KeyField> keys;
  std::uint32_t line_bytes = 0;  // if not 0, generates lines of this size instead of records
  std::uint64_t records = 0;     // in all runs together
  std::uint32_t runs = 1;
  std::uint64_t seed = 1;
  Distribution distribution = Distribution::uniform;
};

// Writes `folder`/run-00000.bin, or run-00000.txt for lines, and so on; never replaces a file. The
// same options give the same bytes on every machine. Fields that are not keys are random.
void generate(const GenerateOptions& options, const std::filesystem::path& folder);

}  // namespace corank
