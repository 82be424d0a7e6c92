// Checks that a file is sorted, and describes what it holds.
//
// All functions block until they have read the whole file, and may run concurrently. The buffers of
// a call take at most 256 MiB, besides those for very long records. Positions are
// counted from 0, in records or bytes; bytes of a compressed file are those after decompression.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "corank/compression.hpp"
#include "corank/error.hpp"
#include "corank/options.hpp"

namespace corank {

struct CheckResult {
  std::uint64_t records = 0;
  // Sum modulo 2^64 of XXH64 (seed 0) of every record: independent of their order and of how they
  // are distributed over files. 0 if not requested.
  std::uint64_t checksum = 0;
};

// Checks the order of a file. Of `options`, uses the format and the keys of the records,
// `checksum`, `decompress`, `threads`, `memory_bytes`, `notice` and `stop`. A header of a file is
// not a record.
//
// `file` may be a pipe, or "-" for standard input. With TextFormat::first_header, the first of the
// files `before` it that is not empty has the header; it must not be a pipe, nor may those before.
// Throws OutOfOrder for the first record that sorts before its predecessor, and Error for
// everything else.
CheckResult check(const std::filesystem::path& file, const Options& options,
                  std::span<const std::filesystem::path> before = {});

// Contents of a file.
struct FileReport {
  bool is_pipe = false;
  std::uint64_t file_bytes = 0;  // size of the file as stored; 0 for a pipe
  Codec codec = Codec::none;     // codec of the file; always none for a pipe
  std::uint64_t bytes = 0;       // of header and records after decompression, without skipped ones
  std::uint64_t records = 0;
  std::uint64_t records_skipped = 0;  // not counted in `records`; see BadNumbers
  std::uint64_t duplicates = 0;       // records whose key equals that of their predecessor
  // Keys of the first and the last record, as text; empty if there are no records.
  std::string first_key, last_key;
  // Number of a record, and the byte at which it begins.
  struct Place {
    std::uint64_t record, byte;
  };
  std::optional<Place> out_of_order;  // first record that sorts before its predecessor
};

// Describes a file; the parameters are those of check(). Records that are out of order are
// reported, not thrown. Throws Error if the file cannot be read or holds a malformed record.
FileReport describe(const std::filesystem::path& file, const Options& options,
                    std::span<const std::filesystem::path> before = {});

}  // namespace corank
