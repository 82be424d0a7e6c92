// Encodes values of the column types that are neither bytes nor numbers of one word (time, natural,
// decimal, human) as byte strings whose order as bytes is the order of the values. Merges then
// treat such a column as a column of bytes. Each encoding is described at its function. All
// functions are thread-safe and run on the host only.
#pragma once

#include <string>
#include <string_view>

#include "corank/text_key.hpp"

namespace corank::detail {

// Appends the encoded value to `to`. The string after the call is not empty and begins with neither
// 0x00 nor 0xff, except in `encode_natural`. Returns false if `text` is not a value of the type;
// `to` is then unspecified. Blanks around the value must be removed by the caller.
bool encode_time(std::string_view text, std::string& to);
bool encode_decimal(std::string_view text, std::string& to);
bool encode_human(std::string_view text, std::string& to);
// Any text is a value. With `nocase`, the letters a to z count as A to Z.
void encode_natural(std::string_view text, bool nocase, std::string& to);

// A column's value in encoded form.
class EncodedKey {
 public:
  EncodedKey(const TextField& field, TextType type, bool descending, bool nocase);
  EncodedKey(const TextField& field, const TextColumn& column)
      : EncodedKey(field, column.type, column.descending, column.nocase) {}

  // False if the column does not hold a value of its type. The encoded key is then the byte that
  // sorts after all values: 0xff, or 0x00 in a descending column.
  bool is_valid() const { return is_valid_; }
  // The encoded bytes as a column of bytes; valid as long as the key.
  TextField field() const {
    return {reinterpret_cast<const std::byte*>(bytes_.data()), bytes_.size(), false, true};
  }

 private:
  std::string bytes_;
  bool is_valid_;
};

}  // namespace corank::detail
