// Format and keys of variable-length records: lines, CSV, and length-prefixed key-value pairs.
// Plain data; TextEncoding checks that a format is consistent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corank {

enum class TextKind : std::uint8_t {
  lines,  // each ends with the terminator; delimiters separate its columns
  csv,    // lines, in which a column in double quotes may hold anything, with "" for a quote
  pairs,  // u32 key size, u32 value size (both little-endian, in bytes), the key, the value
};

// How a column is compared: as unsigned bytes, or as a decimal number with optional blanks around
// it. f64 has the total order of floats in fixed-size records; see KeyEncoding.
enum class TextType : std::uint8_t { bytes, u64, i64, f64 };

// How to treat a record whose numeric key does not parse or does not fit its type.
enum class BadNumbers : std::uint8_t {
  error,
  skip,  // drop and count the record
  last,  // order it after all numbers, ascending or descending
};

// How records with fewer columns than the header or, without one, the first record are treated.
enum class RaggedRecords : std::uint8_t {
  empty,  // missing columns are empty
  error,
};

struct TextKey {
  std::uint32_t column = 0;  // counted from 1; 0: the whole line, or the key of a pair
  std::string name;  // column name in the header, or `key` or `value` of a pair; may be empty
  TextType type = TextType::bytes;  // a missing column compares as an empty one
  bool descending = false;
  bool nocase = false;  // for bytes only: a to z compare as A to Z
};

struct TextFormat {
  TextKind kind = TextKind::lines;
  char terminator = '\n';         // the last record of a run may lack it, and gets it
  std::optional<char> delimiter;  // without it, a comma in CSV; columns of lines need one
  bool header = false;            // each run begins with the same line, which the output keeps once
  // Lines and CSV: the lines at the start of each file that begin with this prefix. The output
  // keeps those of the first file. Empty: there are none.
  std::string comment;
  // Lines and CSV: this many lines follow the comment lines and precede the line of `header`. They
  // must be the same in all files; the output keeps them once.
  std::uint64_t header_lines = 0;
  std::vector<TextKey> keys;  // empty: the whole line, or the key of a pair
  BadNumbers bad_numbers = BadNumbers::error;
  RaggedRecords ragged = RaggedRecords::empty;  // of lines with a delimiter, and CSV
};

// `text` is `column[:type][:desc][:nocase],…`; a column is its number, `line` (`key` says the same
// of a pair), or a name that the header has. A name in quotes, with \\, \', \" and \xNN in them,
// may hold anything, and is neither a number nor `line`. Throws Error, which points into the text;
// `option` is what it was given as.
std::vector<TextKey> parse_text_keys(std::string_view text, std::string_view option = "--by");

}  // namespace corank
