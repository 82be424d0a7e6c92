// System calls on files, with errors that name the file and the remedy.
//
// Failures are thrown as FileError. Sizes and offsets are in bytes. No function keeps state, so all
// of them may be called from any thread.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "corank/error.hpp"

namespace corank {

// Thrown for a failed system call.
class FileError : public Error {
 public:
  explicit FileError(Message message) : Error(ErrorCode::system, std::move(message)) {}
};

// Throws FileError "PATH: cannot WHAT: reason; advice" for the current errno.
[[noreturn]] void throw_file_error(const std::filesystem::path& path, std::string_view what);

// Rethrows the exception of a stream that is being handled: Error and std::bad_alloc as they are,
// and others nested in an Error "NAME: cannot WHAT: reason".
[[noreturn]] void rethrow_stream_error(std::string_view name, std::string_view what);

// Owns a file descriptor and closes it.
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

// Identifies a file, whatever path names it.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

FileIdentity identity_of(const struct stat& status);
// Returns the time of the last modification, since 1970.
std::int64_t modified_ns(const struct stat& status);

// Returns one path for all spellings of a name, such as `out` and `./out/`, even if there is no
// such file; the name itself if it cannot be followed.
std::filesystem::path one_spelling(const std::filesystem::path& name);

// Throws Error if the path is empty, or if system calls would cut it at a NUL byte.
void check_path(const std::filesystem::path& path);

FileDescriptor open_to_read(const std::filesystem::path& path);
// Opens a file again. Throws Error if it is another one by now.
FileDescriptor reopen(const std::filesystem::path& path, const FileIdentity& identity);

// Switches to direct I/O: file offsets, sizes and memory must be page-aligned from now on. Returns
// false if the file system does not support it.
bool make_direct(const FileDescriptor& file);
// Switches back to the page cache.
void make_buffered(const FileDescriptor& file);

// Reads until `bytes` is full or the file ends; returns the number of bytes read.
std::size_t read_at(const FileDescriptor& file, std::span<std::byte> bytes, std::uint64_t offset,
                    const std::filesystem::path& path);

// Fills `bytes`. Throws Error if the file ends before, since it has become shorter.
void read_whole(const FileDescriptor& file, std::span<std::byte> bytes, std::uint64_t offset,
                const std::filesystem::path& path);

// A read of a file at a position.
struct FileRead {
  std::shared_ptr<const FileDescriptor> file;
  const std::filesystem::path* path = nullptr;  // for errors
  std::span<std::byte> into = {};
  std::uint64_t offset = 0;
  bool is_direct = false;
};

// Opens a file without a name in `folder`. It vanishes when closed, even if the process is killed;
// where the file system first gives it a name, a moment later.
FileDescriptor open_nameless(const std::filesystem::path& folder);

void write_all(const FileDescriptor& file, std::span<const std::byte> bytes,
               const std::filesystem::path& path);

// Returns the max number of descriptors that this process may have open.
std::size_t descriptor_limit();

}  // namespace corank
