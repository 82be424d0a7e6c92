#include "run/run.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
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

[[noreturn]] void throw_short_header(const std::filesystem::path& path, std::uint64_t bytes,
                                     std::uint64_t header_bytes) {
  throw_error("{}: has {} bytes, fewer than its header of {}; correct {}", path, bytes,
              header_bytes, Setting::skip_bytes);
}

}  // namespace

// The bytes of a stream, of which the first can be seen before they are read. Bytes that are not
// there yet are not waited for: a pipe may be fed only while another one is read, too.
class Run::PeekableSource final : public ByteSource {
 public:
  PeekableSource(std::filesystem::path path, std::unique_ptr<ByteSource> source, const Run& run)
      : path_(std::move(path)),
        source_(std::move(source)),
        accepts_any_format_(run.accepts_any_format_),
        needs_check_(!run.accepts_any_format_),
        decompress_(run.decompress_),
        mark_(run.mark_) {}

  // Returns whether peek() need not wait for `bytes` bytes.
  bool has(std::uint64_t bytes) const { return head_.size() >= bytes || ended_; }
  // Takes what comes, to be peeked at and read later, until `is_enough` holds.
  void take(const std::atomic<bool>& is_enough) {
    while (!is_enough && !has(max_taken_bytes)) extend_head(head_.size() + step_bytes);
  }
  // Returns the first bytes, which must be unread: `bytes`, or all if there are fewer.
  std::vector<std::byte> peek(std::uint64_t bytes) {
    assert(taken_ == 0);
    while (head_.size() < bytes && !ended_) extend_head(bytes);
    if (head_.size() >= known_format_head_bytes || ended_) check();
    return {head_.begin(), head_.begin() + static_cast<std::ptrdiff_t>(
                                               std::min<std::uint64_t>(bytes, head_.size()))};
  }
  // Makes reading begin after a header of `bytes` bytes. An empty stream needs no header.
  void skip(std::uint64_t bytes) { header_bytes_ = bytes; }

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    const std::uint64_t head_bytes =
        std::max<std::uint64_t>(header_bytes_, needs_check_ ? known_format_head_bytes : 0);
    while (head_.size() < head_bytes && !ended_)
      if (!extend_head(head_bytes)) return 0;
    check();
    if (taken_ == 0) {
      if (!head_.empty() && head_.size() < header_bytes_)
        throw_short_header(path_, head_.size(), header_bytes_);
      taken_ = std::min<std::uint64_t>(header_bytes_, head_.size());
      if (header_bytes_ == 0 && !mark_.empty() && head_.size() >= mark_.size() &&
          std::memcmp(head_.data(), mark_.data(), mark_.size()) == 0)
        taken_ = mark_.size();
    }
    if (taken_ == head_.size()) return ended_ ? std::nullopt : read_source(into);
    const std::size_t count = std::min(into.size(), head_.size() - taken_);
    std::copy_n(head_.data() + taken_, count, into.begin());
    taken_ += count;
    return count;
  }

 private:
  // Max bytes that take() keeps, and that it reads at a time.
  static constexpr std::uint64_t max_taken_bytes = MiB;
  static constexpr std::uint64_t step_bytes = std::uint64_t{64} << 10;

  // Reads more of the head, up to `bytes` bytes. Returns false if a pipe is empty.
  bool extend_head(std::uint64_t bytes) {
    const std::size_t before = head_.size();
    assert(before < bytes);
    head_.resize(bytes);
    const auto got = source_->read(std::span(head_).subspan(before));
    head_.resize(before + got.value_or(0));
    note_tail(std::span(head_).subspan(before), !got);
    return got != std::size_t{0};
  }

  std::optional<std::size_t> read_source(std::span<std::byte> into) {
    const auto got = source_->read(into);
    note_tail(into.first(got.value_or(0)), !got);
    return got;
  }

  // Keeps the last ones of the bytes that were read, and checks them at the end.
  void note_tail(std::span<const std::byte> bytes, bool at_end) {
    bytes_ += bytes.size();
    const std::size_t fresh = std::min(bytes.size(), tail_.size());
    std::shift_left(tail_.begin(), tail_.end(), static_cast<std::ptrdiff_t>(fresh));
    std::ranges::copy(bytes.last(fresh), tail_.end() - static_cast<std::ptrdiff_t>(fresh));
    ended_ = at_end;
    if (at_end && !accepts_any_format_)
      refuse_known_ends(path_,
                        std::span(head_).first(std::min(head_.size(), known_format_head_bytes)),
                        std::span(tail_).last(std::min<std::uint64_t>(bytes_, tail_.size())),
                        bytes_, decompress_);
  }

  void check() {
    if (std::exchange(needs_check_, false)) refuse_known_format(path_, head_, decompress_);
  }

  std::filesystem::path path_;
  std::unique_ptr<ByteSource> source_;
  bool accepts_any_format_;
  bool needs_check_;
  bool decompress_;
  std::string mark_;  // see Opening::mark
  std::uint64_t header_bytes_ = 0;
  std::vector<std::byte> head_;  // bytes read so far by peek(), or for a check
  std::size_t taken_ = 0;        // bytes of the head that are skipped or read
  std::uint64_t bytes_ = 0;      // bytes of the source that were read
  std::array<std::byte, known_format_tail_bytes> tail_{};  // the last of these
  bool ended_ = false;                                     // nothing follows them
};

struct Run::LateMapping {
  std::mutex mutex;
  std::optional<MappedFiles> files;
  const std::byte* memory = nullptr;  // start of the file
};

Run::Run(std::filesystem::path path, std::uint32_t record_bytes, const Opening& opening)
    : path_(std::move(path)),
      file_(std::make_shared<const FileDescriptor>(open_input(path_))),
      late_mapping_(std::make_shared<LateMapping>()),
      input_(verify_input(path_, *file_, opening.decompress, opening.max_decoder_bytes)),
      decompress_(opening.decompress),
      accepts_any_format_(opening.header_bytes.has_value()),
      mark_(opening.mark),
      record_bytes_(record_bytes),
      file_bytes_(input_.bytes),
      header_bytes_(opening.header_bytes.value_or(0)) {
  if (is_stream()) {
    record_bytes_ = 1;
  } else {
    if (!accepts_any_format_) refuse_known_format(path_, *file_, file_bytes_, decompress_);
    if (file_bytes_ == 0) header_bytes_ = 0;  // an empty file needs no header
    if (file_bytes_ < header_bytes_) throw_short_header(path_, file_bytes_, header_bytes_);
    const std::uint64_t rest = (file_bytes_ - header_bytes_) % record_bytes_;
    if (rest != 0)
      throw_error(
          "{}: its size, {} bytes{}, is not a multiple of the record size, {} bytes; the last "
          "whole record ends at byte {}: check the file and {}{}",
          path_, file_bytes_,
          header_bytes_ == 0 ? "" : fmt::format(" without its header of {}", header_bytes_),
          record_bytes, file_bytes_ - rest, Setting::record,
          accepts_any_format_
              ? ""
              : "; or, if it begins with a header, say " + setting_is(Setting::skip_bytes, "N"));
  }
  records_ = (file_bytes_ - (is_stream() ? 0 : header_bytes_)) / record_bytes_;
  if (opening.keep_open)
    ::posix_fadvise(file_->get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  else if (!input_.is_stream)
    file_.reset();
}

Run::Run(const NamedSource& source, const Opening& opening, std::stop_token stop)
    : path_(source.name),
      stop_(stop),
      input_{.is_stream = true},
      decompress_(opening.decompress),
      accepts_any_format_(opening.header_bytes.has_value()),
      mark_(opening.mark),
      pipe_(std::make_shared<PeekableSource>(
          path_,
          open_source(source, opening.decompress, opening.max_decoder_bytes, std::move(stop)),
          *this)),
      record_bytes_(1),
      file_bytes_(0),
      header_bytes_(opening.header_bytes.value_or(0)),
      records_(0) {}

Run::Run(FileDescriptor file, std::filesystem::path folder, std::uint32_t record_bytes,
         std::uint64_t records, std::uint64_t header_bytes)
    : path_(std::move(folder)),
      file_(std::make_shared<const FileDescriptor>(std::move(file))),
      late_mapping_(std::make_shared<LateMapping>()),
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
  run.decompress_ = true;
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

std::shared_ptr<Run::PeekableSource> Run::open_stream(std::stop_token stop) const {
  assert(is_stream());
  if (pipe_) return pipe_;
  return std::make_shared<PeekableSource>(
      path_, open_source(path_, file_, input_, decompress_, std::move(stop)), *this);
}

std::shared_ptr<ByteSource> Run::source(std::stop_token stop) const {
  const std::shared_ptr<PeekableSource> source = open_stream(std::move(stop));
  source->skip(offset());
  return source;
}

std::vector<std::byte> Run::begin(std::uint64_t bytes, std::stop_token stop, std::span<Run> runs) {
  const std::shared_ptr<PeekableSource> source = open_stream(stop);
  if (!input_.is_stream) return source->peek(bytes);
  pipe_ = source;
  std::atomic<bool> is_enough = source->has(bytes);
  std::vector<std::future<void>> others;
  for (Run& other : runs) {
    if (is_enough || &other == this || !other.input_.is_stream) continue;
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
  direct_ = corank::make_direct(*descriptor());
  return direct_;
}

void Run::map_into(const std::shared_ptr<MappedFiles>& files) {
  if (!is_named_file() || is_stream()) return;
  assert(!mapping_);
  memory_ = files->add(*descriptor(), file_bytes_, path_);
  mapping_ = files;
}

std::span<const std::byte> Run::mapped_later() const {
  if (!late_mapping_ || is_stream()) return {};
  const std::lock_guard lock(late_mapping_->mutex);
  if (!late_mapping_->memory) {
    if (!late_mapping_->files) late_mapping_->files.emplace(std::span(&file_bytes_, 1), 0);
    late_mapping_->memory = late_mapping_->files->add(*descriptor(), file_bytes_, path_);
  }
  return {late_mapping_->memory + offset(), bytes()};
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
  if (input_.is_stream) return std::nullopt;
  const auto count = [&](std::span<const std::byte> bytes) {
    return static_cast<std::uint64_t>(
        std::ranges::count(bytes, static_cast<std::byte>(terminator)));
  };
  if (memory_) return 1 + count({memory_, byte});
  const auto file = is_named_file() ? std::make_shared<const FileDescriptor>(reopen()) : file_;
  const auto source = open_source(path_, file, input_, decompress_, stop_);
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
  if (direct_) corank::make_direct(*file);
  return file;
}

Run::Part Run::part(std::uint64_t first, std::uint64_t count) const {
  const std::uint64_t offset = this->offset() + first * record_bytes_;
  const std::uint64_t wanted = count * record_bytes_;
  if (!direct_) return {offset, wanted, 0, wanted};
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
  if (!direct_) {
    check_got(part, read_at(*descriptor(), into.first(part.bytes), part.offset, path_));
    return;
  }
  BufferPool pool(part.bytes, 1, nullptr);  // for page-aligned memory
  const Buffer pages = pool.lease();
  check_got(part, read_at(*descriptor(), pages.bytes(), part.offset, path_));
  std::memcpy(into.data(), pages.bytes().data() + part.skew, part.wanted);
}

void Run::check_got(const Part& part, std::uint64_t got) const {
  if (got >= part.skew + part.wanted) return;
  throw_error(
      "{}: became shorter while it was read: it had {} bytes and now ends at byte {} (in record "
      "{}); start again when nothing writes to it",
      path_, file_bytes_, part.offset + got, (part.offset + got - header_bytes_) / record_bytes_);
}

void Run::check_mapped(const MappedFiles& files, const std::byte* memory) const {
  const std::byte* const failed = files.failed_at();
  if (!failed || failed < memory || failed >= memory + round_up(file_bytes_, page_bytes())) return;
  throw_error(
      "{}: byte {} (in record {}) could not be read: the file became shorter meanwhile, or its "
      "device failed; check it and start again",
      path_, failed - memory,
      (static_cast<std::uint64_t>(failed - memory) - header_bytes_) / record_bytes_);
}

void Run::check_readable() const {
  if (mapping_) check_mapped(*mapping_, memory_);
  if (late_mapping_ && late_mapping_->files)
    check_mapped(*late_mapping_->files, late_mapping_->memory);
}

void Run::check_unchanged() const {
  if ((memory_ && !mapping_) || input_.is_stream) return;
  check_readable();
  struct stat status {};
  if (::fstat(descriptor()->get(), &status) != 0) throw_file_error(path_, "look at");
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

}  // namespace corank
