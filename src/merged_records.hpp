// Takes records from their runs in the order of their merged words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "prefetch.hpp"
#include "word_kernel.hpp"

namespace corank {

// Of `Bytes` bytes each, 0 if that is known only now: a copy of a size known beforehand is much
// faster where it is small. Refers to what it is made of; by value, loops may keep it in registers.
template <std::uint32_t Bytes>
class MergedRecords {
 public:
  // `next`: the next record of each run, whose number stands in the last `run_bits` of a word.
  MergedRecords(std::span<const Word> words, unsigned run_bits, std::uint32_t record_bytes,
                const std::byte** next)
      : words_(words),
        run_mask_((std::uint64_t{1} << run_bits) - 1),
        record_bytes_(record_bytes),
        next_(next) {}

  std::span<const Word> words() const { return words_; }
  std::uint32_t record_bytes() const { return Bytes != 0 ? Bytes : record_bytes_; }

  // The next record of the run of word `i`.
  const std::byte*& next(std::size_t i) const {
    return next_[static_cast<std::uint64_t>(words_[i]) & run_mask_];
  }

  const std::byte* take(std::size_t i) const {
    const std::byte*& record = next(i);
    if (Bytes == 0 && i + ahead < words_.size()) {
      const std::byte*& later = next(i + ahead);
      prefetch(later + (&later == &record ? ahead * record_bytes() : 0), record_bytes());
    }
    if (Bytes != 0) __builtin_prefetch(record + ahead_bytes);
    return std::exchange(record, record + record_bytes());
  }
  void give_back(std::size_t i) const { next(i) -= record_bytes(); }

  // Takes those of the words from `first` up to `end` to where they are to lie end to end.
  void copy(std::size_t first, std::size_t end, std::byte* to) const {
    // Of small records many must repeat to be copied faster together.
    if (Bytes != 0 ? words_[first] == words_[end - 1] : repeats_often(first, end))
      return copy_together(first, end, to);
    for (std::size_t i = 0; i < end - first; ++i)
      std::memcpy(to + i * record_bytes(), take(first + i), record_bytes());
  }

 private:
  // What is fetched ahead of its use; of one run of small records.
  static constexpr std::size_t ahead = 16;
  static constexpr std::uint32_t ahead_bytes = 256;
  // Beyond this memcpy() may take an instruction that is slow to start.
  static constexpr std::uint32_t most_copied_bytes = 1024;

  // Whether many of the words are followed by several of the same.
  bool repeats_often(std::size_t first, std::size_t end) const {
    constexpr std::size_t apart = 4;
    // What is copied together is not fetched ahead, which long records gain more by.
    if (apart * record_bytes() > most_copied_bytes) return false;
    std::size_t repeats = 0;
    for (std::size_t i = first; i + apart < end; i += 2 * apart)
      repeats += words_[i] == words_[i + apart];
    return 4 * apart * repeats > end - first;
  }

  void copy_together(std::size_t first, std::size_t end, std::byte* to) const {
    const std::size_t most = std::max<std::size_t>(most_copied_bytes / record_bytes(), 1);
    for (std::size_t last; first < end; first = last) {
      const std::size_t most_end = std::min(first + most, end);
      last = first + 1;
      while (last < most_end && words_[last] == words_[first]) ++last;
      const std::size_t bytes = (last - first) * record_bytes();
      std::memcpy(to, std::exchange(next(first), next(first) + bytes), bytes);
      to += bytes;
    }
  }

  std::span<const Word> words_;
  std::uint64_t run_mask_;
  std::uint32_t record_bytes_;
  const std::byte** next_;
};

}  // namespace corank
