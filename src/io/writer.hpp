// Where a merge's output goes, in order.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>

#include "io/atomic_file.hpp"
#include "io/compressor.hpp"
#include "io/write_behind.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

// Thrown where what a stopped merge left of the output is not what this one makes.
struct PartialOutputDiffers : std::exception {
  explicit PartialOutputDiffers(std::filesystem::path which) : output(std::move(which)) {}
  const char* what() const noexcept override { return "what was left is not what is merged"; }
  std::filesystem::path output;
};

class Writer {
 public:
  // To `output` as merge() describes it. `is_input` tells which files are runs of the merge.
  // Throws Interrupted where `stop` asks for it while nobody reads a pipe.
  Writer(const std::filesystem::path& output, const AtomicFile::Content& content,
         const AtomicFile::Settings& settings, const std::function<bool(FileIdentity)>& is_input,
         std::stop_token stop);
  // To a nameless file in `folder`, which becomes a run of the next pass.
  explicit Writer(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  // A file that can be gone on with; null for all else.
  AtomicFile* atomic() const { return atomic_.get(); }
  // Goes on behind its first `kept_bytes`; must precede all writing. Without that, begins anew.
  // What is written stands from byte `from` of it on: up to there it is only compared. Then write()
  // and make_durable() throw PartialOutputDiffers where it is not the same.
  void resume_at(std::uint64_t kept_bytes, std::uint64_t from);

  // Writes straight to the device from now on, past the page cache and behind whoever merges, and
  // reserves room for `bytes`; where that is not possible nothing changes. Throws Error where there
  // is not so much room.
  void make_direct(std::uint64_t bytes, TraceRow row);

  // Compresses what is written from now on.
  void compress(const Compression& compression, unsigned threads, TraceRow row);
  const Compressor* compressor() const { return compressor_.get(); }  // null: nothing is compressed

  bool is_direct() const { return behind_ != nullptr; }
  const WriteBehind* behind() const { return behind_.get(); }  // null where it is not direct

  // Where it is direct, memory that begins at a page's start and fills whole pages is written
  // without a copy; so is what stands in memory as far from a page's start as in the output, if the
  // rest of that page in front of it, `free_before` bytes, may be overwritten. That is waited for
  // unless there is an `owner`, which keeps the memory as it is for as long as it lives.
  void write(std::span<const std::byte> bytes, std::size_t free_before = 0,
             const WriteBehind::Owner& owner = nullptr);
  // Of the output so far.
  std::uint64_t bytes() const { return bytes_ - compared_bytes_; }

  // Where it is direct: looks at what was written so far, once it is.
  void then(WriteBehind::Look look) { behind_->then(std::move(look)); }
  // Waits until all is written and looked at.
  void drain();
  // Lets go of every owner. What is not being written by then never is.
  void abandon();

  void make_durable();
  // Puts the output, which must be durable, under its name.
  void commit();
  // Hands over the nameless file; the writer is empty after that.
  FileDescriptor take_file() { return std::move(file_); }

 private:
  const FileDescriptor& file() const { return atomic_ ? atomic_->descriptor() : file_; }
  std::span<const std::byte> compare(std::span<const std::byte> bytes);
  void put(std::span<const std::byte> bytes, std::size_t free_before = 0,
           const WriteBehind::Owner& owner = nullptr);
  void write_to_stream(std::span<const std::byte> bytes);
  void write_pages(std::span<const std::byte> bytes, std::size_t free_before,
                   const WriteBehind::Owner& owner);
  void write_staged();

  std::filesystem::path path_;
  std::unique_ptr<AtomicFile> atomic_;
  FileDescriptor file_;
  bool is_stream_ = false;
  std::stop_token stop_;
  std::uint64_t bytes_ = 0;
  std::uint64_t compared_bytes_ = 0;     // of these, the last, that are yet to be compared
  FileDescriptor kept_;                  // where they are
  std::uint64_t handed_over_bytes_ = 0;  // to the device, for it to write
  // Where the file is direct: bytes that have not filled the staging buffer yet.
  std::unique_ptr<BufferPool> staging_pool_;
  std::size_t staged_bytes_ = 0;
  std::shared_ptr<Buffer> staging_;
  std::unique_ptr<WriteBehind> behind_;
  std::unique_ptr<Compressor> compressor_;
};

}  // namespace corank
