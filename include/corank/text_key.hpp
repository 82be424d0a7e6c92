// Normalised keys of variable-length records: lines, CSV, key-value pairs and JSON Lines.
//
// A string becomes 64-bit words: seven bytes, then a count byte. The count is the number of string
// bytes in the word, or 8 if more words follow. So padding never makes keys equal, no key is a
// prefix of another, and words compare as the strings do. Numbers become one word, like fields of
// fixed-size records.
//
// Functions take a record as a pointer and a size in bytes, framing included: the terminator of a
// line, the length prefix of a pair. Records must be complete and well-formed. Nothing here throws
// except TextEncoding's constructor. All functions are thread-safe.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "corank/host_device.hpp"
#include "corank/text.hpp"

namespace corank {

// Prefix reference: the form in which a merge moves a variable-length record. Holds the first word
// of its key and a pointer to it. See Nyberg et al., "AlphaSort: A RISC Machine Sort", 1994.
struct PrefixRef {
  std::uint64_t word;
  // Low 48 bits: address of the record. High 16 bits: its size, saturated at saturated_bytes.
  std::uint64_t place;
};

// Column of a record, and how it is compared.
struct TextColumn {
  std::uint32_t column;  // counted from 1; 0: the whole line. Pairs: 0 is the key, 1 the value
  TextType type;
  bool descending;
  bool nocase;
  bool bad_first = false;  // whether text that is not a value sorts before values; see BadNumbers
};

namespace detail {

// One column of a record.
struct TextField {
  const std::byte* at;
  std::uint64_t bytes;
  bool quoted;  // has quotes or escapes, which FieldBytes decodes and `bytes` includes
  bool there;
  char escape = 0;
  bool is_json = false;  // the quoted text is a JSON string
};

}  // namespace detail

// Finds the columns of lines that delimiters do not divide. Immutable and thread-safe; for the host
// only. A line is a record with its terminator.
class ColumnFinder {
 public:
  virtual ~ColumnFinder() = default;

  // Returns why the line does not have the format; empty if it does.
  virtual std::string defect(std::span<const std::byte> line) const = 0;
  // Returns this finder without defect(), for lines that were found to have none.
  virtual std::shared_ptr<const ColumnFinder> without_checks() const = 0;
  // Returns a column, counted from 1, of a line that may have any defect.
  virtual detail::TextField find(std::span<const std::byte> line, std::uint32_t column) const = 0;
  // Returns the names by which a line without defect has columns.
  virtual std::vector<std::string> names(std::span<const std::byte> line) const = 0;
  // Returns the name of a column in messages.
  virtual std::string name(std::uint32_t column) const = 0;
  // Returns a line without terminator that has `values[i]` in column i + 1; null stands for any
  // value. Throws Error, which names `option`, if there is no such line.
  virtual std::string line_with(std::span<const std::string* const> values,
                                Setting option) const = 0;
};

// Format and keys as plain data, which can be passed to a device. Owns nothing.
struct TextLayout {
  const TextColumn* columns;  // keys, most significant first
  std::uint32_t columns_count;
  TextKind kind;  // how records are found: JSON Lines are `lines` with a finder
  BadNumbers bad_numbers;
  char terminator;
  char delimiter;
  std::uint32_t min_columns;  // min columns of a record; fewer are an error
  char escape;                // CSV escape: the byte after it is literal; 0 if there is none
  const ColumnFinder* finder = nullptr;  // finds the columns; null: delimiters divide them

  // Returns whether the key is the unchanged line.
  CORANK_HOST_DEVICE bool whole_line() const {
    return kind != TextKind::pairs && !finder && columns_count == 1 && columns[0].column == 0 &&
           columns[0].type == TextType::bytes && !columns[0].descending && !columns[0].nocase;
  }
};

// Returns whether records with bad numbers have a place in the order.
CORANK_HOST_DEVICE constexpr bool are_ordered(BadNumbers bad) {
  return bad == BadNumbers::last || bad == BadNumbers::first;
}

// Returns whether a device can parse values of the type.
bool device_reads(TextType type);
// Returns whether a device can compare records by these keys. Devices parse bytes and integers
// only.
bool device_comparable(const TextLayout& layout);

// Returns the size of the byte order mark at the start of a header; 0 if there is none.
std::size_t byte_order_mark_bytes(TextKind kind, std::string_view header);

// Returns the values of the columns of a header or first record, with or without its terminator,
// without a byte order mark and a carriage return at its end.
std::vector<std::string> column_values(const TextLayout& layout, std::string_view line);
// Returns their number.
std::uint32_t count_columns(const TextLayout& layout, std::string_view line);

// Checked format of variable-length records, with its keys as columns. Immutable.
class TextEncoding {
 public:
  // `header` is the line with the column names, with or without its terminator; for a format
  // without a header it is a record with all columns. Throws Error if the format contradicts itself
  // or `header` lacks a column. `option` names the option of the keys in errors; keys of the option
  // `keys` must not be values of pairs.
  explicit TextEncoding(const TextFormat& format, std::string_view header = {},
                        Setting option = Setting::keys);

  // Returns this encoding for records whose columns were found before, and are not checked again;
  // nothing if that would save nothing.
  std::optional<TextEncoding> without_checks() const;

  // Returns a view, valid until the encoding is destroyed.
  TextLayout layout() const { return layout_with(columns_.data()); }
  // Returns a view that refers to a copy of the columns, such as one in device memory.
  TextLayout layout_with(const TextColumn* columns) const;
  const std::vector<TextColumn>& columns() const { return columns_; }
  // Returns how many columns the header has, or the record in its place; 0 if there is neither.
  std::uint32_t header_columns() const { return header_columns_; }

 private:
  TextKind kind_;
  BadNumbers bad_numbers_;
  char terminator_;
  char delimiter_;
  std::uint32_t header_columns_ = 0, min_columns_ = 0;
  char escape_;
  std::vector<TextColumn> columns_;
  std::shared_ptr<const ColumnFinder> finder_;
};

namespace detail {

// Bytes of a pair before its key: two lengths.
inline constexpr std::uint64_t pair_header_bytes = 8;

CORANK_HOST_DEVICE inline bool is_char(std::byte byte, char c) {
  return byte == static_cast<std::byte>(c);
}

CORANK_HOST_DEVICE inline std::uint32_t load_length(const std::byte* at) {
#ifdef __CUDA_ARCH__
  std::uint32_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | static_cast<std::uint32_t>(at[i]);
#else
  std::uint32_t length;
  std::memcpy(&length, at, sizeof length);
#endif
  return length;
}

// Returns the first `c` in [at, end), or `end`.
CORANK_HOST_DEVICE inline const std::byte* find_char(const std::byte* at, const std::byte* end,
                                                     char c) {
#ifdef __CUDA_ARCH__
  while (at != end && !is_char(*at, c)) ++at;
  return at;
#else
  const void* const found =
      at == end ? nullptr : std::memchr(at, c, static_cast<std::size_t>(end - at));
  return found ? static_cast<const std::byte*>(found) : end;
#endif
}

#ifdef __SSE2__
// Returns a bit mask of the positions of `c` in `bytes` bytes, 16 to 64. Bit 0 is the first byte.
inline std::uint64_t places_of(const std::byte* at, std::uint64_t bytes, char c) {
  std::uint64_t places = 0;
  const __m128i wanted = _mm_set1_epi8(c);
  for (std::uint64_t i = 0; i < 64; i += 16) {  // the last blocks may overlap
    const std::uint64_t from = i < bytes - 16 ? i : bytes - 16;
    const __m128i there = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + from));
    const int mask = _mm_movemask_epi8(_mm_cmpeq_epi8(there, wanted));
    places |= static_cast<std::uint64_t>(mask) << from;
  }
  return places;
}
#endif

// Returns an address after the end of any record at `record`: a bound for searches that must
// succeed.
CORANK_HOST_DEVICE inline const std::byte* unbounded(const std::byte* record) {
  return record + (std::uint64_t{1} << 46);
}

// Returns the end of the quoted part of a CSV column whose opening quote is at `at`: the byte after
// the closing quote, or `end` if there is none.
CORANK_HOST_DEVICE inline const std::byte* csv_quoted_end(const TextLayout& layout,
                                                          const std::byte* at,
                                                          const std::byte* end) {
  if (layout.escape == 0) {
    do {
      at = find_char(at + 1, end, '"');
      if (at != end) ++at;
    } while (at != end && is_char(*at, '"'));
    return at;
  }
  while (++at != end) {
    const bool is_escaped = is_char(*at, layout.escape);
    if (!is_escaped && !is_char(*at, '"')) continue;
    ++at;
    if (at == end || (!is_escaped && !is_char(*at, '"'))) return at;
  }
  return at;
}

// Returns the end of a CSV column: the first delimiter, terminator or `end` from `at`, which is
// outside quotes.
CORANK_HOST_DEVICE inline const std::byte* csv_unquoted_end(const TextLayout& layout,
                                                            const std::byte* at,
                                                            const std::byte* end) {
  for (; at != end && !is_char(*at, layout.delimiter) && !is_char(*at, layout.terminator); ++at)
    if (layout.escape != 0 && is_char(*at, layout.escape) && ++at == end) break;
  return at;
}

// Returns the end of the CSV column that begins at `at`: a delimiter, a terminator or `end`.
CORANK_HOST_DEVICE inline const std::byte* csv_field_end(const TextLayout& layout,
                                                         const std::byte* at,
                                                         const std::byte* end) {
  if (at != end && is_char(*at, '"')) at = csv_quoted_end(layout, at, end);
  return csv_unquoted_end(layout, at, end);
}

// Returns whether a carriage return before the terminator belongs to no column. In CSV it does not,
// unless an escape character makes it a byte of the last one.
CORANK_HOST_DEVICE inline bool has_return(const TextLayout& layout, const std::byte* record,
                                          std::uint64_t bytes) {
  if (layout.kind != TextKind::csv || layout.terminator != '\n' || bytes < 2 ||
      !is_char(record[bytes - 2], '\r'))
    return false;
  std::uint64_t escapes = 0;
  while (layout.escape != 0 && escapes + 2 < bytes &&
         is_char(record[bytes - 3 - escapes], layout.escape))
    ++escapes;
  return escapes % 2 == 0;
}

// Returns the column of CSV at `at`, which begins with a quote, without its quotes if nothing
// between them needs decoding.
CORANK_HOST_DEVICE inline TextField without_quotes(const std::byte* at, std::uint64_t bytes) {
  const std::byte* const end = at + bytes;
  if (bytes < 2 || find_char(at + 1, end, '"') + 1 != end) return {at, bytes, true, true};
  return {at + 1, bytes - 2, false, true};
}

// Finds the columns of a record. Ascending requests are fast: each search starts at the last
// column.
class Columns {
 public:
  CORANK_HOST_DEVICE Columns(const TextLayout& layout, const std::byte* record, std::uint64_t bytes)
      : layout_(layout),
        record_(record),
        at_(record),
        end_(record + bytes - 1),
        last_(has_return(layout, record, bytes) ? end_ - 1 : end_) {}

  // Returns a column as a value.
  CORANK_HOST_DEVICE TextField operator()(std::uint32_t column) { return find(column, false); }
  // Returns a column as it is written, quotes included.
  CORANK_HOST_DEVICE TextField written(std::uint32_t column) { return find(column, true); }

 private:
  CORANK_HOST_DEVICE TextField find(std::uint32_t column, bool is_written) {
    if (layout_.kind == TextKind::pairs) {
      const std::uint64_t key_bytes = load_length(record_);
      if (column == 0) return {record_ + pair_header_bytes, key_bytes, false, true};
      return {record_ + pair_header_bytes + key_bytes, load_length(record_ + 4), false, true};
    }
    if (column == 0) return {record_, static_cast<std::uint64_t>(end_ - record_), false, true};
#ifndef __CUDA_ARCH__
    if (layout_.finder)
      return layout_.finder->find({record_, static_cast<std::size_t>(end_ + 1 - record_)}, column);
#ifdef __SSE2__
    if (find_delimiters()) return delimited(column);
#endif
#endif
    if (column < column_) {
      column_ = 1;
      at_ = record_;
    }
    for (;; ++column_) {
      // A terminator inside the record is quoted.
      const bool quoted = layout_.kind == TextKind::csv && at_ != last_ && is_char(*at_, '"');
      const std::byte* const next = quoted || layout_.escape != 0
                                        ? csv_field_end(layout_, at_, last_)
                                        : find_char(at_, last_, layout_.delimiter);
      if (column_ == column) {
        const auto bytes = static_cast<std::uint64_t>(next - at_);
        if (quoted && !is_written && layout_.escape == 0) return without_quotes(at_, bytes);
        return {at_, bytes, quoted || has_escape(at_, next), true, layout_.escape};
      }
      if (next == last_) return {last_, 0, false, false};
      at_ = next + 1;
    }
  }

  CORANK_HOST_DEVICE bool has_escape(const std::byte* at, const std::byte* end) const {
    return layout_.escape != 0 && find_char(at, end, layout_.escape) != end;
  }
#ifdef __SSE2__
  // Finds all delimiters of a short record by SIMD, which is faster than one search each. Returns
  // false if the record has another length or a quote.
  bool find_delimiters() {
    if (sought_) return all_found_;
    sought_ = true;
    const auto bytes = static_cast<std::uint64_t>(last_ - record_);
    if (bytes < 16 || bytes > 64 || layout_.escape != 0) return false;
    all_found_ = layout_.kind == TextKind::lines || places_of(record_, bytes, '"') == 0;
    if (all_found_) delimiters_ = places_of(record_, bytes, layout_.delimiter);
    return all_found_;
  }
  TextField delimited(std::uint32_t column) const {
    std::uint64_t rest = delimiters_;
    const std::byte* begin = record_;
    for (std::uint32_t before = 1; before < column; ++before, rest &= rest - 1) {
      if (rest == 0) return {last_, 0, false, false};
      begin = record_ + __builtin_ctzll(rest) + 1;
    }
    const std::byte* const end = rest != 0 ? record_ + __builtin_ctzll(rest) : last_;
    return {begin, static_cast<std::uint64_t>(end - begin), false, true};
  }
#endif

  const TextLayout& layout_;
  const std::byte* const record_;
  const std::byte* at_;  // start of column_
  const std::byte* const end_;
  const std::byte* last_;  // end of the last column
  std::uint32_t column_ = 1;
  bool sought_ = false, all_found_ = false;
  std::uint64_t delimiters_ = 0;  // bit mask of their positions, if all_found_
};

// Reads the next byte of a JSON string from `at`, which is after its opening quote, up to `end`.
// `pending` holds the other bytes of the last character, the next one lowest, and is 0 at first.
// Returns false at the closing quote.
bool next_json_byte(const std::byte*& at, const std::byte* end, std::uint32_t& pending,
                    unsigned& byte);

// Reads a column byte by byte, without its quotes and escapes. A quoted "" is one quote; a byte
// after an escape character is literal. Bytes after the closing quote belong to the column.
class FieldBytes {
 public:
  CORANK_HOST_DEVICE explicit FieldBytes(const TextField& field)
      : at_(field.at),
        end_(field.at + field.bytes),
        escape_(field.escape),
        is_json_(field.is_json) {
    inside_ = field.quoted && at_ != end_ && is_char(*at_, '"');
    at_ += inside_;
  }

  // Reads the next byte. Returns false at the end.
  CORANK_HOST_DEVICE bool next(unsigned& byte) {
#ifndef __CUDA_ARCH__
    if (is_json_) [[unlikely]]
      return next_of_json(byte);
#endif
    if (escape_ != 0 && end_ - at_ > 1 && is_char(*at_, escape_)) {
      ++at_;
    } else if (inside_ && at_ != end_ && is_char(*at_, '"')) {
      ++at_;
      inside_ = at_ != end_ && is_char(*at_, '"');
    }
    if (at_ == end_) return false;
    byte = static_cast<unsigned>(*at_++);
    return true;
  }

 private:
#ifndef __CUDA_ARCH__
  // Passes copies, so that the members stay in registers.
  bool next_of_json(unsigned& byte) {
    const std::byte* at = at_;
    std::uint32_t pending = pending_;
    unsigned next = 0;
    const bool has_next = next_json_byte(at, end_, pending, next);
    at_ = at;
    pending_ = pending;
    byte = next;
    return has_next;
  }
#endif

  const std::byte* at_;
  const std::byte* end_;
  char escape_;
  bool inside_;
  bool is_json_;
  std::uint32_t pending_ = 0;  // see next_json_byte()
};

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

// Returns the value of a column, without quotes and escapes.
std::string decoded(const TextField& field);

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

// Returns a negative number, 0 or a positive number if `x` sorts before, with or after `y`.
CORANK_HOST_DEVICE inline int compare_strings(const TextField& x, const TextField& y, bool nocase) {
#ifndef __CUDA_ARCH__
  if (!x.quoted && !y.quoted && !nocase) {
    const std::uint64_t common = x.bytes < y.bytes ? x.bytes : y.bytes;
    const int order = common == 0 ? 0 : std::memcmp(x.at, y.at, common);
    return order != 0 ? order : (x.bytes > y.bytes) - (x.bytes < y.bytes);
  }
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
