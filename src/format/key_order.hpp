// Checks whether records in memory are in order. Thread-safe; nothing throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "corank/key.hpp"

namespace corank {

// Returns how to load the first key word if it is one 8-byte integer of the record; else nothing.
std::optional<detail::SingleWordKey> first_word(const KeyLayout& layout);

// Two-word key whose words can be loaded from the record without encoding, so that comparing all
// records is cheap.
struct TwoWords {
  detail::SingleWordKey high, low;
  unsigned other_bits;  // high bits of the low word that do not belong to the key

  // Returns whether `count` contiguous records ascend, also after the record `before` unless it is
  // null.
  bool ascend(const std::byte* before, const std::byte* records, std::uint64_t count,
              std::uint32_t record_bytes) const;
};
std::optional<TwoWords> two_words(const KeyLayout& layout);

// Returns the byte that ends each record and occurs nowhere else, if the order of records is that
// of their bytes; else nothing.
std::optional<char> end_of_bytewise(const KeyLayout& layout);

// Returns another order that the rows have, in which one key column of `by` is read otherwise, as a
// continuation of an error; empty if there is none. `keys` are the columns as they were given, or
// empty for the whole line. The rows are prefix references; `row` sorts before `before`, which
// precedes it.
std::string find_other_order(const TextLayout& by, std::span<const TextKey> keys,
                             std::span<const std::byte* const> rows, const std::byte* before,
                             const std::byte* row);

// Returns the layout of the first key word alone.
KeyLayout first_word_layout(const KeyLayout& layout);

// Result of comparing records to their predecessors by the first words of their keys.
struct Neighbours {
  bool descend = false;  // some word is less than its predecessor
  bool tie = false;      // some word equals its predecessor
};

// Max number of records that compare_first_words() takes.
constexpr std::uint64_t max_neighbours = 256;
Neighbours compare_first_words(const KeyLayout& layout, const std::byte* records,
                               std::uint64_t count);

// Returns the first of `count` contiguous records that sorts before its predecessor or, if
// `strict`, not after it; `count` if there is none.
std::uint64_t first_descent(const KeyLayout& layout, const std::byte* records, std::uint64_t count,
                            bool strict = false);

}  // namespace corank
