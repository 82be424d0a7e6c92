// Whether a file is in order, and what it holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "corank/error.hpp"
#include "corank/record.hpp"
#include "corank/text.hpp"

namespace corank {

struct CheckResult {
  std::uint64_t records = 0;
  // Sum modulo 2^64 of XXH64 (seed 0) of every record: independent of their order and of how they
  // are spread over files. 0 if not asked for.
  std::uint64_t checksum = 0;
};

// Reads the whole of `file`, which may be a pipe or "-", standard input; with `decompress`, what
// begins as compressed data does is decompressed. Empty `keys` mean the first field, ascending.
// Throws OutOfOrder with the first record that sorts before its predecessor, Error for everything
// else.
CheckResult check(const std::filesystem::path& file, const Schema& schema,
                  const std::vector<KeyField>& keys, bool checksum, bool decompress = true);

// The same of a file of records of variable length; a header is none of its records.
CheckResult check(const std::filesystem::path& file, const TextFormat& format, bool checksum,
                  bool decompress = true);

}  // namespace corank
