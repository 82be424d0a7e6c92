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

// Holds two key words of each record of a block. Most bits are equal throughout a block: ASCII text
// varies in few bits per byte, so two words often fit in one.
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
  std::uint64_t first() const { return firsts_.front(); }  // first word of the first record
  // Chooses the first bits that vary within the block, at most `room` of them. The last one is
  // packed at bit `place`. Returns whether the chosen bits distinguish all keys of the block.
  bool choose_bits(unsigned room, unsigned place);
  // Writes the chosen bits of each record; the other bits are 0.
  void put(std::span<std::uint64_t> to) const;

 private:
  // Adjacent chosen bits: they begin at bit `from` of a word and at bit `to` of the compacted word.
  struct BitGroup {
    unsigned from, to;
    std::uint64_t ones;
  };

  bool read_seconds();

  const detail::KeyWords& keys_;
  const RefWords* refs_;  // null for fixed-size records
  // Block of the last read(), and its words. Second words are read only if they are needed.
  const std::byte* records_ = nullptr;
  std::uint32_t word_ = 0;
  std::vector<std::uint64_t> firsts_, seconds_;
  std::array<std::vector<BitGroup>, 2> groups_;
};

}  // namespace corank
