// Copies variable-length records from the places that their prefix references point to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "corank/key.hpp"
#include "util/prefetch.hpp"

namespace corank {

// Writes records one after another to memory that the caller owns. Reads up to
// max_bytes_read from the start of a record, so chunks must be padded. Not thread-safe.
class GatherWriter {
 public:
  // Bytes from the start of a record that may be read, even if the record is shorter.
  static constexpr std::uint64_t max_bytes_read = 64;

  // All records written must fit before `end`.
  GatherWriter(const TextLayout& layout, std::byte* to, const std::byte* end)
      : layout_(layout), to_(to), end_(end) {}

  std::byte* position() const { return to_; }  // where the next record goes

  // Writes the records of contiguous prefix references; the records must be contiguous, too.
  void write(const std::byte* entries, std::uint64_t entries_bytes) {
    const std::uint64_t count = entries_bytes / sizeof(PrefixRef);
    if (count == 1) return write_each(0, 1, [entries](std::size_t) { return entries; });
    const auto records = bytes_of(layout_, entries, count);
    to_ = copy(to_, records.data(), records.size());
  }

  // Writes the records of the prefix references entry_at(first) to entry_at(end - 1), wherever they
  // are.
  template <class EntryAt>
  void write_each(std::size_t first, std::size_t end, EntryAt entry_at) {
    // A local variable stays in a register; stores through std::byte may alias the member.
    std::byte* to = to_;
    for (; first < end; ++first) {
      const PrefixRef& entry = *reinterpret_cast<const PrefixRef*>(entry_at(first));
      to = copy(to, record_of(entry), record_bytes(layout_, entry));
    }
    to_ = to;
  }

 private:
  // Bytes of each of the two fixed-size copies that replace a copy of variable size. Fixed sizes
  // need no branches.
  static constexpr std::uint64_t half_bytes = max_bytes_read / 2;

  // Returns the end of the copy.
  std::byte* copy(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
    if (bytes <= 2 * half_bytes && end_ - to >= std::ptrdiff_t{2 * half_bytes}) {
      std::memcpy(to, from, half_bytes);
      std::memcpy(to + half_bytes, from + half_bytes, half_bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
    __builtin_prefetch(from + many_runs_prefetch_bytes);
    __builtin_prefetch(to + text_prefetch_bytes, 1);
    return to + bytes;
  }

  const TextLayout& layout_;
  std::byte* to_;
  const std::byte* end_;
};

}  // namespace corank
