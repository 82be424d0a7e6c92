#include "writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace corank {
namespace {

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

void Writer::write(std::span<const std::byte> bytes) {
  write_all(file(), bytes, path_);
  // Write-behind: the device starts on these bytes now, so that the last fsync has little left to
  // wait for. Pipes refuse it, which does no harm.
  ::sync_file_range(file().get(), static_cast<off_t>(bytes_), static_cast<off_t>(bytes.size()),
                    SYNC_FILE_RANGE_WRITE);
  bytes_ += bytes.size();
}

void Writer::make_durable() {
  if (atomic_) atomic_->make_durable();
}

void Writer::commit() {
  if (atomic_) atomic_->commit();
}

Run Writer::into_run(std::uint32_t record_bytes) {
  return Run(std::move(file_), path_, record_bytes, bytes_ / record_bytes);
}

}  // namespace corank
