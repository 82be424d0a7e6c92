#include "format/key_words.hpp"

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>

#include "corank/text_key.hpp"
#include "format/encoded_key.hpp"
#include "format/key_order.hpp"
#include "util/prefetch.hpp"

namespace corank {
namespace {

constexpr std::uint32_t bytes_in_word = 7;
// Minimum common prefix that is worth skipping; for a shorter one, the merge uses word 0, which
// needs no access to the record. A larger minimum would not help: numbers and similar keys need
// most of a word to differ.
constexpr std::uint32_t enough_shared_bytes = 2;

const PrefixRef& entry_at(const std::byte* record) {
  assert(reinterpret_cast<std::uintptr_t>(record) % alignof(PrefixRef) == 0);
  return *reinterpret_cast<const PrefixRef*>(record);
}

// Prefetches a later prefix reference and a later record, one cache line each; prefetches that are
// issued together may be dropped.
[[gnu::always_inline]] inline void prefetch_ahead(const PrefixRef& entry) {
  __builtin_prefetch(record_of(entry) + text_prefetch_bytes);
  __builtin_prefetch(reinterpret_cast<const std::byte*>(&entry) + sequential_prefetch_bytes);
}

// Reads the key words of fixed-size records: those of the key prefix, then each piece of the tail
// as a word.
class InlineWords final : public detail::KeyWords {
 public:
  explicit InlineWords(const KeyLayout& layout) : layout_(layout), two_words_(two_words(layout)) {
    assert(layout.pieces_count != 0);
    for (std::uint32_t p = 0; p < layout.pieces_count; ++p) {
      const bool tail = p >= layout.prefix_pieces;
      if (p == 0 || tail || layout.pieces[p].word != layout.pieces[p - 1].word)
        first_pieces_.push_back(p);
      pieces_.push_back(layout.pieces[p]);
      pieces_.back().word = 0;
    }
    first_pieces_.push_back(layout.pieces_count);
  }

  std::uint32_t record_bytes() const override { return layout_.record_bytes; }
  std::uint32_t words() const override {
    return static_cast<std::uint32_t>(first_pieces_.size() - 1);
  }

  void read(std::uint32_t word, const std::byte* records, std::size_t count,
            std::uint64_t* to) const override {
    encode_keys(layout(word), records, count, reinterpret_cast<Key<1>*>(to));
  }

  void gather(std::uint32_t word, std::span<const std::byte* const> records,
              std::uint64_t* to) const override {
    encode_keys(layout(word), records, reinterpret_cast<Key<1>*>(to));
  }

  bool less(const std::byte* a, const std::byte* b) const override {
    return record_less(layout_, a, b);
  }

  std::optional<bool> ascend(const std::byte* before, const std::byte* records,
                             std::size_t count) const override {
    if (!two_words_) return std::nullopt;
    return two_words_->ascend(before, records, count, layout_.record_bytes);
  }

  std::optional<detail::SingleWordKey> single_word_key() const override {
    return pieces_.size() == 1 ? first_word(layout_) : std::nullopt;
  }

  // Returns a layout that reads the key's word `word` alone.
  KeyLayout layout(std::uint32_t word) const {
    assert(word < words());
    const std::uint32_t count = first_pieces_[word + 1] - first_pieces_[word];
    return {pieces_.data() + first_pieces_[word], count, count, layout_.record_bytes};
  }

 private:
  KeyLayout layout_;
  std::vector<KeyPiece> pieces_;
  std::vector<std::uint32_t> first_pieces_;  // first piece of each word, then the end
  std::optional<TwoWords> two_words_;
};

// Returns whether the number, which no f64 holds, is closer to 0 than any other f64.
bool is_too_small(std::string_view number) {
  static const locale_t c_locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return std::abs(::strtod_l(std::string(number).c_str(), nullptr, c_locale)) < 1;
}

}  // namespace

std::uint32_t RefWords::next_word(std::uint32_t word, std::uint64_t value) const {
  assert(word < words());
  const TextColumn& column = column_of(word);
  const std::uint32_t place = word % column_words;
  const std::uint32_t next_column = word - place + column_words;
  const bool number = detail::is_number(column.type);
  if (number ? place + 1 == detail::number_words(layout_)
             : detail::holds_column(layout_, column, value))
    return next_column + (next_column == words());
  const std::uint32_t next_place = place + (number ? 1 : bytes_in_word);
  return next_place < column_words ? word - place + next_place : words();
}

bool RefWords::is_last(std::uint32_t word) const {
  return word / column_words + 1 == layout_.columns_count &&
         detail::is_number(column_of(word).type) &&
         word % column_words + 1 == detail::number_words(layout_);
}

std::uint64_t RefWords::word_of(std::uint32_t word, const detail::TextField& field) const {
  const TextColumn& column = column_of(word);
  const std::uint32_t place = word % column_words;
  return detail::is_number(column.type) ? detail::number_word(field, column, place)
                                        : detail::bytes_word(column, field, place);
}

bool RefWords::read_next(std::uint32_t word, std::span<const PrefixRef> entries,
                         std::span<const std::uint64_t> firsts,
                         std::span<std::vector<std::uint64_t>> to) const {
  const std::uint32_t num_words = words();
  assert(word < num_words);
  bool whole = true;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    prefetch_ahead(entries[i]);
    std::uint32_t next = next_word(word, firsts[i]);
    std::size_t done = 0;
    while (done < to.size() && next < num_words) {
      const std::uint32_t column = next / column_words;
      const detail::TextField string = field(column, entries[i]);
      do {
        const std::uint64_t bits = to[done++][i] = word_of(next, string);
        next = next_word(next, bits);
      } while (done < to.size() && next / column_words == column);
    }
    for (; done < to.size(); ++done) to[done][i] = 0;
    whole = whole && next > num_words;
  }
  return whole;
}

template <class Use>
void RefWords::with_word(std::uint32_t word, Use use) const {
  assert(word < words());
  if (word == 0) return use([](const PrefixRef& entry) { return entry.word; });
  const std::uint32_t c = word / column_words;
  const std::uint32_t place = word % column_words;
  const TextColumn& column = layout_.columns[c];
  const bool has_quotes = layout_.kind == TextKind::csv || layout_.finder;
  if (column.type != TextType::bytes || column.nocase || has_quotes)
    return use([&](const PrefixRef& entry) { return word_of(word, field(c, entry)); });
  const std::uint64_t flip = column.descending ? ~std::uint64_t{0} : 0;
  use([&](const PrefixRef& entry) {
    const detail::TextField string = field(c, entry);
    const std::uint64_t left = string.bytes > place ? string.bytes - place : 0;
    return (detail::load_seven(string.at + place, left) | std::min<std::uint64_t>(left, 8)) ^ flip;
  });
}

void RefWords::read(std::uint32_t word, const std::byte* records, std::size_t count,
                    std::uint64_t* to) const {
  with_word(word, [&](auto word_of) {
    for (std::size_t i = 0; i < count; ++i) {
      const PrefixRef& entry = entry_at(records + i * sizeof(PrefixRef));
      prefetch_ahead(entry);
      to[i] = word_of(entry);
    }
  });
}

void RefWords::gather(std::uint32_t word, std::span<const std::byte* const> records,
                      std::uint64_t* to) const {
  with_word(word, [&](auto word_of) {
    for (const std::byte* const record : records) *to++ = word_of(entry_at(record));
  });
}

bool RefWords::less(const std::byte* a, const std::byte* b) const {
  return text_less(layout_, entry_at(a), entry_at(b));
}

std::optional<std::uint64_t> RefWords::difference(const TextColumn& column,
                                                  const detail::TextField& x,
                                                  const detail::TextField& y) const {
  if (detail::is_encoded(column.type)) return detail::encoded_difference(x, y, column);
  if (!x.quoted && !y.quoted) {
    const std::uint64_t shared = detail::shared_bytes(x, y, column.nocase);
    if (shared == x.bytes && shared == y.bytes) return std::nullopt;
    return shared;
  }
  detail::FieldBytes from_x(x), from_y(y);
  for (std::uint64_t shared = 0;; ++shared) {
    unsigned p = 0, q = 0;
    const bool more_x = from_x.next(p);
    const bool more_y = from_y.next(q);
    if (!more_x && !more_y) return std::nullopt;
    if (column.nocase)
      p = static_cast<unsigned>(detail::fold_case(p)),
      q = static_cast<unsigned>(detail::fold_case(q));
    if (more_x != more_y || p != q) return shared;
  }
}

std::uint32_t RefWords::first_distinguishing_word(const std::byte* a, const std::byte* b) const {
  for (std::uint32_t c = 0; c < layout_.columns_count; ++c) {
    const TextColumn& column = layout_.columns[c];
    const detail::TextField x = field(c, entry_at(a)), y = field(c, entry_at(b));
    if (detail::is_number(column.type)) {
      for (std::uint32_t place = 0; place < detail::number_words(layout_); ++place)
        if (detail::number_word(x, column, place) != detail::number_word(y, column, place))
          return c * column_words + place;
    } else if (const auto shared = difference(column, x, y)) {
      if (c == 0 && *shared < enough_shared_bytes) return 0;
      return c * column_words +
             static_cast<std::uint32_t>(std::min<std::uint64_t>(*shared, column_words - 1));
    }
  }
  return 0;
}

bool RefWords::in_entry(std::uint32_t word) const {
  return word <= bytes_in_word && !detail::is_number(layout_.columns[0].type);
}

bool RefWords::share_words(std::uint32_t word, const std::byte* records, std::size_t count,
                           const std::byte* one) const {
  assert(word < words());
  if (word == 0) return true;
  const PrefixRef& wanted = entry_at(one);
  const TextColumn& first = layout_.columns[0];
  if (in_entry(word)) {
    // The low byte is the string's length, which must cover the shared bytes.
    const std::uint64_t flip = first.descending ? ~std::uint64_t{0} : 0;
    const unsigned unwanted_bits = 64 - 8 * word;
    bool share = true;
    for (std::size_t i = 0; i < count; ++i) {
      __builtin_prefetch(records + i * sizeof(PrefixRef) + sequential_prefetch_bytes);
      const std::uint64_t here = entry_at(records + i * sizeof(PrefixRef)).word;
      share &= (here ^ wanted.word) >> unwanted_bits == 0 && ((here ^ flip) & 0xff) >= word;
    }
    return share;
  }
  const auto entries = std::span(reinterpret_cast<const PrefixRef*>(records), count);
  if (!std::ranges::all_of(entries, [&](const PrefixRef& e) { return e.word == wanted.word; }))
    return false;
  const std::uint32_t last = word / column_words;
  const std::uint32_t place = word % column_words;
  std::uint32_t c = detail::holds_column(layout_, first, wanted.word);
  for (; c < last + (place != 0); ++c) {
    const detail::TextField shared = field(c, wanted);
    const std::uint32_t end = c < last ? column_words : place;
    if (!std::ranges::all_of(
            entries, [&](const PrefixRef& e) { return shares_words(c, end, field(c, e), shared); }))
      return false;
  }
  return true;
}

bool RefWords::shares_words(std::uint32_t c, std::uint32_t end, const detail::TextField& x,
                            const detail::TextField& y) const {
  assert(c < layout_.columns_count && end <= column_words);
  const TextColumn& column = layout_.columns[c];
  if (detail::is_number(column.type)) {
    const auto numbers = std::min<std::uint64_t>(end, detail::number_words(layout_));
    for (std::uint32_t place = 0; place < numbers; ++place)
      if (detail::number_word(x, column, place) != detail::number_word(y, column, place))
        return false;
    return true;
  }
  if (end != column_words && !x.quoted && !y.quoted && !column.nocase &&
      column.type == TextType::bytes)
    return x.bytes >= end && std::memcmp(x.at, y.at, end) == 0;
  const auto shared = difference(column, x, y);
  return !shared || (end != column_words && *shared >= end);
}

std::unique_ptr<detail::KeyWords> make_key_words(const KeyLayout& layout) {
  if (layout.text) return std::make_unique<RefWords>(*layout.text);
  return std::make_unique<InlineWords>(layout);
}

std::string detail::decoded(const TextField& field) {
  std::string value;
  unsigned byte;
  for (FieldBytes bytes(field); bytes.next(byte);) value += static_cast<char>(byte);
  return value;
}

bool detail::parse_decoded_number(const TextField& field, TextType type, std::uint64_t& word) {
  const std::string value = decoded(field);
  const auto bytes = std::as_bytes(std::span(value));
  return parse_number({bytes.data(), bytes.size(), false, true}, type, word);
}

bool detail::parse_f64(const std::byte* at, std::uint64_t bytes, std::uint64_t& word) {
  const auto* const text = reinterpret_cast<const char*>(at);
  double value = 0;
  const bool has_plus = bytes > 1 && text[0] == '+' && text[1] != '-';
  const auto [end, error] = std::from_chars(text + has_plus, text + bytes, value);
  if (end != text + bytes || (error != std::errc{} && !is_too_small({text, bytes}))) return false;
  if (value == 0) value = 0;  // drops the sign of -0.0
  constexpr std::uint64_t sign = std::uint64_t{1} << 63;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  word = std::isnan(value) ? ~std::uint64_t{0} : bits & sign ? ~bits : bits | sign;
  return true;
}

}  // namespace corank
