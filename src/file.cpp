#include "file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "buffer.hpp"
#include "corank/error.hpp"

namespace corank {
namespace {

std::string_view advice(int error) {
  switch (error) {
    case ENOENT:
      return "; check the name";
    case EACCES:
    case EPERM:
      return "; check the permissions";
    case EISDIR:
      return "; name a file";
    case ENOSPC:
      return "; free some space or write to another file system";
    case EDQUOT:
      return "; raise the quota or write to another file system";
    case EFBIG:
      return "; raise the limit on the size of files (ulimit -f)";
    case EMFILE:
      return "; raise the limit on open files (ulimit -n)";
    case EIO:
      return "; the device failed: check it, then start again";
    default:
      return "";
  }
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

FileIdentity identity_of(const struct stat& status) {
  return {status.st_dev, status.st_ino};
}

}  // namespace

void throw_file_error(const std::filesystem::path& path, std::string_view what) {
  const int error = errno;
  throw Error(
      fmt::format("{}: cannot {}: {}{}", path.string(), what, std::strerror(error), advice(error)));
}

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) ::close(number_);
}

FileDescriptor open_to_read(const std::filesystem::path& path) {
  // Without O_NONBLOCK the opening of a pipe that nobody writes to would never return.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw_file_error(path, "open");
  return file;
}

bool make_direct(const FileDescriptor& file) {
  struct statfs system {};
  // Newer kernels say yes for files in memory, where there is no device to reach.
  if (::fstatfs(file.get(), &system) != 0 || system.f_type == TMPFS_MAGIC ||
      system.f_type == RAMFS_MAGIC)
    return false;
  const int flags = ::fcntl(file.get(), F_GETFL);
  return ::fcntl(file.get(), F_SETFL, flags | O_DIRECT) == 0;
}

void make_buffered(const FileDescriptor& file) {
  const int flags = ::fcntl(file.get(), F_GETFL);
  ::fcntl(file.get(), F_SETFL, flags & ~O_DIRECT);
}

std::size_t read_at(const FileDescriptor& file, std::span<std::byte> bytes, std::uint64_t offset,
                    const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::pread(file.get(), bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(offset + done));
    if (got == 0) break;
    // Direct reading from where a file ends within a page is refused: there is nothing anyway.
    if (got < 0 && errno == EINVAL && (offset + done) % page_bytes() != 0 && done != 0) break;
    if (got > 0)
      done += static_cast<std::size_t>(got);
    else if (errno != EINTR)
      throw_file_error(path, fmt::format("read at byte {}", offset + done));
  }
  return done;
}

FileDescriptor open_nameless(const std::filesystem::path& folder) {
  std::string name = (folder / ".corank-pass-XXXXXX").string();
  FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) throw_file_error(folder, "make a temporary file");
  ::unlink(name.c_str());
  return file;
}

void write_all(const FileDescriptor& file, std::span<const std::byte> bytes,
               const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
    if (put >= 0)
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    else if (errno != EINTR)
      throw_file_error(path, "write");
  }
}

std::size_t descriptor_limit() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

AtomicFile::AtomicFile(std::filesystem::path target, bool overwrite,
                       const std::function<bool(FileIdentity)>& is_input)
    : target_(std::move(target)), overwrite_(overwrite) {
  struct stat status {};
  if (::stat(target_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) throw Error(target_.string() + ": is a folder; name a file");
    if (!overwrite_) throw Error(target_.string() + ": exists already; use --force to replace it");
    // The file is replaced, not a link to it.
    target_ = std::filesystem::canonical(target_);
  }
  // Names have at most 255 bytes.
  temporary_ = folder_of(target_) / ("." + target_.filename().string().substr(0, 240) + ".corank");

  for (;;) {
    FileDescriptor file(
        ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!file) throw_file_error(target_, "create its temporary file");
    struct stat mine {};
    if (::fstat(file.get(), &mine) != 0) throw_file_error(temporary_, "look at");
    if (is_input(identity_of(mine)))
      throw Error(temporary_.string() +
                  ": is the temporary file of the output and also an input; rename it");
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) throw_file_error(temporary_, "lock");
      throw Error(target_.string() + ": another merge is writing it; wait for that one");
    }
    // The one that held the lock may have renamed or removed the file in between.
    struct stat named {};
    if (::stat(temporary_.c_str(), &named) != 0 || !(identity_of(named) == identity_of(mine)))
      continue;
    if (::ftruncate(file.get(), 0) != 0) throw_file_error(temporary_, "empty");
    file_ = std::move(file);
    return;
  }
}

AtomicFile::~AtomicFile() {
  if (file_) ::unlink(temporary_.c_str());
}

void AtomicFile::make_durable() {
  if (::fsync(file_.get()) != 0) throw_file_error(target_, "make durable");
}

void AtomicFile::commit() {
  const int renamed = overwrite_ ? ::rename(temporary_.c_str(), target_.c_str())
                                 : ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD,
                                               target_.c_str(), RENAME_NOREPLACE);
  if (renamed != 0) {
    if (errno == EEXIST)
      throw Error(target_.string() + ": appeared meanwhile; use --force to replace it");
    // Not every file system can refuse to replace.
    if (overwrite_ || errno != EINVAL || ::rename(temporary_.c_str(), target_.c_str()) != 0)
      throw_file_error(target_, "rename the finished file");
  }
  file_ = FileDescriptor();
  const std::filesystem::path folder = folder_of(target_);
  const FileDescriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems have nothing to sync for a folder and say so with EINVAL.
  if (!directory || (::fsync(directory.get()) != 0 && errno != EINVAL))
    throw_file_error(folder, "make the new name durable");
}

}  // namespace corank
