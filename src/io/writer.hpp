// Writes the output of a merge, in order: to a file, a device, a pipe or a temporary file.
//
// One thread uses a Writer. Sizes and offsets are in bytes of the output, after compression.
// commit() publishes a file; without it, the destructor discards the file unless
// AtomicFile::leave() was called.
#pragma once

#include <cassert>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>

#include "codec/compressor.hpp"
#include "corank/error.hpp"
#include "corank/streams.hpp"
#include "io/atomic_file.hpp"
#include "io/write_behind.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

// Thrown if the partial output of a stopped merge is not what this merge produces.
struct PartialOutputDiffers : std::exception {
  explicit PartialOutputDiffers(std::filesystem::path which) : output(std::move(which)) {}
  const char* what() const noexcept override {
    return "the partial output does not match the inputs";
  }
  std::filesystem::path output;
};

// Names an output: a file, a pipe or a device by its path, standard output as "-", or a sink.
struct Destination {
  Destination(std::filesystem::path output) : path(std::move(output)) {}
  Destination(const NamedSink& output) : path(output.name), sink(output.bytes) {
    if (!sink) throw Error(ErrorCode::options, output.name + ": has no ByteSink");
  }

  std::filesystem::path path;
  std::shared_ptr<ByteSink> sink;  // if set, errors call it `path`
};

class Writer {
 public:
  // Writes to `output` as merge() describes it. `is_input` tells which files are runs of the merge.
  // Throws Interrupted if `stop` is requested while a pipe has no reader.
  Writer(const Destination& output, const AtomicFile::Content& content,
         const AtomicFile::Settings& settings, const std::function<bool(FileIdentity)>& is_input,
         std::stop_token stop);
  // Writes to a temporary file, which becomes a run of the next pass. Errors name `path`.
  Writer(FileDescriptor file, std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  // Returns the file, which can be resumed; null for other outputs.
  AtomicFile* atomic() const { return atomic_.get(); }
  // Resumes after the first `kept_bytes` of the output; must precede all writing. The bytes given
  // to write() start at byte `from` of the output. Up to `kept_bytes` they are only compared:
  // write() and make_durable() throw PartialOutputDiffers if the kept bytes differ.
  void resume_at(std::uint64_t kept_bytes, std::uint64_t from);

  // Switches to direct I/O on a background thread, and reserves `bytes` of disk space. Changes
  // nothing if the output does not support direct I/O. Throws Error if there is not enough space.
  void make_direct(std::uint64_t bytes, TraceRow row);

  // Compresses everything written from now on.
  void compress(const Compression& compression, unsigned threads, TraceRow row);
  const Compressor* compressor() const { return compressor_.get(); }  // null without compression

  bool is_direct() const { return behind_ != nullptr; }
  const WriteBehind* behind() const { return behind_.get(); }  // null without direct I/O

  // Writes `bytes`. Direct I/O copies no whole pages whose memory has the page alignment of their
  // offset in the output. If they begin within a page, the writer must be allowed to overwrite the
  // `free_before` bytes in front, back to the start of that page. write() returns after uncopied
  // bytes are written, or immediately if an `owner` keeps them unchanged until then.
  void write(std::span<const std::byte> bytes, std::size_t free_before = 0,
             const WriteBehind::Owner& owner = nullptr);
  // Returns the size of the output so far, without kept bytes that are yet to be compared.
  std::uint64_t bytes() const { return bytes_ - compared_bytes_; }

  // With direct I/O only: calls `verify` once everything queued so far is written; the last bytes
  // may still be staged.
  void then(WriteBehind::Verify verify) {
    assert(behind_);
    behind_->then(std::move(verify));
  }
  // Waits until everything is written and verified.
  void drain();
  // Releases every owner. Drops the queued bytes that are not being written yet.
  void abandon();

  // Writes everything that is still buffered and makes the output durable.
  void make_durable();
  // Puts the output, which must be durable, under its name.
  void commit();
  // Hands over the temporary file, which leaves the writer empty.
  FileDescriptor take_file() {
    assert(!atomic_ && !sink_);
    return std::move(file_);
  }

 private:
  const FileDescriptor& file() const { return atomic_ ? atomic_->descriptor() : file_; }
  std::span<const std::byte> compare(std::span<const std::byte> bytes);
  void put(std::span<const std::byte> bytes, std::size_t free_before = 0,
           const WriteBehind::Owner& owner = nullptr);
  void write_to_sink(std::span<const std::byte> bytes);
  void write_pages(std::span<const std::byte> bytes, std::size_t free_before,
                   const WriteBehind::Owner& owner);
  void write_staged();

  std::filesystem::path path_;
  std::unique_ptr<AtomicFile> atomic_;
  FileDescriptor file_;
  std::shared_ptr<ByteSink> sink_;  // of an output that is not a file
  std::stop_token stop_;
  std::uint64_t bytes_ = 0;
  std::uint64_t compared_bytes_ = 0;     // kept bytes that are yet to be compared
  FileDescriptor kept_;                  // for reading the kept bytes
  std::uint64_t handed_over_bytes_ = 0;  // bytes whose writeback was started
  // With direct I/O: bytes that do not fill the staging buffer yet.
  std::unique_ptr<BufferPool> staging_pool_;
  std::size_t staged_bytes_ = 0;
  std::shared_ptr<Buffer> staging_;
  std::unique_ptr<WriteBehind> behind_;
  std::unique_ptr<Compressor> compressor_;
};

}  // namespace corank
