// Format and keys of variable-length records: lines, CSV, length-prefixed key-value pairs, and JSON
// Lines.
// Plain data; TextEncoding checks that a format is consistent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corank/setting.hpp"

namespace corank {

enum class TextKind : std::uint8_t {
  lines,       // each ends with the terminator; delimiters separate its columns
  csv,         // lines, in which a column in double quotes may hold anything, with "" for a quote
  pairs,       // u32 key size, u32 value size (both little-endian, in bytes), the key, the value
  json_lines,  // lines, each of which holds a JSON object; its columns are fields of the object
};

// How a column is compared. Numbers are decimal, with optional blanks around them. f64 has the
// total order of floats in fixed-size records; see KeyEncoding.
enum class TextType : std::uint8_t {
  bytes,
  u64,
  i64,
  f64,
  // Values of the types below are encoded as byte strings and merged on the CPU.
  time,     // ISO 8601, Apache logs, syslog; the default offset is UTC, the default year 0
  natural,  // bytes, but runs of digits compare as numbers; equal numbers: fewer zeros first
  decimal,  // of any length, exact
  human,    // a number with a suffix K M G T P E Z Y R Q, in the order of `sort -h`
};

// How to treat a record with a key that is not a value of its type. `skip` also drops invalid JSON.
enum class BadNumbers : std::uint8_t {
  error,
  skip,   // drop and count the record
  last,   // order it after all values, ascending or descending
  first,  // order it before all values
};

// How to treat records with few columns. Missing columns are empty, unless they are an error.
enum class RaggedRecords : std::uint8_t {
  after_first,  // a first record must have the columns that options name: none may be misnamed
  empty,
  error,  // no record may have fewer columns than the header or, without a header, the first record
};
// Returns the type with this name; nothing if there is none.
std::optional<TextType> text_type_named(std::string_view name);
std::string_view type_name(TextType type);

struct TextKey {
  std::uint32_t column = 0;  // counted from 1; 0: the whole line, or the key of a pair
  // Column name in the header, or `key` or `value` of a pair; may be empty. Of JSON Lines: the name
  // of a field, or if it begins with a slash, the JSON pointer (RFC 6901) to a value in the object.
  std::string name;
  TextType type = TextType::bytes;  // a missing column compares as an empty one
  bool descending = false;
  bool nocase = false;  // for bytes and natural only: a to z compare as A to Z
};

struct TextFormat {
  TextKind kind = TextKind::lines;
  char terminator = '\n';         // added to the last record of a run if missing
  std::optional<char> delimiter;  // default: a comma for CSV; lines with columns need one
  bool header = false;            // all runs begin with the same line, which the output has once
  bool first_header = false;      // with `header`: only the first run that is not empty has it
  // For lines and CSV: prefix of comment lines at the start of each file. The output has those of
  // the first file. Empty: no comment lines.
  std::string comment;
  // For lines and CSV: number of lines between the comment lines and the line of `header`. They
  // must be equal in all files; the output has them once.
  std::uint64_t header_lines = 0;
  // Size in bytes of the header of each file, if it is known: then records after it are records,
  // even if they look like comment lines, a byte order mark or another format.
  std::optional<std::uint64_t> header_bytes;
  std::vector<TextKey> keys;  // most significant first; empty: the whole line or a pair's key
  BadNumbers bad_numbers = BadNumbers::error;
  RaggedRecords ragged = RaggedRecords::after_first;  // for lines with a delimiter, and CSV
  // For CSV: the byte after this character is literal, inside quotes and outside. Doubled quotes
  // are accepted, too.
  std::optional<char> escape;
};

// Parses `column[:type][:asc|:desc][:nocase],…`. A column is a number from 1, `line`, `key` of a
// pair, or a name in the header. A quoted name, with the escapes \\ \' \" \xNN, may hold any text
// and is never read as a number or `line`. Throws Error, which marks the position in `text`;
// `option` names the option in that message.
std::vector<TextKey> parse_text_keys(std::string_view text, Setting option = Setting::keys);

}  // namespace corank
