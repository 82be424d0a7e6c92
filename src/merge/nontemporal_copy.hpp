// Copies that leave the caches alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "merge/word_kernel.hpp"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace corank {

// Memory that is written whole need not be read into the caches first.
inline void stream_copy(std::byte* to, const std::byte* from, std::uint64_t bytes,
                        StreamLines* stream_lines) {
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

// Past the caches, unless `stream_lines` is null.
inline void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes,
                       StreamLines* stream_lines) {
  if (stream_lines)
    stream_copy(to, from, bytes, stream_lines);
  else
    std::memcpy(to, from, bytes);
}

// Whether streaming pays where the core has other work to do meanwhile. Merging 16-byte records in
// 16 threads of an Intel Emerald Rapids it does: 1.15 and 1.23 times as fast at k = 16 and 256, and
// 100-byte ones 1.3 times. One or two threads of an AMD Zen 5, which alone of its make has the
// instruction that is asked for, become 0.92 to 1.23 times as fast, at k = 16 1.1 times; of a
// Zen 3 0.7 to 1 times.
inline bool streaming_overlaps() {
#ifdef __x86_64__
  return __builtin_cpu_is("intel") || __builtin_cpu_supports("avx512vp2intersect");
#else
  return false;
#endif
}

// Writes pieces one after another. What is put into window() goes out once advance() says how much
// of it, up to `window_bytes`; go_back() lets the last bytes be written again.
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

// The same, streaming, whole lines at a time.
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
    return buffer_ + held_;
  }
  void advance(std::uint64_t bytes) { held_ += bytes; }
  void go_back(std::uint64_t bytes) {
    stream_copy(to_, buffer_, held_, stream_lines_);
    to_ += held_;
    to_ -= bytes;
    held_ = 0;
  }

 private:
  // All but a line that is not whole.
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

// Makes what was streamed visible to other threads, as all else is.
inline void end_of_streams() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace corank
