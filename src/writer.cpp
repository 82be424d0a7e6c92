#include "writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace corank {
namespace {

constexpr std::size_t staging_bytes = std::size_t{4} << 20;

// Whether `path` is something that is written to as it is: a device, a pipe.
bool is_stream(const std::filesystem::path& path) {
  const auto type = std::filesystem::status(path).type();
  return type == std::filesystem::file_type::character ||
         type == std::filesystem::file_type::block || type == std::filesystem::file_type::fifo;
}

}  // namespace

Writer::Writer(const std::filesystem::path& output, bool overwrite,
               const std::function<bool(FileIdentity)>& is_input)
    : path_(output) {
  if (output == "-") {
    path_ = "standard output";
    file_ = FileDescriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!file_) throw_file_error(path_, "write");
  } else if (is_stream(output)) {
    file_ = FileDescriptor(::open(output.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file_) throw_file_error(path_, "open");
  } else {
    atomic_ = std::make_unique<AtomicFile>(output, overwrite, is_input);
  }
}

Writer::Writer(const std::filesystem::path& folder) : path_(folder), file_(open_nameless(folder)) {}

void Writer::make_direct(std::uint64_t bytes) {
  if (!atomic_ || !corank::make_direct(file())) return;
  // The file's length stays what was written. File systems that can't reserve go on without.
  if (::fallocate(file().get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0 &&
      errno == ENOSPC)
    throw_file_error(path_, fmt::format("reserve {} bytes", bytes));
  staging_pool_ = std::make_unique<BufferPool>(staging_bytes, 1, nullptr);
  staging_ = staging_pool_->lease();
}

void Writer::write(std::span<const std::byte> bytes) {
  if (is_direct()) {
    bytes_ += bytes.size();
    while (!bytes.empty()) {
      const bool at_page = reinterpret_cast<std::uintptr_t>(bytes.data()) % page_bytes() == 0;
      if (staged_bytes_ == 0 && at_page && bytes.size() >= page_bytes()) {
        const std::size_t whole = bytes.size() - bytes.size() % page_bytes();
        write_all(file(), bytes.first(whole), path_);
        bytes = bytes.subspan(whole);
      } else {
        const auto free = staging_.bytes().subspan(staged_bytes_);
        const std::size_t count = std::min(bytes.size(), free.size());
        std::ranges::copy(bytes.first(count), free.begin());
        staged_bytes_ += count;
        bytes = bytes.subspan(count);
        if (count == free.size()) write_staged();
      }
    }
    return;
  }
  write_all(file(), bytes, path_);
  // Write-behind: the device starts on these bytes now, so that the last fsync has little left to
  // wait for. Pipes refuse it, which does no harm.
  ::sync_file_range(file().get(), static_cast<off_t>(bytes_), static_cast<off_t>(bytes.size()),
                    SYNC_FILE_RANGE_WRITE);
  bytes_ += bytes.size();
}

void Writer::write_staged() {
  write_all(file(), staging_.bytes().first(std::exchange(staged_bytes_, 0)), path_);
}

void Writer::make_durable() {
  if (staged_bytes_ != 0) {
    make_buffered(file());  // the last page may be no whole one
    write_staged();
  }
  if (atomic_) atomic_->make_durable();
}

void Writer::commit() {
  if (atomic_) atomic_->commit();
}

Run Writer::into_run(std::uint32_t record_bytes) {
  return Run(std::move(file_), path_, record_bytes, bytes_ / record_bytes);
}

}  // namespace corank
