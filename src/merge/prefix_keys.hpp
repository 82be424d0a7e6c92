// The keys of text as words that records are merged by.
#pragma once

#include "corank/algorithm/multiway_merge.hpp"

namespace corank {

// Of entries. Of a column of bytes, a word is what begins with any of its bytes, of a number it is
// the number: so what is merged by may begin just where the keys of a block begin to differ. Word 0
// stands in the entries.
class TextWords final : public detail::KeyWords {
 public:
  explicit TextWords(const TextLayout& layout) : layout_(layout) {}

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
  const TextLayout* text() const override { return &layout_; }
  // Whether the words before `word` are bytes that stand in the entry's word, too.
  bool in_entry(std::uint32_t word) const;
  // Word `word` and the one that comes next in each key, 0 where none does. Whether none of the
  // keys has more.
  bool read_two(std::uint32_t word, std::span<const PrefixRef> entries, std::uint64_t* first,
                std::uint64_t* second) const;

 private:
  // Word w begins with the byte w % column_words of the column w / column_words.
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
  // Calls use(word_of), where word_of(entry) is word `word` of its key.
  template <class Use>
  void with_word(std::uint32_t word, Use use) const;
  // How many bytes two strings have in common before they differ; nothing if they do not.
  std::optional<std::uint64_t> difference(const TextColumn& column, const detail::TextField& x,
                                          const detail::TextField& y) const;
  // Whether two keys have the words of column `c` before its word `end` in common, all of them if
  // that is column_words. `y` has so many.
  bool shares_words(std::uint32_t c, std::uint32_t end, const detail::TextField& x,
                    const detail::TextField& y) const;

  TextLayout layout_;
};

}  // namespace corank
