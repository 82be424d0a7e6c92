// Takes records from their runs in the order of their merged words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "merge/word_kernel.hpp"
#include "util/prefetch.hpp"

namespace corank {

// Of a run: the next record, and the next one to be fetched ahead of its turn.
struct RunCursor {
  const std::byte* next;
  const std::byte* to_fetch;
};

// Of `Bytes` bytes each, 0 if that is known only now: a copy of a size known beforehand is much
// faster where it is small. Refers to what it is made of; by value, loops may keep it in registers.
template <std::uint32_t Bytes>
class MergedRecords {
 public:
  // `runs`: those whose numbers stand in the last `run_bits` of the words.
  MergedRecords(std::span<const Word> words, unsigned run_bits, std::uint32_t record_bytes,
                RunCursor* runs)
      : words_(words),
        run_mask_((std::uint64_t{1} << run_bits) - 1),
        record_bytes_(record_bytes),
        into_first_cache_(first_cache_takes_many()),
        runs_(runs) {
    if (Bytes != 0) return;
    for (std::size_t i = 0; i < std::min(ahead, words.size()); ++i) fetch(i);
  }

  std::span<const Word> words() const { return words_; }
  std::uint32_t record_bytes() const { return Bytes != 0 ? Bytes : record_bytes_; }

  // The next record of the run of word `i`.
  const std::byte* next(std::size_t i) const { return run(i).next; }

  const std::byte* take(std::size_t i) const {
    const std::byte*& record = run(i).next;
    if (Bytes != 0)
      __builtin_prefetch(record + ahead_bytes);
    else if (i + ahead < words_.size())
      fetch(i + ahead);
    return pass(record);
  }
  void give_back(std::size_t i) const {
    run(i).next -= record_bytes();
    if (Bytes == 0 && i + ahead < words_.size()) run(i + ahead).to_fetch -= record_bytes();
  }

  // Takes those of the words from `first` up to `end` to where they are to lie end to end.
  void copy(std::size_t first, std::size_t end, std::byte* to) const {
    for (; first < end; ++first, to += record_bytes())
      if (Bytes == 0 && into_first_cache_ && record_bytes() >= piece_bytes)
        copy_by_pieces(first, to);
      else
        std::memcpy(to, take(first), record_bytes());
  }

 private:
  // What is fetched ahead of its use; of one run of small records.
  static constexpr std::size_t ahead = 16;
  static constexpr std::uint32_t ahead_bytes = 256;
  // Of long records, between which lines are fetched. A Zen 5 that is asked for many lines at once
  // forgets some: records of 1,000 bytes merge 1.1 to 1.2 times as fast by pieces. An Intel Emerald
  // Rapids, which fetches into the second cache, gains nothing.
  static constexpr std::uint32_t piece_bytes = 256;

  void copy_by_pieces(std::size_t i, std::byte* to) const {
    const std::byte* const from = pass(run(i).next);
    const std::byte* const to_fetch =
        i + ahead < words_.size() ? pass(run(i + ahead).to_fetch) : from;
    std::uint32_t at = 0;
    for (; at + piece_bytes <= record_bytes(); at += piece_bytes) {
      prefetch<1>(to_fetch + at, piece_bytes);
      std::memcpy(to + at, from + at, piece_bytes);
    }
    prefetch<1>(to_fetch + at, record_bytes() - at);
    std::memcpy(to + at, from + at, record_bytes() - at);
  }

  const std::byte* pass(const std::byte*& record) const {
    return std::exchange(record, record + record_bytes());
  }

  RunCursor& run(std::size_t i) const {
    return runs_[static_cast<std::uint64_t>(words_[i]) & run_mask_];
  }

  void fetch(std::size_t i) const {
    const std::byte* const record = pass(run(i).to_fetch);
    into_first_cache_ ? prefetch<1>(record, record_bytes()) : prefetch(record, record_bytes());
  }

  std::span<const Word> words_;
  std::uint64_t run_mask_;
  std::uint32_t record_bytes_;
  bool into_first_cache_;
  RunCursor* runs_;
};

}  // namespace corank
