// Encodes values of the column types that are neither bytes nor numbers of one word (time, natural,
// decimal, human) as byte strings whose order as bytes is the order of the values. Merges then
// treat such a column as a column of bytes. Each encoding is described at its function. All
// functions are thread-safe and run on the host only.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "corank/text_layout.hpp"

namespace corank::detail {

// A key word holds seven bytes of an encoded key, and tells whether an eighth follows.
inline constexpr std::uint64_t word_bytes = 8;

// Encoded value of a column. Owns its bytes.
class EncodedKey {
 public:
  // Bytes after the first `enough_bytes` may be left out.
  EncodedKey(const TextField& field, const TextColumn& column,
             std::uint64_t enough_bytes = std::numeric_limits<std::uint64_t>::max());

  // Returns false if the column does not hold a value of its type. The encoded key is then the byte
  // that sorts after all values, or before them with TextColumn::bad_first: 0xff or 0x00.
  bool is_valid() const { return is_valid_; }
  // Returns the encoded bytes as a column of bytes, which is valid as long as this object.
  TextField field() const {
    return {reinterpret_cast<const std::byte*>(bytes_.data()), bytes_.size(), false, true};
  }
  // Returns the key word that starts at byte `from` of the encoded bytes of `column`.
  std::uint64_t word(const TextColumn& column, std::uint64_t from) const;

 private:
  std::string bytes_;
  bool is_valid_;
};

// Returns the first byte in which the encoded bytes of two columns differ; nothing if they are
// equal.
std::optional<std::uint64_t> encoded_difference(const TextField& x, const TextField& y,
                                                const TextColumn& column);

// Decimal number: DIGITS * 10^(exponent - scale).
struct Decimal {
  bool is_negative = false;
  std::string digits = {};    // without leading zeros; empty if the value is 0
  std::int64_t scale = 0;     // digits after the point in the text
  std::int64_t exponent = 0;  // in the text
};

// Parses [+-]digits[.digits][e[+-]digits]; returns nothing for other text.
std::optional<Decimal> parse_decimal(std::string_view text);

}  // namespace corank::detail
