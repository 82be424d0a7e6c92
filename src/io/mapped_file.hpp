// Read-only file mappings that stay readable if a file shrinks or its device fails.
//
// Bytes that can no longer be read raise SIGBUS. While files are mapped, a handler of the process
// maps zeros there, and failed_at() reports the address: check it before trusting the data. Sizes
// are in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "io/file.hpp"

namespace corank {

// Handles SIGBUS while one of these exists. The last one restores the handler that it replaced,
// unless another has taken its place.
class BusErrorHandling {
 public:
  BusErrorHandling();
  ~BusErrorHandling();
  BusErrorHandling(const BusErrorHandling&) = delete;
  BusErrorHandling& operator=(const BusErrorHandling&) = delete;
};

// Addresses of files, which the handler knows.
struct MappedArea;

// Owns a range of addresses and the files mapped into it. One thread adds files; any thread may
// read them.
class MappedFiles {
 public:
  // Reserves addresses for files of `file_bytes` bytes each. About `resident_bytes` of all files
  // may be in memory at a time.
  MappedFiles(std::span<const std::uint64_t> file_bytes, std::uint64_t resident_bytes);
  ~MappedFiles();
  MappedFiles(const MappedFiles&) = delete;
  MappedFiles& operator=(const MappedFiles&) = delete;

  // Maps the first `bytes` bytes of `file`, the next one in the constructor's order, for as long as
  // this object lives. The descriptor may be closed. At least one page after the mapped bytes is
  // readable, too.
  const std::byte* add(const FileDescriptor& file, std::uint64_t bytes,
                       const std::filesystem::path& path);
  // Returns the page size with which a file of `bytes` bytes may be mapped.
  std::uint64_t page_bytes(std::uint64_t bytes) const;
  // Returns the first byte that could not be read; null if there was none.
  const std::byte* failed_at() const;

 private:
  // Returns the max size of the area that a file takes.
  std::uint64_t room(std::uint64_t bytes) const;

  const BusErrorHandling handling_;
  const bool may_be_huge_;
  MappedArea& area_;
  std::span<std::byte> memory_;
  std::uint64_t used_bytes_ = 0;
};

// Brings mapped bytes into memory ahead of their use, which then takes no page faults.
void populate(std::span<const std::byte> mapped);

// Mapped part of a file, with the page size of the mapping.
struct MappedRange {
  std::span<const std::byte> bytes;
  std::uint64_t page_bytes;
};
// Drops `mapped`, the next bytes of `part`, from this process's memory. They stay in the page cache
// and can be read again. A last page that holds later bytes of the part is kept until these go.
void forget(std::span<const std::byte> mapped, const MappedRange& part);

// Returns whether the page of `file` at `offset` is in the page cache.
bool is_cached(const FileDescriptor& file, std::uint64_t offset);

}  // namespace corank
