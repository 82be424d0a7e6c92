// Normalised keys of variable-length records: lines, CSV, key-value pairs and JSON Lines.
//
// A string becomes 64-bit words: seven bytes, then a count byte. The count is the number of string
// bytes in the word, or 8 if more words follow. So padding never makes keys equal, no key is a
// prefix of another, and words compare as the strings do. Numbers become one word, like fields of
// fixed-size records.
//
// Functions take complete and well-formed records; see text_layout.hpp. Nothing here throws. All
// functions are thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "corank/host_device.hpp"
#include "corank/text_field.hpp"
#include "corank/text_layout.hpp"

namespace corank {

// Prefix reference: the form in which a merge moves a variable-length record. Holds the first word
// of its key and a pointer to it. See Nyberg et al., "AlphaSort: A RISC Machine Sort", 1994.
struct PrefixRef {
  std::uint64_t word;
  // Low 48 bits: address of the record. High 16 bits: its size, saturated at saturated_bytes.
  std::uint64_t place;
};

namespace detail {

// Converts the ASCII letters among eight bytes to upper case.
CORANK_HOST_DEVICE inline std::uint64_t fold_case(std::uint64_t bytes) {
  constexpr std::uint64_t each = 0x0101010101010101u;
  const std::uint64_t low = bytes & 0x7f * each;
  const std::uint64_t from_a = low + (0x80 - 'a') * each;
  const std::uint64_t beyond_z = low + (0x7f - 'z') * each;
  return bytes ^ ((from_a ^ beyond_z) & ~bytes & 0x80 * each) >> 2;
}

// Loads up to seven bytes, of which `left` exist, into the high bytes of a word.
CORANK_HOST_DEVICE inline std::uint64_t load_seven(const std::byte* at, std::uint64_t left) {
#ifndef __CUDA_ARCH__
  if (left >= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    return __builtin_bswap64(word) & ~std::uint64_t{0xff};
  }
#endif
  std::uint64_t word = 0;
  for (unsigned i = 0; i < 7; ++i)
    word = word << 8 | (i < left ? static_cast<std::uint64_t>(at[i]) : 0);
  return word << 8;
}

CORANK_HOST_DEVICE inline std::uint64_t string_bytes(const TextField& field) {
  if (!field.quoted) return field.bytes;
  std::uint64_t bytes = 0;
  unsigned byte;
  for (FieldBytes reader(field); reader.next(byte);) ++bytes;
  return bytes;
}

CORANK_HOST_DEVICE inline std::uint64_t string_words(std::uint64_t bytes) {
  return bytes == 0 ? 1 : (bytes + 6) / 7;
}

// Returns the key word of a string that starts at its byte `from`: seven bytes and their count, 8
// if more follow.
CORANK_HOST_DEVICE inline std::uint64_t string_word(const TextField& field, bool nocase,
                                                    std::uint64_t from) {
  std::uint64_t bits = 0;
  std::uint64_t left = 0;
  if (field.quoted) {
    unsigned byte;
    FieldBytes reader(field);
    for (std::uint64_t skipped = 0; skipped < from; ++skipped) reader.next(byte);
    for (; left < 8 && reader.next(byte); ++left)
      if (left < 7) bits |= std::uint64_t{byte} << (56 - 8 * left);
  } else {
    left = field.bytes > from ? field.bytes - from : 0;
    bits = load_seven(field.at + from, left);
    if (left > 8) left = 8;
  }
  return (nocase ? fold_case(bits) : bits) | left;
}

// Returns whether values of the type are encoded as numbers in one word instead of as strings.
CORANK_HOST_DEVICE constexpr bool is_number(TextType type) {
  return type == TextType::u64 || type == TextType::i64 || type == TextType::f64;
}

// Returns whether values of the type are encoded as the byte strings of src/format/encoded_key.hpp.
// Devices cannot encode them; see device_comparable().
CORANK_HOST_DEVICE constexpr bool is_encoded(TextType type) {
  return type > TextType::f64;
}

// The functions below encode the columns that they take, on the host only. They return the size of
// the encoded column, its key word that starts at byte `from`, and the order of two columns, as
// compare_strings() does but with the direction of the column.
std::uint64_t encoded_bytes(const TextField& field, const TextColumn& column);
std::uint64_t encoded_word(const TextField& field, const TextColumn& column, std::uint64_t from);
int compare_encoded(const TextField& x, const TextField& y, const TextColumn& column);

// Returns whether `field`, which is `column`, holds a value of its type; anything is one of bytes
// and of natural.
bool holds_value(const TextField& field, const TextColumn& column);

// Parses a float into a word whose unsigned order is the order of floats. Returns false on failure.
bool parse_f64(const std::byte* at, std::uint64_t bytes, std::uint64_t& word);
// Does as parse_number() for a JSON string, or a column that may have escapes.
bool parse_decoded_number(const TextField& field, TextType type, std::uint64_t& word);

#ifndef __CUDA_ARCH__
// Parses eight decimal digits by SWAR: combines digits to pairs, pairs to fours, fours to the
// value. Returns false if any byte is not a digit.
inline bool eight_digits(const std::byte* at, std::uint64_t& value) {
  constexpr std::uint64_t each = 0x0101010101010101u;
  std::uint64_t bytes;
  std::memcpy(&bytes, at, 8);
  const std::uint64_t digits = bytes ^ '0' * each;
  if ((digits | (digits + 6 * each)) & 0xf0 * each) return false;
  const std::uint64_t pairs = (10 * digits + (digits >> 8)) & 0x00ff00ff00ff00ffu;
  const std::uint64_t fours = (100 * pairs + (pairs >> 16)) & 0x0000ffff0000ffffu;
  value = 10'000 * (fours & 0xffffffffu) + (fours >> 32);
  return true;
}
#endif

CORANK_HOST_DEVICE inline bool parse_integer(const std::byte* at, const std::byte* end,
                                             bool is_signed, std::uint64_t& word) {
  const bool negative = is_signed && is_char(*at, '-');
  if (negative || is_char(*at, '+')) ++at;
  if (at == end) return false;
  std::uint64_t value = 0;
#ifndef __CUDA_ARCH__
  if (end - at >= 8) {
    if (!eight_digits(at, value)) return false;
    at += 8;
  }
#endif
  for (; at != end; ++at) {
    const unsigned digit = static_cast<unsigned>(*at) - unsigned{'0'};
    constexpr std::uint64_t most = ~std::uint64_t{0};
    if (digit > 9 || value > most / 10 || (value == most / 10 && digit > most % 10)) return false;
    value = 10 * value + digit;
  }
  constexpr std::uint64_t sign = std::uint64_t{1} << 63;
  if (is_signed && value > sign - !negative) return false;
  word = !is_signed ? value : negative ? sign - value : sign + value;
  return true;
}

// Parses a number into a word whose unsigned order is the order of numbers. Returns false if the
// column is not a number or does not fit `type`.
CORANK_HOST_DEVICE inline bool parse_number(const TextField& field, TextType type,
                                            std::uint64_t& word) {
#ifndef __CUDA_ARCH__
  if (field.is_json || (field.quoted && field.escape != 0)) [[unlikely]]
    return parse_decoded_number(field, type, word);
#endif
  const std::byte* at = field.at;
  const std::byte* end = at + field.bytes;
  const auto trim = [&] {
    const auto blank = [](std::byte byte) {
      return is_char(byte, ' ') || is_char(byte, '\t') || is_char(byte, '\r');
    };
    while (at != end && blank(*at)) ++at;
    while (at != end && blank(end[-1])) --end;
  };
  trim();
  if (field.quoted) {  // a number ends at the closing quote and contains none
    if (end - at < 2 || !is_char(*at, '"') || !is_char(end[-1], '"')) return false;
    ++at;
    --end;
    trim();
  }
  if (at == end) return false;
  if (type != TextType::f64) return parse_integer(at, end, type == TextType::i64, word);
#ifdef __CUDA_ARCH__
  return false;  // see device_comparable()
#else
  return parse_f64(at, static_cast<std::uint64_t>(end - at), word);
#endif
}

// Returns the number of words of a numeric key: 2 if bad numbers are ordered, too, else 1.
CORANK_HOST_DEVICE inline std::uint64_t number_words(const TextLayout& layout) {
  return are_ordered(layout.bad_numbers) ? 2 : 1;
}

CORANK_HOST_DEVICE inline std::uint64_t number_word(const TextField& field,
                                                    const TextColumn& column, std::uint64_t word) {
  std::uint64_t bits = 0;
  const bool good = parse_number(field, column.type, bits);
  if (word != 0) return good == column.bad_first;
  if (!good) return column.bad_first ? 0 : ~std::uint64_t{0};
  return column.descending ? ~bits : bits;
}

// Returns whether `word`, one of the words of a column's key, is known to be its last.
CORANK_HOST_DEVICE inline bool holds_column(const TextLayout& layout, const TextColumn& column,
                                            std::uint64_t word) {
  if (is_number(column.type)) return number_words(layout) == 1;
  return ((column.descending ? ~word : word) & 0xff) < 8;
}

// Returns the number of key words of the column.
CORANK_HOST_DEVICE inline std::uint64_t column_words(const TextLayout& layout,
                                                     const TextColumn& column,
                                                     const TextField& field) {
  if (is_number(column.type)) return number_words(layout);
#ifndef __CUDA_ARCH__
  if (is_encoded(column.type)) return string_words(encoded_bytes(field, column));
#endif
  return string_words(string_bytes(field));
}

// Returns the key word that starts at byte `from` of a column of bytes or of an encoded column.
CORANK_HOST_DEVICE inline std::uint64_t bytes_word(const TextColumn& column, const TextField& field,
                                                   std::uint64_t from) {
#ifndef __CUDA_ARCH__
  if (is_encoded(column.type)) return encoded_word(field, column, from);
#endif
  const std::uint64_t bits = string_word(field, column.nocase, from);
  return column.descending ? ~bits : bits;
}

// Returns how many bytes at the start of two strings, neither quoted, are equal, or with `nocase`
// equal but for case. Host only.
inline std::uint64_t shared_bytes(const TextField& x, const TextField& y, bool nocase) {
  const auto differing_bits = [nocase](std::uint64_t p, std::uint64_t q) {
    return nocase && p != q ? fold_case(p) ^ fold_case(q) : p ^ q;
  };
  const std::uint64_t common = std::min(x.bytes, y.bytes);
  std::uint64_t at = 0;
  for (; common - at >= 8; at += 8) {
    std::uint64_t p, q;
    std::memcpy(&p, x.at + at, 8);
    std::memcpy(&q, y.at + at, 8);
    if (const std::uint64_t bits = differing_bits(p, q))
      return at + static_cast<std::uint64_t>(std::countr_zero(bits)) / 8;
  }
  const auto byte_of = [&](const TextField& field) { return static_cast<unsigned>(field.at[at]); };
  while (at < common && differing_bits(byte_of(x), byte_of(y)) == 0) ++at;
  return at;
}

// Compares as compare_strings() does, but strings that are not quoted. Host only.
inline int compare_unquoted(const TextField& x, const TextField& y, bool nocase) {
  const std::uint64_t common = std::min(x.bytes, y.bytes);
  const int by_size = (x.bytes > y.bytes) - (x.bytes < y.bytes);
  if (!nocase) {
    const int order = common == 0 ? 0 : std::memcmp(x.at, y.at, common);
    return order != 0 ? order : by_size;
  }
  const std::uint64_t shared = shared_bytes(x, y, true);
  if (shared == common) return by_size;
  const auto folded = [&](const TextField& field) {
    return static_cast<int>(fold_case(static_cast<unsigned>(field.at[shared])));
  };
  return folded(x) - folded(y);
}

// Returns a negative number, 0 or a positive number if `x` sorts before, with or after `y`.
CORANK_HOST_DEVICE inline int compare_strings(const TextField& x, const TextField& y, bool nocase) {
#ifndef __CUDA_ARCH__
  if (!x.quoted && !y.quoted) return compare_unquoted(x, y, nocase);
#endif
  FieldBytes from_x(x), from_y(y);
  for (;;) {
    unsigned p = 0, q = 0;
    const bool more_x = from_x.next(p);
    const bool more_y = from_y.next(q);
    if (!more_x || !more_y) return more_x - more_y;
    if (nocase) p = static_cast<unsigned>(fold_case(p)), q = static_cast<unsigned>(fold_case(q));
    if (p != q) return p < q ? -1 : 1;
  }
}

}  // namespace detail

// Size that a prefix reference stores for records of this size or larger.
inline constexpr std::uint64_t saturated_bytes = 0xffff;

inline PrefixRef make_entry(std::uint64_t word, const std::byte* record, std::uint64_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(record);
  assert(address >> 48 == 0);  // `place` keeps 48 bits of it
  return {word, address | (bytes < saturated_bytes ? bytes : saturated_bytes) << 48};
}

CORANK_HOST_DEVICE inline const std::byte* record_of(const PrefixRef& entry) {
  return reinterpret_cast<const std::byte*>(entry.place & ((std::uint64_t{1} << 48) - 1));
}

// Returns the size of the record at `record`, framing included, by finding its end.
CORANK_HOST_DEVICE inline std::uint64_t record_bytes(const TextLayout& layout,
                                                     const std::byte* record) {
  switch (layout.kind) {
    case TextKind::pairs:
      return detail::pair_header_bytes + detail::load_length(record) +
             detail::load_length(record + 4);
    case TextKind::lines:
    case TextKind::json_lines:
      return static_cast<std::uint64_t>(
          detail::find_char(record, detail::unbounded(record), layout.terminator) + 1 - record);
    case TextKind::csv:
      break;
  }
  for (const std::byte* at = record;; ++at) {
    at = detail::csv_field_end(layout, at, detail::unbounded(record));
    if (detail::is_char(*at, layout.terminator)) return at + 1 - record;
  }
}

// Returns the size of the record, or saturated_bytes if it is at least that.
CORANK_HOST_DEVICE inline std::uint64_t short_bytes(const PrefixRef& entry) {
  return entry.place >> 48;
}

CORANK_HOST_DEVICE inline std::uint64_t record_bytes(const TextLayout& layout,
                                                     const PrefixRef& entry) {
  const std::uint64_t bytes = short_bytes(entry);
  return bytes < saturated_bytes ? bytes : record_bytes(layout, record_of(entry));
}

// Returns the number of words of the record's key.
CORANK_HOST_DEVICE inline std::uint64_t text_words(const TextLayout& layout,
                                                   const std::byte* record, std::uint64_t bytes) {
  detail::Columns columns(layout, record, bytes);
  std::uint64_t words = 0;
  for (std::uint32_t c = 0; c < layout.columns_count; ++c) {
    const TextColumn& column = layout.columns[c];
    words += detail::column_words(layout, column, columns(column.column));
  }
  return words;
}

// Returns word number `word` of the record's key; 0 after its end.
CORANK_HOST_DEVICE inline std::uint64_t text_word(const TextLayout& layout, const std::byte* record,
                                                  std::uint64_t bytes, std::uint64_t word) {
  detail::Columns columns(layout, record, bytes);
  for (std::uint32_t c = 0; c < layout.columns_count; ++c) {
    const TextColumn& column = layout.columns[c];
    const detail::TextField field = columns(column.column);
    const std::uint64_t words = detail::column_words(layout, column, field);
    if (word >= words) {
      word -= words;
      continue;
    }
    return detail::is_number(column.type) ? detail::number_word(field, column, word)
                                          : detail::bytes_word(column, field, 7 * word);
  }
  return 0;
}

// Returns whether record `a` sorts before `b`. Defines the order of records: every merge must
// agree. Skips the key columns before `first_column`, which must be equal.
CORANK_HOST_DEVICE inline bool text_less(const TextLayout& layout, const std::byte* a,
                                         std::uint64_t a_bytes, const std::byte* b,
                                         std::uint64_t b_bytes, std::uint32_t first_column = 0) {
  detail::Columns of_a(layout, a, a_bytes), of_b(layout, b, b_bytes);
  for (std::uint32_t c = first_column; c < layout.columns_count; ++c) {
    const TextColumn& column = layout.columns[c];
    const detail::TextField x = of_a(column.column), y = of_b(column.column);
    if (detail::is_number(column.type)) {
      for (std::uint64_t word = 0; word < detail::number_words(layout); ++word) {
        const std::uint64_t p = detail::number_word(x, column, word);
        const std::uint64_t q = detail::number_word(y, column, word);
        if (p != q) return p < q;
      }
      continue;
    }
#ifndef __CUDA_ARCH__
    if (detail::is_encoded(column.type)) {
      const int encoded_order = detail::compare_encoded(x, y, column);
      if (encoded_order != 0) return encoded_order < 0;
      continue;
    }
#endif
    const int order = detail::compare_strings(x, y, column.nocase);
    if (order != 0) return (order < 0) != column.descending;
  }
  return false;
}

CORANK_HOST_DEVICE inline bool text_less(const TextLayout& layout, const PrefixRef& a,
                                         const PrefixRef& b) {
  if (a.word != b.word) return a.word < b.word;
  const std::uint32_t decided = detail::holds_column(layout, layout.columns[0], a.word);
  if (decided == layout.columns_count) return false;
  return text_less(layout, record_of(a), record_bytes(layout, a), record_of(b),
                   record_bytes(layout, b), decided);
}

}  // namespace corank
