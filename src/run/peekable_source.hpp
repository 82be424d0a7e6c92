// The bytes of a stream, of which the first can be seen before they are read.
//
// Bytes that are not there yet are not waited for: a pipe may be fed only while another one is
// read, too. Throws Error if the first or the last bytes show a format without plain records. One
// thread at a time may use a source.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/byte_source.hpp"
#include "io/known_format.hpp"
#include "util/math.hpp"

namespace corank {

// Content that an input may have.
struct InputContent {
  bool decompress = false;         // whether a compressed input is decompressed
  bool accepts_any_format = true;  // false: formats without plain records are refused
  std::string mark = {};           // byte order mark, which a pipe without a header drops
};

class PeekableSource final : public ByteSource {
 public:
  // `source` gives the bytes of `path`, decompressed as `content` says.
  PeekableSource(std::filesystem::path path, std::unique_ptr<ByteSource> source,
                 InputContent content);

  // Returns whether peek() need not wait for `bytes` bytes.
  bool has(std::uint64_t bytes) const { return head_.size() >= bytes || ended_; }
  // Takes what comes, to be peeked at and read later, until `is_enough` holds.
  void take(const std::atomic<bool>& is_enough);
  // Returns the first bytes, which must be unread: `bytes`, or all if there are fewer.
  std::vector<std::byte> peek(std::uint64_t bytes);
  // Makes reading begin after a header of `bytes` bytes. An empty stream needs no header.
  void skip(std::uint64_t bytes) { header_bytes_ = bytes; }

  std::optional<std::size_t> read(std::span<std::byte> into) override;

 private:
  bool extend_head(std::uint64_t bytes);
  void begin_reading();
  std::optional<std::size_t> read_source(std::span<std::byte> into);
  void note_tail(std::span<const std::byte> bytes, bool at_end);
  void check();

  std::filesystem::path path_;
  std::unique_ptr<ByteSource> source_;
  InputContent content_;
  bool needs_check_;
  std::uint64_t header_bytes_ = 0;
  std::vector<std::byte> head_;  // bytes read so far by peek(), or for a check
  std::size_t taken_ = 0;        // bytes of the head that are skipped or read
  std::uint64_t bytes_ = 0;      // bytes of the source that were read
  std::array<std::byte, known_format_tail_bytes> tail_{};  // the last of these
  bool ended_ = false;                                     // nothing follows them
};

[[noreturn]] void throw_short_header(const std::filesystem::path& path, std::uint64_t bytes,
                                     std::uint64_t header_bytes);

}  // namespace corank
