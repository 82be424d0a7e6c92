#include "io/overwrite.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <vector>

#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {

FileDescriptor open_to_overwrite(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) throw_file_error(path, "replace it, and neither overwrite it");
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(path.string() + ": another merge is writing it; wait for that one");
  return file;
}

void overwrite(const FileDescriptor& file, const FileDescriptor& from,
               const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(from.get(), &status) != 0)
    throw_file_error(path, "get the status of the finished output");
  // Not every file system can reserve space.
  if (status.st_size != 0 && ::fallocate(file.get(), FALLOC_FL_KEEP_SIZE, 0, status.st_size) != 0 &&
      errno == ENOSPC)
    throw_file_error(path, "overwrite");
  try {
    make_buffered(from);
    std::vector<std::byte> block(4 * MiB);
    for (std::uint64_t at = 0;;) {
      const std::size_t got = read_at(from, block, at, path);
      if (got == 0) break;
      write_all(file, std::span(block).first(got), path);
      at += got;
    }
    if (::ftruncate(file.get(), status.st_size) != 0 || ::fsync(file.get()) != 0)
      throw_file_error(path, "overwrite");
  } catch (const FileError& error) {
    throw_error(ErrorCode::system,
                "{}; the output is incomplete, since it was being overwritten: start again",
                error.what());
  }
}

}  // namespace corank
