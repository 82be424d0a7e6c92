// Looks at every record of one run.
#pragma once

#include "corank/key.hpp"
#include "run.hpp"

namespace corank {

struct ScanResult {
  std::uint64_t records = 0;
  std::uint64_t checksum = 0;
};

// What check() does, for a run that is open or in memory; of records of variable length, for one
// that counts bytes.
ScanResult scan(const Run& run, const KeyEncoding& encoding, bool checksum);

}  // namespace corank
