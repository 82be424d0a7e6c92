// Every system call on files, with errors that name the file and say what to do.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "corank/error.hpp"

namespace corank {

// A system call that failed.
class FileError : public Error {
 public:
  using Error::Error;
};

// Throws FileError "PATH: cannot WHAT: reason; advice" for the current errno.
[[noreturn]] void throw_file_error(const std::filesystem::path& path, std::string_view what);

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

// Which file this is, however it is named.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// When the file was last written to, since 1970.
std::int64_t modified_ns(const struct stat& status);

FileDescriptor open_to_read(const std::filesystem::path& path);

// Reads and writes go past the page cache from now on, by whole pages, in the file as in memory.
// False where the file system does not do that.
bool make_direct(const FileDescriptor& file);
// The page cache again.
void make_buffered(const FileDescriptor& file);

// Reads until `bytes` is full or the file ends; returns how many bytes were read.
std::size_t read_at(const FileDescriptor& file, std::span<std::byte> bytes, std::uint64_t offset,
                    const std::filesystem::path& path);

// A nameless file in `folder`, gone when it is closed, whatever happens to the process.
FileDescriptor open_nameless(const std::filesystem::path& folder);

void write_all(const FileDescriptor& file, std::span<const std::byte> bytes,
               const std::filesystem::path& path);

// How many descriptors this process may have open at once.
std::size_t descriptor_limit();

}  // namespace corank
