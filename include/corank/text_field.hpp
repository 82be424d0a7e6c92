// Finds the columns of variable-length records, and decodes quotes and escapes.
//
// Records are complete and well-formed, framing included; see text_layout.hpp. Nothing here throws.
// All functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "corank/host_device.hpp"
#include "corank/text_layout.hpp"

namespace corank {

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

// Returns the value of a column, without quotes and escapes.
std::string decoded(const TextField& field);

}  // namespace detail

}  // namespace corank
