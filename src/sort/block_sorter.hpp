// Sorts blocks of records that fit in L2, stably.
//
// Each record becomes one word: the key bits that vary within the block, then the record's position
// in it. The words differ, so an unstable sort of them is stable. Records with equal key bits are
// sorted by the rest of their keys, and all records are gathered while they are in cache. Not
// thread-safe; a sorter reuses its memory, and `keys` must outlive it.
//
// Source: abbreviated keys, as in Nyberg et al., "AlphaSort" (1994); vectorised quicksort,
// Wassenberg et al., "Vectorized and performance-portable Quicksort" (2022).
#pragma once

#include <hwy/contrib/sort/vqsort.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "corank/algorithm/multiway_merge.hpp"
#include "merge/prefix_merger.hpp"
#include "merge/record_sort.hpp"
#include "run/work_unit.hpp"
#include "sort/key_compactor.hpp"

namespace corank {

// A sorted block of records, in memory of the caller.
struct SortedBlock {
  std::span<const std::byte> bytes;  // not empty
  std::uint64_t records;
  // Variable-length records: references to the first and the last one.
  PrefixRef first_ref{}, last_ref{};
};

class BlockSorter {
 public:
  explicit BlockSorter(const detail::KeyWords& keys);

  // Sorts the records of the segments, as if they were one sequence, into `out`, which must have
  // exactly their size.
  SortedBlock sort(std::span<const Segment> segments, std::span<std::byte> out);
  // Returns row `i` of the last block that was sorted. Its segments must still be held.
  const std::byte* row(std::uint64_t i) const { return record(position(words_[i])); }
  // Returns the segment as a block that lies where it is; nothing if its records are out of order.
  std::optional<SortedBlock> in_place(const Segment& segment) const;

 private:
  void join(std::span<const Segment> segments);
  void sort_words();
  void sort_ties(std::uint32_t word);
  void sort_tie(std::span<std::uint64_t> words, std::uint32_t word);
  const std::byte* record(std::uint64_t position) const {
    return records_ + position * keys_.record_bytes();
  }
  std::uint64_t position(std::uint64_t word) const { return word & position_mask_; }
  SortedBlock gather(std::span<std::byte> out) const;
  SortedBlock gather_text(std::span<std::byte> out) const;

  const detail::KeyWords& keys_;
  PrefixMerger merger_;  // tells whether records are in order
  KeyCompactor compactor_;
  RecordSorter record_sorter_;
  hwy::Sorter sorter_;
  std::vector<std::byte> joined_;       // records of several segments
  const std::byte* records_ = nullptr;  // of the block, contiguous
  unsigned position_bits_ = 0;          // low bits of a word that hold the position
  std::uint64_t position_mask_ = 0;
  std::vector<std::uint64_t> words_;  // one a record, in the order of the output
  std::vector<RecordRef> ties_;
};

}  // namespace corank
