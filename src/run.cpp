#include "run.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>

#include "corank/error.hpp"

namespace corank {
namespace {

constexpr std::byte nothing{};  // where a run without records is

}  // namespace

Run::Run(std::filesystem::path path, std::uint32_t record_bytes, bool keep_open)
    : path_(std::move(path)),
      file_(std::make_shared<const FileDescriptor>(open_to_read(path_))),
      record_bytes_(record_bytes) {
  struct stat status {};
  if (::fstat(file_->get(), &status) != 0) throw_file_error(path_, "look at");
  if (S_ISDIR(status.st_mode))
    throw Error(path_.string() + ": is a folder; name the run files in it");
  if (!S_ISREG(status.st_mode))
    throw Error(path_.string() + ": is no regular file; write it to one first");
  file_bytes_ = static_cast<std::uint64_t>(status.st_size);
  if (file_bytes_ % record_bytes != 0)
    throw Error(fmt::format(
        "{}: its size, {} bytes, is no multiple of the record's, {} bytes; the last whole record "
        "ends at byte {}: check the file and --record",
        path_.string(), file_bytes_, record_bytes, file_bytes_ - file_bytes_ % record_bytes));
  records_ = file_bytes_ / record_bytes;
  identity_ = {status.st_dev, status.st_ino};
  if (keep_open)
    ::posix_fadvise(file_->get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  else
    file_.reset();
}

Run::Run(FileDescriptor file, std::filesystem::path folder, std::uint32_t record_bytes,
         std::uint64_t records)
    : path_(std::move(folder)),
      file_(std::make_shared<const FileDescriptor>(std::move(file))),
      record_bytes_(record_bytes),
      file_bytes_(records * record_bytes),
      records_(records) {}

Run::Run(std::span<const std::byte> memory, std::string name, std::uint32_t record_bytes)
    : path_(std::move(name)),
      memory_(memory.empty() ? &nothing : memory.data()),
      record_bytes_(record_bytes),
      file_bytes_(memory.size()),
      records_(memory.size() / record_bytes) {
  if (memory.size() % record_bytes != 0)
    throw Error(fmt::format("{}: its size, {} bytes, is no multiple of the record's, {} bytes",
                            path_.string(), memory.size(), record_bytes));
}

Run Run::stretch(std::uint64_t first, std::uint64_t count) const {
  Run part = *this;
  part.first_ += first;
  part.records_ = count;
  return part;
}

FileDescriptor Run::reopen() const {
  FileDescriptor file = open_to_read(path_);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_file_error(path_, "look at");
  if (!(FileIdentity{status.st_dev, status.st_ino} == identity_))
    throw Error(path_.string() + ": was replaced while it was read; start again");
  return file;
}

void Run::read(std::uint64_t first, std::uint64_t count, std::span<std::byte> into) const {
  const auto wanted = into.first(count * record_bytes_);
  if (memory_) {
    std::memcpy(wanted.data(), in_place(first), wanted.size());
    return;
  }
  const std::uint64_t offset = (first_ + first) * record_bytes_;
  const std::size_t got =
      file_ ? read_at(*file_, wanted, offset, path_) : read_at(reopen(), wanted, offset, path_);
  if (got != wanted.size())
    throw Error(fmt::format(
        "{}: became shorter while it was read: it had {} bytes and now ends at byte {} (in record "
        "{}); start again when nothing writes to it",
        path_.string(), file_bytes_, offset + got, (offset + got) / record_bytes_));
}

void Run::check_unchanged() const {
  if (memory_) return;
  const FileDescriptor reopened = file_ ? FileDescriptor() : reopen();
  struct stat status {};
  if (::fstat((file_ ? *file_ : reopened).get(), &status) != 0) throw_file_error(path_, "look at");
  if (static_cast<std::uint64_t>(status.st_size) != file_bytes_)
    throw Error(fmt::format(
        "{}: changed its size while it was read, from {} to {} bytes; start again when nothing "
        "writes to it",
        path_.string(), file_bytes_, status.st_size));
}

}  // namespace corank
