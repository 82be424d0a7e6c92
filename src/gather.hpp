// Copies records of variable length from where their entries say they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "corank/key.hpp"
#include "prefetch.hpp"

namespace corank {

// Writes them one after another. Reads, like other users of chunks, a few bytes beyond a record.
class GatherWriter {
 public:
  // All that is written fits before `end`.
  GatherWriter(const TextLayout& layout, std::byte* to, const std::byte* end)
      : layout_(layout), to_(to), end_(end) {}

  std::byte* position() const { return to_; }  // of what comes next

  // Entries whose records lie end to end.
  void write(const std::byte* entries, std::uint64_t entries_bytes) {
    const std::uint64_t count = entries_bytes / sizeof(Entry);
    if (count == 1) {
      const Entry& entry = *reinterpret_cast<const Entry*>(entries);
      copy(record_of(entry), record_bytes(layout_, entry));
    } else {
      const auto records = bytes_of(layout_, entries, count);
      copy(records.data(), records.size());
    }
  }

 private:
  // Two copies of a size known beforehand cost less than one of a size that is not.
  static constexpr std::uint64_t half_bytes = 32;

  void copy(const std::byte* from, std::uint64_t bytes) {
    if (bytes <= 2 * half_bytes && end_ - to_ >= std::ptrdiff_t{2 * half_bytes}) {
      std::memcpy(to_, from, half_bytes);
      std::memcpy(to_ + half_bytes, from + half_bytes, half_bytes);
    } else {
      std::memcpy(to_, from, bytes);
    }
    __builtin_prefetch(from + fetched_ahead_by_turns_bytes);
    to_ += bytes;
  }

  const TextLayout& layout_;
  std::byte* to_;
  const std::byte* end_;
};

}  // namespace corank
