// Records of variable length: lines of text, CSV, and pairs with their lengths before them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corank {

enum class TextKind : std::uint8_t {
  lines,  // each ends with the terminator; columns are what stands between delimiters
  csv,    // the same, but columns that begin with " may hold anything, and "" in them is one "
  pairs,  // u32 key bytes, u32 value bytes (both little-endian), the key, the value
};

// Numbers are decimal, blanks around them do not count. Those of type f64 are ordered as floats of
// fixed-size records are.
enum class TextType : std::uint8_t { bytes, u64, i64, f64 };

// What becomes of a record with a column that is to be a number and is none that its type holds.
enum class BadNumbers : std::uint8_t {
  error,
  skip,  // left out, and counted
  last,  // ordered behind all numbers, whatever the direction
};

struct TextKey {
  std::uint32_t column = 0;  // counted from 1; 0: the whole line, or the key of a pair
  std::string name;          // of the column, if the header is to say; `key` or `value` of a pair
  TextType type =
      TextType::bytes;  // bytes compare as unsigned; a column that is not there is empty
  bool descending = false;
  bool nocase = false;  // of bytes: a to z count as A to Z
};

struct TextFormat {
  TextKind kind = TextKind::lines;
  char terminator = '\n';         // the last record of a run may lack it, and gets it
  std::optional<char> delimiter;  // without it, a comma in CSV; columns of lines need one
  bool header = false;            // each run begins with the same line, which the output keeps once
  std::vector<TextKey> keys;      // empty: the whole line, or the key of a pair
  BadNumbers bad_numbers = BadNumbers::error;
};

// `text` is `column[:type][:desc][:nocase],…`; a column is its number, `line` (`key` says the same
// of a pair), or a name that the header has. Throws Error, which points into the text; `option` is
// what it was given as.
std::vector<TextKey> parse_text_keys(std::string_view text, std::string_view option = "--by");

}  // namespace corank
