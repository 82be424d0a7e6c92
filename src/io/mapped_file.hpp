// Files in the address space, which stay safe to read where a file shrinks or its device fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "io/file.hpp"

namespace corank {

// An area of addresses that files are mapped into, read-only. What can't be read there any more,
// which is a SIGBUS otherwise, reads as zeros, and failed_at() says so from then on.
class MappedFiles {
 public:
  // Room for files of so many bytes each, of which about `resident_bytes` may stand in memory.
  MappedFiles(std::span<const std::uint64_t> file_bytes, std::uint64_t resident_bytes);
  ~MappedFiles();
  MappedFiles(const MappedFiles&) = delete;
  MappedFiles& operator=(const MappedFiles&) = delete;

  // The first `bytes` bytes of `file`, the next of those that there is room for, for as long as
  // this lives; the file may be closed. What stands right behind them, a page at least, can be
  // read, too.
  const std::byte* add(const FileDescriptor& file, std::uint64_t bytes,
                       const std::filesystem::path& path);
  // In pages of how many bytes one of so many may be mapped.
  std::uint64_t page_bytes(std::uint64_t bytes) const;
  // A byte, the first that was met, that could not be read; null if there was none.
  const std::byte* failed_at() const;

 private:
  // How much of the area a file takes, at most.
  std::uint64_t room(std::uint64_t bytes) const;

  const bool may_be_huge_;
  std::span<std::byte> area_;
  std::uint64_t used_bytes_ = 0;
  std::size_t slot_;
};

// Brings mapped bytes into memory at once, instead of by a page fault for every few pages.
void populate(std::span<const std::byte> mapped);

// Bytes of a mapped file, which may be mapped in pages of `page_bytes`.
struct MappedRange {
  std::span<const std::byte> bytes;
  std::uint64_t page_bytes;
};
// Lets the next bytes of the part leave this process's memory, its last page only when all of it
// may; they stay in the page cache and can be read again.
void forget(std::span<const std::byte> mapped, const MappedRange& part);

// Whether the page of `file` at `offset` is in the page cache.
bool is_cached(const FileDescriptor& file, std::uint64_t offset);

}  // namespace corank
