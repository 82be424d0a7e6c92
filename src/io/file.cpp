#include "io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "corank/error.hpp"
#include "util/buffer_pool.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

std::string_view advice(int error) {
  switch (error) {
    case ENOENT:
      return "; check the name";
    case EEXIST:
      return "; remove it, or write to another place";
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
      return "; the device failed: check it";
    default:
      return "";
  }
}

}  // namespace

void throw_file_error(const std::filesystem::path& path, std::string_view what) {
  const int error = errno;
  throw FileError(
      fmt::format("{}: cannot {}: {}{}", path.string(), what, std::strerror(error), advice(error)));
}

void rethrow_stream_error(std::string_view name, std::string_view what) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    std::throw_with_nested(
        Error(ErrorCode::system, fmt::format("{}: cannot {}: {}", name, what, error.what())));
  } catch (...) {
    std::throw_with_nested(
        Error(ErrorCode::system,
              fmt::format("{}: cannot {}: something was thrown that is no exception", name, what)));
  }
}

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) ::close(number_);
}

FileIdentity identity_of(const struct stat& status) {
  return {status.st_dev, status.st_ino};
}

std::int64_t modified_ns(const struct stat& status) {
  return status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
}

std::filesystem::path one_spelling(const std::filesystem::path& name) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(name, error);
  if (!error) path = std::filesystem::weakly_canonical(path, error);
  if (error) return name;
  return path.has_filename() ? path : path.parent_path();
}

void check_path(const std::filesystem::path& path) {
  if (path.empty() || path.native().find('\0') != path.native().npos)
    throw_error(ErrorCode::options, "\"{}\": is not the name of a file",
                without_nul(path.native()));
}

FileDescriptor open_to_read(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe without a writer would block.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw_file_error(path, "open");
  return file;
}

FileDescriptor reopen(const std::filesystem::path& path, const FileIdentity& identity) {
  FileDescriptor file = open_to_read(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_file_error(path, "get its status");
  if (!(identity_of(status) == identity))
    throw Error(path.string() + ": was replaced while it was read; start again");
  return file;
}

bool make_direct(const FileDescriptor& file) {
  struct statfs system {};
  // Newer kernels accept O_DIRECT for in-memory file systems, which have no device to reach.
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
    // A direct read that resumes at the end of the file, within a page, is refused with EINVAL.
    if (got < 0 && errno == EINVAL && (offset + done) % page_bytes() != 0 && done != 0) break;
    if (got > 0)
      done += static_cast<std::size_t>(got);
    else if (errno != EINTR)
      throw_file_error(path, fmt::format("read at byte {}", offset + done));
  }
  return done;
}

void read_whole(const FileDescriptor& file, std::span<std::byte> bytes, std::uint64_t offset,
                const std::filesystem::path& path) {
  if (read_at(file, bytes, offset, path) != bytes.size())
    throw Error(path.string() + ": became shorter while it was read; try again once it is whole");
}

FileDescriptor open_nameless(const std::filesystem::path& folder) {
  const char* const in = folder.empty() ? "." : folder.c_str();
  if (FileDescriptor file(::open(in, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)); file) return file;
  // Some file systems, such as NFS, make no file without a name.
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
    throw_file_error(folder, "make a temporary file");
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

}  // namespace corank
