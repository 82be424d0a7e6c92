#include "run/run.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <utility>
#include <vector>

#include "corank/error.hpp"
#include "io/known_format.hpp"
#include "util/buffer_pool.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

constexpr std::byte nothing{};  // address of an empty run in memory

InputContent content_of(const Run::Opening& opening) {
  return {opening.decompress, opening.header_bytes.has_value(), opening.mark};
}

// Throws Error unless the file is a header, of which the caller may have told the size, and whole
// records.
void check_whole_records(const std::filesystem::path& path, std::uint64_t file_bytes,
                         std::uint64_t header_bytes, std::uint32_t record_bytes,
                         bool header_is_told) {
  if (file_bytes < header_bytes) throw_short_header(path, file_bytes, header_bytes);
  const std::uint64_t rest = (file_bytes - header_bytes) % record_bytes;
  if (rest == 0) return;
  throw_error(
      "{}: its size, {} bytes{}, is not a multiple of the record size, {} bytes; the last whole "
      "record ends at byte {}: check the file and {}{}",
      path, file_bytes,
      header_bytes == 0 ? "" : fmt::format(" without its header of {}", header_bytes), record_bytes,
      file_bytes - rest, Setting::record,
      header_is_told
          ? ""
          : "; or, if it begins with a header, say " + setting_is(Setting::skip_bytes, "N"));
}

// Returns the place of a byte of the file for messages.
std::string shown_place(const Run& run, std::uint64_t byte) {
  if (run.record_bytes() == 1) return fmt::format("byte {}", byte);
  return fmt::format("byte {} (in record {})", byte,
                     (byte - run.header_bytes()) / run.record_bytes());
}

}  // namespace

struct Run::OpenFile {
  bool is_direct = false;
  std::mutex mutex;                   // of the rest
  std::optional<MappedFiles> files;   // of mapped_later()
  const std::byte* memory = nullptr;  // start of the file
};

Run::Run(std::filesystem::path path, std::uint32_t record_bytes, const Opening& opening)
    : path_(std::move(path)),
      file_(std::make_shared<const FileDescriptor>(open_input(path_))),
      open_file_(std::make_shared<OpenFile>()),
      input_(verify_input(path_, *file_, opening.decompress, opening.decompression)),
      content_(content_of(opening)),
      record_bytes_(record_bytes),
      file_bytes_(input_.bytes),
      header_bytes_(opening.header_bytes.value_or(0)) {
  if (is_stream()) {
    record_bytes_ = 1;
  } else {
    if (!content_.accepts_any_format)
      refuse_known_format(path_, *file_, file_bytes_, content_.decompress);
    if (file_bytes_ == 0) header_bytes_ = 0;  // an empty file needs no header
    check_whole_records(path_, file_bytes_, header_bytes_, record_bytes_,
                        content_.accepts_any_format);
  }
  records_ = (file_bytes_ - (is_stream() ? 0 : header_bytes_)) / record_bytes_;
  if (opening.keep_open)
    ::posix_fadvise(file_->get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  else if (!input_.is_pipe)
    file_.reset();
}

Run::Run(const NamedSource& source, const Opening& opening, std::stop_token stop)
    : path_(source.name),
      stop_(stop),
      input_{.is_pipe = true},
      content_(content_of(opening)),
      pipe_(std::make_shared<PeekableSource>(
          path_,
          open_source(source, opening.decompress, opening.decompression.max_decoder_bytes,
                      std::move(stop)),
          content_)),
      record_bytes_(1),
      file_bytes_(0),
      header_bytes_(opening.header_bytes.value_or(0)),
      records_(0) {}

Run::Run(FileDescriptor file, std::filesystem::path folder, std::uint32_t record_bytes,
         std::uint64_t records, std::uint64_t header_bytes)
    : path_(std::move(folder)),
      file_(std::make_shared<const FileDescriptor>(std::move(file))),
      open_file_(std::make_shared<OpenFile>()),
      record_bytes_(record_bytes),
      file_bytes_(header_bytes + records * record_bytes),
      header_bytes_(header_bytes),
      records_(records) {}

Run Run::compressed(FileDescriptor file, std::filesystem::path folder,
                    std::uint64_t content_bytes) {
  InputStatus status = verify_input(folder, file, true);
  status.identity = {};
  Run run(std::move(file), std::move(folder), 1, status.bytes);
  run.input_ = status;
  run.content_.decompress = true;
  run.content_bytes_ = content_bytes;
  return run;
}

Run::Run(std::span<const std::byte> memory, std::string name, std::uint32_t record_bytes)
    : path_(std::move(name)),
      memory_(memory.empty() ? &nothing : memory.data()),
      record_bytes_(record_bytes),
      file_bytes_(memory.size()),
      records_(memory.size() / record_bytes) {
  if (memory.size() % record_bytes != 0)
    throw_error("{}: its size, {} bytes, is not a multiple of the record size, {} bytes", path_,
                memory.size(), record_bytes);
}

Run Run::subspan(std::uint64_t first, std::uint64_t count) const {
  assert(first <= records_ && count <= records_ - first);
  Run part = *this;
  part.first_ += first;
  part.records_ = count;
  if (count != records_) part.fingerprint_.reset();
  return part;
}

Run Run::without_header(std::uint64_t header_bytes, std::uint64_t header_lines) const {
  assert(record_bytes_ == 1);
  assert(is_stream() || header_bytes <= records_);
  Run rest = *this;
  rest.header_bytes_ += header_bytes;
  rest.header_lines_ += header_lines;
  // The length of a stream is unknown, so its size stays that of the file.
  if (!is_stream()) rest.records_ -= header_bytes;
  return rest;
}

std::shared_ptr<PeekableSource> Run::open_stream(std::stop_token stop) const {
  assert(is_stream());
  if (pipe_) return pipe_;
  return std::make_shared<PeekableSource>(
      path_, open_source(path_, file_, input_, content_.decompress, std::move(stop)), content_);
}

std::shared_ptr<ByteSource> Run::source(std::stop_token stop) const {
  const std::shared_ptr<PeekableSource> source = open_stream(std::move(stop));
  source->skip(offset());
  return source;
}

std::vector<std::byte> Run::begin(std::uint64_t bytes, std::stop_token stop, std::span<Run> runs) {
  const std::shared_ptr<PeekableSource> source = open_stream(stop);
  if (!input_.is_pipe) return source->peek(bytes);
  pipe_ = source;
  std::atomic<bool> is_enough = source->has(bytes);
  std::vector<std::future<void>> others;
  for (Run& other : runs) {
    if (is_enough || &other == this || !other.input_.is_pipe) continue;
    other.pipe_ = other.open_stream(stop);
    others.push_back(std::async(std::launch::async, &PeekableSource::take, other.pipe_.get(),
                                std::cref(is_enough)));
  }
  std::vector<std::byte> begin;
  try {
    begin = source->peek(bytes);
  } catch (...) {
    is_enough = true;
    throw;
  }
  is_enough = true;
  for (std::future<void>& other : others) other.get();
  return begin;
}

Run Run::in_bytes() const {
  Run bytes = *this;
  bytes.first_ *= record_bytes_;
  bytes.records_ *= record_bytes_;
  bytes.record_bytes_ = 1;
  return bytes;
}

bool Run::make_direct() {
  if (!is_named_file()) return false;
  open_file_->is_direct = corank::make_direct(*descriptor());
  return open_file_->is_direct;
}

bool Run::is_direct() const {
  return open_file_ && open_file_->is_direct;
}

void Run::map_into(const std::shared_ptr<MappedFiles>& files) {
  if (!is_named_file() || is_stream()) return;
  assert(!mapping_);
  memory_ = files->add(*descriptor(), file_bytes_, path_);
  mapping_ = files;
}

std::span<const std::byte> Run::mapped_later() const {
  if (!open_file_ || is_stream()) return {};
  const std::lock_guard lock(open_file_->mutex);
  if (!open_file_->memory) {
    if (!open_file_->files) open_file_->files.emplace(std::span(&file_bytes_, 1), 0);
    open_file_->memory = open_file_->files->add(*descriptor(), file_bytes_, path_);
  }
  return {open_file_->memory + offset(), bytes()};
}

std::uint64_t Run::mapped_page_bytes() const {
  return mapping_ ? mapping_->page_bytes(file_bytes_) : 0;
}

bool Run::is_cached() const {
  constexpr std::uint64_t samples = 4;
  const auto file = descriptor();
  for (std::uint64_t i = 0; i < samples && file_bytes_ != 0; ++i)
    if (!corank::is_cached(*file, (file_bytes_ - 1) / (samples - 1) * i)) return false;
  return true;
}

void Run::set_starts(std::vector<std::uint64_t> starts) {
  assert(std::ranges::is_sorted(starts));
  starts_ = std::make_shared<const std::vector<std::uint64_t>>(std::move(starts));
}

std::uint64_t Run::start_before(std::uint64_t position) const {
  if (!starts_) return 0;
  const auto after = std::ranges::upper_bound(*starts_, first_ + position);
  return after == starts_->begin() ? 0 : std::max(*std::prev(after), first_) - first_;
}

Run Run::whole() const {
  Run all = *this;
  all.first_ = 0;
  all.records_ = (file_bytes_ - header_bytes_) / record_bytes_;
  return all;
}

std::optional<std::uint64_t> Run::line_at(std::uint64_t byte, char terminator) const {
  if (input_.is_pipe) return std::nullopt;
  const auto count = [&](std::span<const std::byte> bytes) {
    return static_cast<std::uint64_t>(
        std::ranges::count(bytes, static_cast<std::byte>(terminator)));
  };
  if (memory_) return 1 + count({memory_, byte});
  const auto file = is_named_file() ? std::make_shared<const FileDescriptor>(reopen()) : file_;
  const auto source = open_source(path_, file, input_, content_.decompress, stop_);
  std::vector<std::byte> block(MiB);
  std::uint64_t line = 1;
  for (std::size_t got = 1; byte != 0 && got != 0; byte -= got) {
    if (stop_.stop_requested()) throw Interrupted();
    const auto wanted = std::span(block).first(std::min<std::uint64_t>(byte, block.size()));
    got = read_all(*source, wanted);
    line += count(wanted.first(got));
  }
  return line;
}

FileDescriptor Run::reopen() const {
  assert(identity() != FileIdentity{});  // otherwise no name leads to the file
  return corank::reopen(path_, identity());
}

std::shared_ptr<const FileDescriptor> Run::descriptor() const {
  if (file_) return file_;
  auto file = std::make_shared<const FileDescriptor>(reopen());
  if (is_direct()) corank::make_direct(*file);
  return file;
}

Run::Part Run::part(std::uint64_t first, std::uint64_t count) const {
  const std::uint64_t offset = this->offset() + first * record_bytes_;
  const std::uint64_t wanted = count * record_bytes_;
  if (!is_direct()) return {offset, wanted, 0, wanted};
  const std::uint64_t skew = offset % page_bytes();
  return {offset - skew, round_up(skew + wanted, page_bytes()), skew, wanted};
}

void Run::read(std::uint64_t first, std::uint64_t count, std::span<std::byte> into) const {
  if (stop_.stop_requested()) throw Interrupted();
  assert(!is_stream() && first <= records_ && count <= records_ - first);
  assert(into.size() >= count * record_bytes_);
  const Part part = this->part(first, count);
  if (memory_) {
    std::memcpy(into.data(), in_place(first), part.wanted);
    return;
  }
  if (!is_direct()) {
    check_got(part, read_at(*descriptor(), into.first(part.bytes), part.offset, path_));
    return;
  }
  BufferPool pool(part.bytes, 1, nullptr);  // for page-aligned memory
  const Buffer pages = pool.lease();
  check_got(part, read_at(*descriptor(), pages.bytes(), part.offset, path_));
  std::memcpy(into.data(), pages.bytes().data() + part.skew, part.wanted);
}

void Run::prefetch(std::uint64_t first, std::uint64_t count) const {
  assert(first <= records_ && count <= records_ - first);
  if (count == 0 || !file_ || is_direct()) return;
  ::posix_fadvise(file_->get(), static_cast<off_t>(offset() + first * record_bytes_),
                  static_cast<off_t>(count * record_bytes_), POSIX_FADV_WILLNEED);
}

void Run::check_got(const Part& part, std::uint64_t got) const {
  if (got >= part.skew + part.wanted) return;
  throw_error(
      "{}: became shorter while it was read: it had {} bytes and now ends at {}; start again when "
      "nothing writes to it",
      path_, file_bytes_, shown_place(*this, part.offset + got));
}

void Run::check_mapped(const MappedFiles& files, const std::byte* memory) const {
  const std::byte* const failed = files.failed_at();
  if (!failed || failed < memory || failed >= memory + round_up(file_bytes_, page_bytes())) return;
  throw_error(
      "{}: {} could not be read: the file became shorter meanwhile, or its device failed; check it "
      "and start again",
      path_, shown_place(*this, static_cast<std::uint64_t>(failed - memory)));
}

void Run::check_readable() const {
  if (mapping_) check_mapped(*mapping_, memory_);
  if (open_file_ && open_file_->files) check_mapped(*open_file_->files, open_file_->memory);
}

void Run::check_unchanged() const {
  if ((memory_ && !mapping_) || input_.is_pipe) return;
  check_readable();
  struct stat status {};
  if (::fstat(descriptor()->get(), &status) != 0) throw_file_error(path_, "get its status");
  if (static_cast<std::uint64_t>(status.st_size) != file_bytes_)
    throw_error(
        "{}: changed its size while it was read, from {} to {} bytes; start again when nothing "
        "writes to it",
        path_, file_bytes_, status.st_size);
  if (identity() != FileIdentity{} && corank::modified_ns(status) != modified_ns())
    throw Error(path_.string() +
                ": was written to while it was read, as its time of change tells; start again when "
                "nothing writes to it");
}

std::uint64_t total_bytes(std::span<const Run> runs) {
  std::uint64_t bytes = 0;
  for (const Run& run : runs) bytes += run.bytes();
  return bytes;
}

}  // namespace corank
