// Words of text that tell more of it apart than eight bytes of it do.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "merge/prefix_keys.hpp"
#include "merge/row_span.hpp"

namespace corank {

// Of a block, two words of each entry. Most of their bits are the same in all of it: of what ASCII
// spells, one word has room for more bytes than a word has.
class KeyCompactor {
 public:
  // `keys` must outlive this.
  explicit KeyCompactor(const TextWords& keys) : keys_(keys) {}

  // For a block of so many entries.
  void reset(std::uint64_t entries);
  // Adds entries, whose words before `word` are those of all of the block. False if they are out of
  // order.
  bool read(const Stretch& entries, std::uint32_t word);
  // Of the bits that are not the same in all entries, chooses as many as there is `room` for, from
  // the first on; the last of them goes to the bit `place`. Whether they tell the keys apart.
  bool choose_bits(unsigned room, unsigned place);
  // The chosen bits of `count` entries from `first` on, | `low`.
  void put(std::uint64_t first, std::uint64_t count, std::uint64_t low, std::uint64_t* to) const;

 private:
  struct BitGroup {
    unsigned from, to;
    std::uint64_t ones;
  };

  bool ascend(const Stretch& entries, bool whole) const;

  const TextWords& keys_;
  std::uint64_t count_ = 0;
  bool whole_ = true;  // whether no key has more than its two words
  std::vector<std::uint64_t> firsts_, seconds_;
  std::array<std::vector<BitGroup>, 2> groups_;
};

}  // namespace corank
