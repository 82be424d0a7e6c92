// Presents the keys of rows as words, which is all that merging and sorting compare. Immutable and
// thread-safe; the rows must outlive their use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "corank/algorithm/multiway_merge.hpp"

namespace corank {

// Key words of prefix references. A word of a string column begins at any of its bytes; a word
// of a numeric column is a word of the number. Merging can therefore start at the byte where the
// keys of a block first differ. Word 0 is the prefix in the prefix reference.
class RefWords final : public detail::KeyWords {
 public:
  explicit RefWords(const TextLayout& layout) : layout_(layout) {}

  std::uint32_t record_bytes() const override { return sizeof(PrefixRef); }
  std::uint32_t words() const override { return layout_.columns_count * column_words; }
  std::uint32_t next_word(std::uint32_t word, std::uint64_t value) const override;
  bool is_last(std::uint32_t word) const override;
  void read(std::uint32_t word, const std::byte* records, std::size_t count,
            std::uint64_t* to) const override;
  void gather(std::uint32_t word, std::span<const std::byte* const> records,
              std::uint64_t* to) const override;
  bool less(const std::byte* a, const std::byte* b) const override;
  std::uint32_t first_distinguishing_word(const std::byte* a, const std::byte* b) const override;
  bool share_words(std::uint32_t word, const std::byte* records, std::size_t count,
                   const std::byte* one) const override;
  const TextLayout* ref_layout() const override { return &layout_; }
  const TextLayout& layout() const { return layout_; }
  // Returns whether the prefix reference also holds all bytes of the words before `word`.
  bool in_entry(std::uint32_t word) const;
  // Reads the words, one to each of `to`, that follow word `word` of each key, which is in
  // `firsts`; 0 where the key has no more. Returns whether no key has any further word.
  bool read_next(std::uint32_t word, std::span<const PrefixRef> entries,
                 std::span<const std::uint64_t> firsts,
                 std::span<std::vector<std::uint64_t>> to) const;

 private:
  // Word w begins at byte w % column_words of column w / column_words.
  static constexpr std::uint32_t column_words = 256;

  const TextColumn& column_of(std::uint32_t word) const {
    return layout_.columns[word / column_words];
  }
  detail::Columns columns(const PrefixRef& entry) const {
    return {layout_, record_of(entry), corank::record_bytes(layout_, entry)};
  }
  detail::TextField field(std::uint32_t column, const PrefixRef& entry) const {
    return columns(entry)(layout_.columns[column].column);
  }
  std::uint64_t word_of(std::uint32_t word, const detail::TextField& field) const;
  // Calls use(word_of), where word_of(entry) returns word `word` of the entry's key.
  template <class Use>
  void with_word(std::uint32_t word, Use use) const;
  // Returns the length of the common prefix of two strings, or nothing if they are equal.
  std::optional<std::uint64_t> difference(const TextColumn& column, const detail::TextField& x,
                                          const detail::TextField& y) const;
  // Returns whether two fields of column `c` have equal words before the column's word `end`. All
  // words must be equal if `end` is column_words. `y` must have at least `end` words.
  bool shares_words(std::uint32_t c, std::uint32_t end, const detail::TextField& x,
                    const detail::TextField& y) const;

  TextLayout layout_;
};

// Returns the key words of rows with this layout, which must outlive them.
std::unique_ptr<detail::KeyWords> make_key_words(const KeyLayout& layout);

// Returns the bytes of the records of `count` > 0 contiguous rows; the records must be contiguous,
// too.
inline std::span<const std::byte> bytes_of(const detail::KeyWords& keys, const std::byte* rows,
                                           std::uint64_t count) {
  if (const TextLayout* const layout = keys.ref_layout()) return bytes_of(*layout, rows, count);
  return {rows, count * keys.record_bytes()};
}

}  // namespace corank
