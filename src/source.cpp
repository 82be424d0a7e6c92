#include "source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace corank {
namespace {

constexpr const char* standard_input = "-";

// How long a request to stop may wait for a pipe.
constexpr int patience_ms = 100;

FileDescriptor open_input(const std::filesystem::path& path) {
  if (path != standard_input) return open_to_read(path);
  FileDescriptor file(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!file) throw_file_error("standard input", "read");
  return file;
}

InputStatus status_of(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_file_error(path, "look at");
  if (S_ISDIR(status.st_mode))
    throw Error(path.string() + ": is a folder; name the run files in it");
  const bool is_stream =
      path == standard_input || S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  if (!is_stream && !S_ISREG(status.st_mode))
    throw Error(path.string() + ": is neither a file nor a pipe; write it to a file first");
  return {{status.st_dev, status.st_ino},
          is_stream,
          static_cast<std::uint64_t>(status.st_size),
          status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
}

class FileSource : public Source {
 public:
  FileSource(std::filesystem::path path, FileDescriptor file, const InputStatus& status,
             bool keep_open)
      : path_(std::move(path)), status_(status) {
    if (!keep_open) return;
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    file_ = std::move(file);
  }

  std::size_t read(std::span<std::byte> into) override {
    if (file_) return read(file_, into);
    const FileDescriptor file = open_to_read(path_);
    if (!(status_of(file, path_).identity == status_.identity))
      throw Error(path_.string() + ": was replaced while it was read; start again");
    return read(file, into);
  }

  std::uint64_t input_bytes() const override { return offset_; }

 private:
  std::size_t read(const FileDescriptor& file, std::span<std::byte> into) {
    const std::size_t got = read_at(file, into, offset_, path_);
    offset_ += got;
    if (got < into.size() && offset_ != status_.bytes)
      throw Error(
          fmt::format("{}: changed its size while it was read: it had {} bytes and now ends at "
                      "byte {}; start again when nothing writes to it",
                      path_.string(), status_.bytes, offset_));
    return got;
  }

  std::filesystem::path path_;
  FileDescriptor file_;  // empty where it is opened for each read
  InputStatus status_;
  std::uint64_t offset_ = 0;
};

class PipeSource : public Source {
 public:
  PipeSource(const std::filesystem::path& path, FileDescriptor file, std::stop_token stop)
      : path_(path == standard_input ? "standard input" : path),
        file_(std::move(file)),
        stop_(std::move(stop)) {}

  std::size_t read(std::span<std::byte> into) override {
    std::size_t done = 0;
    while (done < into.size()) {
      // A named pipe that nobody has opened to write looks like one that ended; this waits.
      struct pollfd data {
        file_.get(), POLLIN, 0
      };
      const int ready = ::poll(&data, 1, patience_ms);
      if (stop_.stop_requested()) throw Interrupted();
      if (ready < 0 && errno != EINTR) fail(done);
      if (ready <= 0) continue;
      const ssize_t got = ::read(file_.get(), into.data() + done, into.size() - done);
      if (got == 0) break;
      if (got > 0)
        done += static_cast<std::size_t>(got);
      else if (errno != EINTR && errno != EAGAIN)
        fail(done);
    }
    offset_ += done;
    return done;
  }

  std::uint64_t input_bytes() const override { return offset_; }

 private:
  [[noreturn]] void fail(std::size_t done) const {
    throw_file_error(path_, fmt::format("read at byte {}", offset_ + done));
  }

  std::filesystem::path path_;
  FileDescriptor file_;
  std::stop_token stop_;
  std::uint64_t offset_ = 0;
};

}  // namespace

InputStatus look_at_input(const std::filesystem::path& path) {
  return status_of(open_input(path), path);
}

std::unique_ptr<Source> open_source(const std::filesystem::path& path,
                                    const SourceSettings& settings) {
  FileDescriptor file = open_input(path);
  const InputStatus status = status_of(file, path);
  if (status.is_stream) return std::make_unique<PipeSource>(path, std::move(file), settings.stop);
  return std::make_unique<FileSource>(path, std::move(file), status, settings.keep_open);
}

}  // namespace corank
