// Formats of variable-length records (lines, CSV, key-value pairs and JSON Lines) and of their
// keys.
//
// Functions take a record as a pointer and a size in bytes, framing included: the terminator of a
// line, the length prefix of a pair. Nothing here throws except TextEncoding's constructor and
// ColumnFinder::line_with(). All functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corank/host_device.hpp"
#include "corank/text.hpp"

namespace corank {

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

}  // namespace corank
