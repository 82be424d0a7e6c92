// Compacts key words to the bits that vary within a block.
//
// One 64-bit word then distinguishes longer keys. For each block, call read(), choose_bits() and
// put(). Not thread-safe; a compactor reuses its memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/key_words.hpp"

namespace corank {

// Holds the first key words of each record of a block. Most bits are equal throughout a block:
// ASCII text varies in few bits per byte, so several words often fit in one: a time such as
// "2026-12-01 03:29:35" has three words, which vary in some 30 bits.
class KeyCompactor {
 public:
  // `keys` must outlive the compactor.
  explicit KeyCompactor(const detail::KeyWords& keys)
      : keys_(keys), refs_(dynamic_cast<const RefWords*>(&keys)) {}

  // Starts a block of `count` records of any kind, at least one, in any order. All words before
  // `word` must be equal. The records must stay as they are until put() returns.
  void read(const std::byte* records, std::uint64_t count, std::uint32_t word);
  // Returns whether the first words of all records are equal.
  bool firsts_are_equal() const;
  std::uint64_t first() const { return words_[0].front(); }  // first word of the first record
  // Chooses the first bits that vary within the block, at most `room` of them. The last one is
  // packed at bit `place`. Returns whether the chosen bits distinguish all keys of the block.
  bool choose_bits(unsigned room, unsigned place);
  // Writes the chosen bits of each record; the other bits are 0.
  void put(std::span<std::uint64_t> to) const;

 private:
  // Adjacent chosen bits: they begin at bit `from` of a word and at bit `to` of the compacted word.
  struct BitGroup {
    std::size_t word;
    unsigned from, to;
    std::uint64_t ones;
  };
  static constexpr std::size_t max_words = 4;

  bool read_next(std::size_t count);

  const detail::KeyWords& keys_;
  const RefWords* refs_;  // null for fixed-size records
  // Block of the last read(), and its words. Words after the first are read only if they are
  // needed.
  const std::byte* records_ = nullptr;
  std::uint32_t word_ = 0;
  std::size_t num_words_ = 0;
  std::array<std::vector<std::uint64_t>, max_words> words_;
  std::vector<BitGroup> groups_;  // chosen bits, from the top
};

}  // namespace corank
