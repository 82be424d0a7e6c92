#include "corank/text_key.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <span>
#include <string>

#include "corank/error.hpp"

namespace corank {
namespace {

// What the option's text calls a pair's columns.
constexpr std::string_view key_name = "key", value_name = "value";

// The number of the column that the header calls `name`; 0 if it does not.
std::uint32_t find_column(const TextLayout& layout, std::string_view header,
                          std::string_view name) {
  if (!header.ends_with(layout.terminator)) {
    const std::string whole = std::string(header) + layout.terminator;
    return find_column(layout, whole, name);
  }
  header.remove_prefix(byte_order_mark_bytes(layout.kind, header));
  detail::Columns columns(layout, reinterpret_cast<const std::byte*>(header.data()), header.size());
  for (std::uint32_t column = 1;; ++column) {
    const detail::TextField field = columns(column);
    if (!field.there) return 0;
    std::string found;
    unsigned byte;
    for (detail::FieldBytes bytes(field); bytes.next(byte);) found += static_cast<char>(byte);
    if (found == name) return column;
  }
}

void require_pair_column(const TextKey& key, std::string_view option) {
  const bool orders = option == "--by";
  const bool named = key.name.empty() ? key.column == 0
                                      : key.name == key_name || (key.name == value_name && !orders);
  if (named && key.type == TextType::bytes) return;
  if (orders)
    throw Error(
        "pairs are ordered by their keys as bytes; leave out --by, or name nothing but key");
  throw Error(
      fmt::format("{}: a pair has a key and a value, both of bytes; name key or value", option));
}

void require_consistent(const TextFormat& format, char delimiter, std::string_view option) {
  const bool pairs = format.kind == TextKind::pairs;
  if (pairs &&
      (format.delimiter || format.header || format.header_lines != 0 || !format.comment.empty()))
    throw Error("pairs have no columns: leave out the delimiter and the header");
  if (format.delimiter && delimiter == format.terminator)
    throw Error("the delimiter is what ends a record, too; choose another one");
  if (format.kind == TextKind::csv && (delimiter == '"' || delimiter == '\r'))
    throw Error("in CSV neither a quote nor a carriage return can be the delimiter");
  for (const TextKey& key : format.keys) {
    if (pairs) {
      require_pair_column(key, option);
      continue;
    }
    const bool column = key.column != 0 || !key.name.empty();
    if (!key.name.empty() && !format.header)
      throw Error(
          fmt::format("{} names the column \"{}\", but the runs are said to have no "
                      "header; add --header, or give the column's number",
                      option, key.name));
    if (column && format.kind == TextKind::lines && !format.delimiter)
      throw Error(
          fmt::format("{} names a column of lines; say by --delimiter what ends a column", option));
  }
}

}  // namespace

TextEncoding::TextEncoding(const TextFormat& format, std::string_view header,
                           std::string_view option)
    : kind_(format.kind),
      bad_numbers_(format.bad_numbers),
      terminator_(format.terminator),
      delimiter_(format.delimiter.value_or(',')) {
  require_consistent(format, delimiter_, option);
  // Runs without a byte have no header, and nothing to order: any column does, as long as it is no
  // other's.
  std::uint32_t free_column = 0;
  for (const TextKey& key : format.keys) free_column = std::max(free_column, key.column);
  for (const TextKey& key : format.keys) {
    TextColumn column{key.column, key.type, key.descending, key.nocase};
    if (kind_ == TextKind::pairs) {
      column.column = key.name == value_name;
    } else if (!key.name.empty()) {
      column.column = header.empty() ? ++free_column : find_column(layout(), header, key.name);
      if (column.column == 0)
        throw Error(fmt::format("the header has no column \"{}\"; correct {}", key.name, option));
    }
    columns_.push_back(column);
  }
  if (columns_.empty()) columns_.push_back({0, TextType::bytes, false, false});
}

TextLayout TextEncoding::layout_with(const TextColumn* columns) const {
  return {columns,   static_cast<std::uint32_t>(columns_.size()), kind_, bad_numbers_, terminator_,
          delimiter_};
}

bool device_comparable(const TextLayout& layout) {
  return std::ranges::none_of(std::span(layout.columns, layout.columns_count),
                              [](const TextColumn& c) { return c.type == TextType::f64; });
}

std::size_t byte_order_mark_bytes(TextKind kind, std::string_view header) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return kind == TextKind::csv && header.starts_with(mark) ? mark.size() : 0;
}

bool detail::parse_f64(const std::byte* at, std::uint64_t bytes, std::uint64_t& word) {
  const auto* const text = reinterpret_cast<const char*>(at);
  double value = 0;
  const auto [end, error] = std::from_chars(text, text + bytes, value);
  if (error != std::errc{} || end != text + bytes) return false;
  if (value == 0) value = 0;  // without its sign
  constexpr std::uint64_t sign = std::uint64_t{1} << 63;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  word = std::isnan(value) ? ~std::uint64_t{0} : bits & sign ? ~bits : bits | sign;
  return true;
}

}  // namespace corank
