// Sorted runs to try things on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "corank/record.hpp"

namespace corank {

enum class Distribution {
  uniform,
  equal,        // one key
  disjoint,     // run i wholly before run i + 1
  zipf,         // about a million keys, the n-th with a share in proportion to 1/n
  interleaved,  // the runs take turns, record by record
  lopsided,     // uniform, but the first run has 99 % of the records
};

struct GenerateOptions {
  Schema record;
  std::vector<KeyField> keys;
  std::uint32_t line_bytes = 0;  // if not 0: lines of so many bytes, in place of records
  std::uint64_t records = 0;     // of all runs together
  std::uint32_t runs = 1;
  std::uint64_t seed = 1;
  Distribution distribution = Distribution::uniform;
};

// Writes `folder`/run-00000.bin, of lines run-00000.txt, and so on; never replaces a file. The same
// options give the same bytes on every machine. Fields that are no keys are random.
void generate(const GenerateOptions& options, const std::filesystem::path& folder);

}  // namespace corank
