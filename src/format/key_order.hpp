// Whether records in memory are in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "corank/key.hpp"

namespace corank {

// The first word of the keys where it is one integer of 8 bytes in the record.
std::optional<detail::SingleWordKey> first_word(const KeyLayout& layout);

// Keys of two words that stand in the record, so that to compare all of them costs little.
struct TwoWords {
  detail::SingleWordKey high, low;
  unsigned other_bits;  // of the low one, above what belongs to the key

  // As of KeyWords.
  bool ascend(const std::byte* before, const std::byte* records, std::uint64_t count,
              std::uint32_t record_bytes) const;
};
std::optional<TwoWords> two_words(const KeyLayout& layout);

// How records compare to their predecessors by the first words of their keys.
struct Neighbours {
  bool descend = false;  // some word is less than the one before
  bool tie = false;      // some are equal
};

// For up to max_neighbours records.
constexpr std::uint64_t max_neighbours = 256;
Neighbours compare_first_words(const KeyLayout& layout, const std::byte* records,
                               std::uint64_t count);

// The first of the `count` records from `records` on, laid end to end, that sorts before its
// predecessor or, if `strict`, not after it; `count` if there is none.
std::uint64_t first_descent(const KeyLayout& layout, const std::byte* records, std::uint64_t count,
                            bool strict = false);

}  // namespace corank
