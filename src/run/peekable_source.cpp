#include "run/peekable_source.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "util/messages.hpp"

namespace corank {
namespace {

// Max bytes that take() keeps, and that it reads at a time.
constexpr std::uint64_t max_taken_bytes = MiB;
constexpr std::uint64_t step_bytes = std::uint64_t{64} << 10;

}  // namespace

PeekableSource::PeekableSource(std::filesystem::path path, std::unique_ptr<ByteSource> source,
                               InputContent content)
    : path_(std::move(path)),
      source_(std::move(source)),
      content_(std::move(content)),
      needs_check_(!content_.accepts_any_format) {}

void PeekableSource::take(const std::atomic<bool>& is_enough) {
  while (!is_enough && !has(max_taken_bytes)) extend_head(head_.size() + step_bytes);
}

std::vector<std::byte> PeekableSource::peek(std::uint64_t bytes) {
  assert(taken_ == 0);
  while (head_.size() < bytes && !ended_) extend_head(bytes);
  if (head_.size() >= known_format_head_bytes || ended_) check();
  const auto count = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(bytes, head_.size()));
  return {head_.begin(), head_.begin() + count};
}

std::optional<std::size_t> PeekableSource::read(std::span<std::byte> into) {
  const std::uint64_t head_bytes =
      std::max<std::uint64_t>(header_bytes_, needs_check_ ? known_format_head_bytes : 0);
  while (head_.size() < head_bytes && !ended_)
    if (!extend_head(head_bytes)) return 0;
  check();
  if (taken_ == 0) begin_reading();
  if (taken_ == head_.size()) return ended_ ? std::nullopt : read_source(into);
  const std::size_t count = std::min(into.size(), head_.size() - taken_);
  std::copy_n(head_.data() + taken_, count, into.begin());
  taken_ += count;
  return count;
}

// Reads more of the head, up to `bytes` bytes. Returns false if a pipe is empty.
bool PeekableSource::extend_head(std::uint64_t bytes) {
  const std::size_t before = head_.size();
  assert(before < bytes);
  head_.resize(bytes);
  const auto got = source_->read(std::span(head_).subspan(before));
  head_.resize(before + got.value_or(0));
  note_tail(std::span(head_).subspan(before), !got);
  return got != std::size_t{0};
}

// Skips the header, or the byte order mark.
void PeekableSource::begin_reading() {
  if (!head_.empty() && head_.size() < header_bytes_)
    throw_short_header(path_, head_.size(), header_bytes_);
  taken_ = std::min<std::uint64_t>(header_bytes_, head_.size());
  const std::string& mark = content_.mark;
  if (header_bytes_ == 0 && !mark.empty() && head_.size() >= mark.size() &&
      std::memcmp(head_.data(), mark.data(), mark.size()) == 0)
    taken_ = mark.size();
}

std::optional<std::size_t> PeekableSource::read_source(std::span<std::byte> into) {
  const auto got = source_->read(into);
  note_tail(into.first(got.value_or(0)), !got);
  return got;
}

// Keeps the last ones of the bytes that were read, and checks them at the end.
void PeekableSource::note_tail(std::span<const std::byte> bytes, bool at_end) {
  bytes_ += bytes.size();
  const std::size_t fresh = std::min(bytes.size(), tail_.size());
  std::shift_left(tail_.begin(), tail_.end(), static_cast<std::ptrdiff_t>(fresh));
  std::ranges::copy(bytes.last(fresh), tail_.end() - static_cast<std::ptrdiff_t>(fresh));
  ended_ = at_end;
  if (at_end && !content_.accepts_any_format)
    refuse_known_ends(path_,
                      std::span(head_).first(std::min(head_.size(), known_format_head_bytes)),
                      std::span(tail_).last(std::min<std::uint64_t>(bytes_, tail_.size())), bytes_,
                      content_.decompress);
}

void PeekableSource::check() {
  if (!std::exchange(needs_check_, false)) return;
  refuse_known_format(path_, head_, content_.decompress);
  if (!content_.mark.empty()) refuse_wide_text(path_, head_);
}

void throw_short_header(const std::filesystem::path& path, std::uint64_t bytes,
                        std::uint64_t header_bytes) {
  throw_error("{}: has {} bytes, fewer than its header of {}; correct {}", path, bytes,
              header_bytes, Setting::skip_bytes);
}

}  // namespace corank
