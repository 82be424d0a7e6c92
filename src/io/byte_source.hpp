// The bytes of an input, in order: of a file, of a pipe, or what either holds compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>

#include "corank/compression.hpp"
#include "io/file.hpp"

namespace corank {

// Used by one thread at a time, which need not always be the same.
class Source {
 public:
  virtual ~Source() = default;

  // Reads until `into` is full or the input ends; returns how many bytes. Throws Error that names
  // the file and the offset, Interrupted where that was asked for while a pipe was empty.
  virtual std::size_t read(std::span<std::byte> into) = 0;

  // Bytes of the input itself that were read so far, to show progress by.
  virtual std::uint64_t input_bytes() const = 0;
};

// What an input is, as far as that can be told without taking anything from it.
struct InputStatus {
  FileIdentity identity;
  bool is_stream = false;          // a pipe: it can be read once, and its size is not known
  std::uint64_t bytes = 0;         // of the file
  std::int64_t modified_ns = 0;    // since 1970
  Codec codec = Codec::none;       // of a file: what it begins like
  std::uint64_t memory_bytes = 0;  // that decompressing it takes, about
};

// "-" is standard input.
FileDescriptor open_input(const std::filesystem::path& path);

// Of `path`, opened as `file`. With `decompress`, what begins as compressed data does is to be
// decompressed. Throws Error if it is a folder or a device, or is named like a compressed file but
// does not begin like one, which is what a copy that failed leaves.
InputStatus verify_input(const std::filesystem::path& path, const FileDescriptor& file,
                         bool decompress);

// The bytes of `path`, from its beginning. Of a file, `file` may be null: then it is opened anew
// for each read, so that there may be more of them than descriptors. Waiting for a pipe ends where
// `stop` asks for it. What a pipe holds is found out by the first read.
std::unique_ptr<Source> open_source(const std::filesystem::path& path,
                                    std::shared_ptr<const FileDescriptor> file,
                                    const InputStatus& status, bool decompress,
                                    std::stop_token stop);

}  // namespace corank
