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

// Numbers are decimal, blanks around them do not count. Those of type f64 are ordered as floats of
// fixed-size records are.
enum class TextType : std::uint8_t {
  bytes,
  u64,
  i64,
  f64,
  // The types below are encoded as byte strings, and merged on the CPU.
  time,     // ISO 8601, Apache's log and syslog; without an offset UTC; without a year, year 0
  natural,  // bytes in which runs of digits compare as numbers; of equal numbers, fewer zeros first
  decimal,  // of any length, exact
  human,    // a number with a suffix K M G T P E Z Y R Q, ordered as `sort -h` orders it
};

// How to treat a record with a key that its type does not hold: a number that is none, say.
enum class BadNumbers : std::uint8_t {
  error,
  skip,  // left out, and counted
  last,  // ordered after all values, whatever the direction
};

// How records with fewer columns than the header or, without one, the first record are treated.
enum class RaggedRecords : std::uint8_t {
  empty,  // missing columns are empty
  error,
};
// Returns the type that a key names; nothing if no type has the name.
std::optional<TextType> text_type_named(std::string_view name);
std::string_view type_name(TextType type);

struct TextKey {
  std::uint32_t column = 0;  // counted from 1; 0: the whole line, or the key of a pair
  std::string name;  // column name in the header, or `key` or `value` of a pair; may be empty
  TextType type = TextType::bytes;  // a missing column compares as an empty one
  bool descending = false;
  bool nocase = false;  // of bytes and natural: a to z count as A to Z
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
  // Of CSV: the byte after this character stands for itself, in quotes and outside. A quote may be
  // doubled, too.
  std::optional<char> escape;
};

// `text` is `column[:type][:desc][:nocase],…`; a column is its number, `line` (`key` says the same
// of a pair), or a name that the header has. A name in quotes, with \\, \', \" and \xNN in them,
// may hold anything, and is neither a number nor `line`. Throws Error, which points into the text;
// `option` is what it was given as.
std::vector<TextKey> parse_text_keys(std::string_view text, std::string_view option = "--by");

}  // namespace corank
