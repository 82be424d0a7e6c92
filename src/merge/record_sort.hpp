// Sorts record references by key words: a natural merge sort for a few presorted runs. For small
// inputs, such as samples and groups of equal prefixes. Not thread-safe; a sorter reuses its
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "corank/algorithm/multiway_merge.hpp"
#include "merge/word_merger.hpp"

namespace corank {

struct RecordRef {
  const std::byte* record;
  std::uint64_t run;
};

class RecordSorter {
 public:
  // `keys` must outlive the sorter.
  RecordSorter(const detail::KeyWords& keys, const WordKernel& kernel)
      : keys_(keys), merger_(kernel) {}

  // Sorts stably. All key words before `word` must be equal in all records.
  void sort(std::span<RecordRef> records, std::uint32_t word);

 private:
  struct Pending {
    std::span<RecordRef> records;
    std::uint32_t word;
  };

  void read(std::span<const RecordRef> records, std::uint32_t word, std::uint32_t last_word);
  void sort_by_word(std::span<RecordRef> records, std::uint32_t word);

  const detail::KeyWords& keys_;
  WordMerger merger_;
  std::vector<std::uint64_t> words_, last_words_;
  std::vector<RecordRef> sorted_;
  std::vector<Pending> pending_;
};

// Returns how to pack words from `least` to `greatest` above `run_bits` bits.
Packing packing_of(std::uint64_t least, std::uint64_t greatest, unsigned run_bits);

}  // namespace corank
