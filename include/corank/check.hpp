// Whether a file is in order, and what it holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "corank/compression.hpp"
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

// What a file holds.
struct FileReport {
  bool is_pipe = false;
  std::uint64_t file_bytes = 0;  // as it stands there; 0 of a pipe
  Codec codec = Codec::none;     // that it is compressed by; not told of a pipe
  std::uint64_t bytes = 0;       // of its records and of a header, decompressed
  std::uint64_t records = 0;
  std::uint64_t records_skipped = 0;  // see BadNumbers; not among the records
  std::uint64_t duplicates = 0;       // records whose key equals that of the record before
  // In words; empty where there are no records.
  std::string first_key, last_key;
  // The first record, if any, that sorts before its predecessor, and where it begins.
  struct Place {
    std::uint64_t record, byte;
  };
  std::optional<Place> out_of_order;
};

// Reads the whole of `file`, as check() does, but goes on behind what is out of order.
FileReport describe(const std::filesystem::path& file, const Schema& schema,
                    const std::vector<KeyField>& keys, bool decompress = true);
FileReport describe(const std::filesystem::path& file, const TextFormat& format,
                    bool decompress = true);

}  // namespace corank
