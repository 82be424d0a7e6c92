// Copies by non-temporal (streaming) stores, which bypass the caches. After the last one, call
// end_of_streams() before another thread reads the output.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "merge/word_kernel.hpp"
#include "util/cpu_features.hpp"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace corank {

// Copies `bytes`, whole cache lines of `to` by non-temporal stores. These lines are not read into
// the caches before they are overwritten.
inline void stream_copy(std::byte* to, const std::byte* from, std::uint64_t bytes,
                        StreamLines* stream_lines) {
  assert(stream_lines);
  assert(to + bytes <= from || from + bytes <= to);
  constexpr std::uint64_t line_bytes = 64;
  if (bytes >= 4 * line_bytes) {
    const std::uint64_t head = -reinterpret_cast<std::uintptr_t>(to) % line_bytes;
    const std::uint64_t lines = (bytes - head) / line_bytes * line_bytes;
    std::memcpy(to, from, head);
    stream_lines(to + head, from + head, lines);
    to += head + lines;
    from += head + lines;
    bytes -= head + lines;
  }
  std::memcpy(to, from, bytes);
}

// Copies by non-temporal stores, or by ordinary ones if `stream_lines` is null.
inline void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes,
                       StreamLines* stream_lines) {
  if (stream_lines)
    stream_copy(to, from, bytes, stream_lines);
  else
    std::memcpy(to, from, bytes);
}

// Returns whether non-temporal stores pay off where the core has other work meanwhile. They do on
// Intel, and on the AMD cores that can be told by VP2INTERSECT. Tuned by bench-cpu; see
// docs/tuning.md.
inline bool streaming_overlaps() {
  return cpu_features().is_intel || cpu_features().has_avx512_vp2intersect;
}

// Writes pieces contiguously by ordinary stores. The caller may also fill window(), up to
// `window_bytes`, and emit it by advance(). go_back() moves the position back, to overwrite the
// last bytes.
class PlainWriter {
 public:
  static constexpr std::size_t window_bytes = std::size_t{16} << 10;

  explicit PlainWriter(std::byte* to) : to_(to) {}

  void write(const std::byte* from, std::uint64_t bytes) {
    std::memcpy(to_, from, bytes);
    to_ += bytes;
  }
  std::byte* window() { return to_; }
  void advance(std::uint64_t bytes) { to_ += bytes; }
  void go_back(std::uint64_t bytes) { to_ -= bytes; }

 private:
  std::byte* to_;
};

// Writes pieces contiguously, as PlainWriter does, but by non-temporal stores of whole cache lines.
// Holds back up to a window of output until the destructor.
class NontemporalWriter {
 public:
  static constexpr std::size_t window_bytes = 4096;

  NontemporalWriter(std::byte* to, StreamLines* stream_lines)
      : to_(to), stream_lines_(stream_lines) {}
  NontemporalWriter(const NontemporalWriter&) = delete;
  NontemporalWriter& operator=(const NontemporalWriter&) = delete;
  ~NontemporalWriter() { stream_copy(to_, buffer_, held_, stream_lines_); }

  void write(const std::byte* from, std::uint64_t bytes) {
    if (held_ + bytes > sizeof buffer_) flush();
    if (held_ + bytes > sizeof buffer_) {
      stream_copy(to_, buffer_, held_, stream_lines_);
      stream_copy(to_ + held_, from, bytes, stream_lines_);
      to_ += held_ + bytes;
      held_ = 0;
    } else {
      std::memcpy(buffer_ + held_, from, bytes);
      held_ += bytes;
    }
  }
  std::byte* window() {
    flush();
    assert(held_ + window_bytes <= sizeof buffer_);
    return buffer_ + held_;
  }
  void advance(std::uint64_t bytes) {
    held_ += bytes;
    assert(held_ <= sizeof buffer_);
  }
  void go_back(std::uint64_t bytes) {
    stream_copy(to_, buffer_, held_, stream_lines_);
    to_ += held_;
    to_ -= bytes;
    held_ = 0;
  }

 private:
  // Writes all held bytes except a partial last line.
  void flush() {
    const std::uint64_t rest = reinterpret_cast<std::uintptr_t>(to_ + held_) % 64;
    const std::uint64_t whole = held_ < rest ? 0 : held_ - rest;
    stream_copy(to_, buffer_, whole, stream_lines_);
    to_ += whole;
    held_ -= whole;
    std::memmove(buffer_, buffer_ + whole, held_);
  }

  std::byte* to_;
  StreamLines* stream_lines_;
  std::uint64_t held_ = 0;
  std::byte buffer_[window_bytes + 64];
};

// Makes streamed bytes visible to other threads in program order, as ordinary stores are.
inline void end_of_streams() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace corank
