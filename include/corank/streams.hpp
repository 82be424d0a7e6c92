// Merges and sorts inputs that are not files: encrypted, remote or self-made streams of bytes.
//
// ByteSource and ByteSink are the interfaces; <corank/iostreams.hpp> makes them of any Source and
// Sink of Boost.Iostreams. A merge reads each source once, from start to end, and several of them
// at the same time. One thread at a time uses a source or a sink, not always the same one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "corank/options.hpp"
#include "corank/stats.hpp"

namespace corank {

// Bytes in order, read once.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Reads bytes that are there into `into`, which is not empty; returns their number, or nothing at
  // the end. Returns 0 after a short wait if no byte has come yet, so that the caller can do
  // something else. A failure is thrown.
  virtual std::optional<std::size_t> read(std::span<std::byte> into) = 0;
};

// Takes bytes in order.
class ByteSink {
 public:
  virtual ~ByteSink() = default;

  // Takes all of `bytes`, which are only valid during the call. A failure is thrown.
  virtual void write(std::span<const std::byte> bytes) = 0;
  // Called once, after the last byte, when the whole output is verified. A sink that is destroyed
  // without it holds the beginning of an output that failed.
  virtual void commit() {}
};

// Errors call a source or sink by its name.
struct NamedSource {
  std::string name;
  std::shared_ptr<ByteSource> bytes;
};
struct NamedSink {
  std::string name;
  std::shared_ptr<ByteSink> bytes;
};

// Merges sources, or into a sink, as the merge of files does; see <corank/merge.hpp>. Sources are
// subject to the limits of pipes. With Options::decompress, they may be compressed. A sink gets a
// compressed output only if Options::compression requests it. If the memory budget requires several
// passes, their temporary files hold plain records, in the folder for temporary files or of
// `output`.
//
// Throws what the merge of files throws. An exception of a source or sink, except Error and
// std::bad_alloc, becomes an Error that names it and the byte; std::rethrow_if_nested() returns the
// original.
Stats merge(std::span<const NamedSource> runs, const NamedSink& output, const Options& options);
Stats merge(std::span<const NamedSource> runs, const std::filesystem::path& output,
            const Options& options);
Stats merge(std::span<const std::filesystem::path> runs, const NamedSink& output,
            const Options& options);

// Sorts sources, or into a sink, as the sort of files does; see <corank/sort.hpp>. Runs that do not
// fit in memory are plain in temporary files.
Stats sort(std::span<const NamedSource> inputs, const NamedSink& output, const Options& options);
Stats sort(std::span<const NamedSource> inputs, const std::filesystem::path& output,
           const Options& options);
Stats sort(std::span<const std::filesystem::path> inputs, const NamedSink& output,
           const Options& options);

}  // namespace corank
