// Copies records of variable length from where their entries say they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "corank/key.hpp"
#include "util/prefetch.hpp"

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
    const std::uint64_t count = entries_bytes / sizeof(PrefixRef);
    if (count == 1) return write_each(0, 1, [entries](std::size_t) { return entries; });
    const auto records = bytes_of(layout_, entries, count);
    to_ = copy(to_, records.data(), records.size());
  }

  // The entries entry_at(first) to entry_at(end - 1), whose records lie anywhere.
  template <class EntryAt>
  void write_each(std::size_t first, std::size_t end, EntryAt entry_at) {
    // In a register: what is written, being bytes, might else be the position itself.
    std::byte* to = to_;
    for (; first < end; ++first) {
      const PrefixRef& entry = *reinterpret_cast<const PrefixRef*>(entry_at(first));
      to = copy(to, record_of(entry), record_bytes(layout_, entry));
    }
    to_ = to;
  }

 private:
  // Two copies of a size known beforehand cost less than one of a size that is not.
  static constexpr std::uint64_t half_bytes = 32;

  // Returns where the next one goes.
  std::byte* copy(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
    if (bytes <= 2 * half_bytes && end_ - to >= std::ptrdiff_t{2 * half_bytes}) {
      std::memcpy(to, from, half_bytes);
      std::memcpy(to + half_bytes, from + half_bytes, half_bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
    __builtin_prefetch(from + fetched_ahead_by_turns_bytes);
    __builtin_prefetch(to + text_fetched_ahead_bytes, 1);
    return to + bytes;
  }

  const TextLayout& layout_;
  std::byte* to_;
  const std::byte* end_;
};

}  // namespace corank
