// Reads the bytes of an input in order: a file, a pipe or standard input, decompressed on request.
//
// open_input() opens an input, verify_input() classifies it, and open_source() reads it. Sizes and
// offsets are in bytes. Failures are thrown as Error, with the file and the offset.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>

#include "codec/decompressor.hpp"
#include "corank/compression.hpp"
#include "corank/streams.hpp"
#include "io/file.hpp"

namespace corank {

// Reads until `into` is full or the input ends; returns the number of bytes read.
std::size_t read_all(ByteSource& source, std::span<std::byte> into);

// Limits on the decompression of one input.
struct DecompressionLimits {
  std::uint64_t max_decoder_bytes = default_max_decoder_bytes;
  unsigned max_threads = 1;
  std::uint64_t max_parallel_bytes = 0;  // memory, if there are several threads
};

// Properties of an input that can be told without consuming any of it.
struct InputStatus {
  FileIdentity identity = {};
  bool is_pipe = false;            // a pipe: readable once, of unknown size
  std::uint64_t bytes = 0;         // size of the file; 0 for a pipe
  std::int64_t modified_ns = 0;    // since 1970
  Codec codec = Codec::none;       // of a file, by its first bytes
  std::uint64_t memory_bytes = 0;  // approximate memory to decompress it
  std::uint64_t max_decoder_bytes = default_max_decoder_bytes;  // max memory to decompress it
  unsigned decoder_threads = 1;                                 // to decompress it
  // Set once a pipe has ended as BGZF without its last block; see bgzf_end. Null for files.
  std::shared_ptr<std::atomic<bool>> lacks_bgzf_end = {};
};

// Opens `path` for reading; "-" is standard input.
FileDescriptor open_input(const std::filesystem::path& path);

// Returns the status of `path`, which is open as `file`. `decompress` asks for its codec. Throws
// Error for a folder or a device; the null device is an empty file. With `decompress`, also throws
// if the file is named like a compressed file but does not begin like one, as after a failed copy.
InputStatus verify_input(const std::filesystem::path& path, const FileDescriptor& file,
                         bool decompress, const DecompressionLimits& limits = {});

// Reads `path` from its beginning. For a file, `file` may be null: each read then opens it anew, so
// that there may be more files than descriptors. Waiting for a pipe ends when `stop` is requested.
// The first read detects the codec of a pipe.
std::unique_ptr<ByteSource> open_source(const std::filesystem::path& path,
                                        std::shared_ptr<const FileDescriptor> file,
                                        const InputStatus& status, bool decompress,
                                        std::stop_token stop);

// Reads `given` from its beginning, and treats it as open_source() treats a pipe. Exceptions become
// Errors with the name and the byte.
std::unique_ptr<ByteSource> open_source(const NamedSource& given, bool decompress,
                                        std::uint64_t max_decoder_bytes, std::stop_token stop);

}  // namespace corank
