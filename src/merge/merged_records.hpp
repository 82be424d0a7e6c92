// Takes records from their runs in merge order.
//
// Each merged word carries its run id, so the words alone say which run to take the next record
// from. The class is a view: it advances the caller's run cursors, which must outlive it. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "merge/word_kernel.hpp"
#include "util/prefetch.hpp"

namespace corank {

// A run's next record, and the next of its records to prefetch.
struct RunCursor {
  const std::byte* next;
  const std::byte* to_fetch;
};

// `Bytes` is the record size, or 0 if it is known only at run time; copies of a constant size are
// much faster for small records. Copy the object into loops, so that its members stay in registers.
template <std::uint32_t Bytes>
class MergedRecords {
 public:
  // `runs` is indexed by the run id, which is the low `run_bits` bits of a word.
  MergedRecords(std::span<const Word> words, unsigned run_bits, std::uint32_t record_bytes,
                RunCursor* runs)
      : words_(words),
        run_mask_((std::uint64_t{1} << run_bits) - 1),
        record_bytes_(record_bytes),
        prefetches_to_l1_(prefers_l1_prefetch()),
        runs_(runs) {
    assert(Bytes == 0 || Bytes == record_bytes);
    assert(run_bits < 63 && record_bytes != 0);
    if (Bytes != 0) return;
    for (std::size_t i = 0; i < std::min(ahead, words.size()); ++i) fetch(i);
  }

  std::span<const Word> words() const { return words_; }
  std::uint32_t record_bytes() const { return Bytes != 0 ? Bytes : record_bytes_; }

  // Returns the next record of the run of word `i`.
  const std::byte* next(std::size_t i) const { return run(i).next; }

  // Takes the next record of the run of word `i`, and prefetches a later one.
  const std::byte* take(std::size_t i) const {
    const std::byte*& record = run(i).next;
    if (Bytes != 0)
      __builtin_prefetch(record + ahead_bytes);
    else if (i + ahead < words_.size())
      fetch(i + ahead);
    return pass(record);
  }
  // Undoes take(i).
  void give_back(std::size_t i) const {
    run(i).next -= record_bytes();
    if (Bytes == 0 && i + ahead < words_.size()) run(i + ahead).to_fetch -= record_bytes();
  }

  // Copies the records of the words in [first, end) contiguously to `to`.
  void copy(std::size_t first, std::size_t end, std::byte* to) const {
    assert(first <= end && end <= words_.size());
    for (; first < end; ++first, to += record_bytes())
      if (Bytes == 0 && prefetches_to_l1_ && record_bytes() >= piece_bytes)
        copy_by_pieces(first, to);
      else
        std::memcpy(to, take(first), record_bytes());
  }

 private:
  // Prefetch distances: in merge order, in records; within a run of small records, in bytes.
  static constexpr std::size_t ahead = 16;
  static constexpr std::uint32_t ahead_bytes = 256;
  // Bytes of a long record that are copied between prefetches: a core drops prefetches when its
  // fill buffers are full. Tuned by bench-cpu; see docs/tuning.md.
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
    prefetches_to_l1_ ? prefetch<1>(record, record_bytes()) : prefetch(record, record_bytes());
  }

  std::span<const Word> words_;
  std::uint64_t run_mask_;
  std::uint32_t record_bytes_;
  bool prefetches_to_l1_;
  RunCursor* runs_;
};

}  // namespace corank
