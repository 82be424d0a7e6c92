#include "format/text_columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "corank/error.hpp"
#include "corank/text_key.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Max column of a bound, whose record has all columns before its own.
constexpr std::uint32_t max_columns = 1'000'000;

void append(std::vector<std::byte>& to, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Makes the pair whose key, or value if that is what `layout` compares, is `text`.
std::vector<std::byte> make_pair_record(const TextLayout& layout, const std::string& text) {
  std::uint32_t lengths[2] = {};
  lengths[layout.columns[0].column] = static_cast<std::uint32_t>(text.size());
  const auto header = std::as_bytes(std::span(lengths));
  std::vector<std::byte> record(header.begin(), header.end());
  append(record, text);
  return record;
}

// The values of a bound of lines or CSV: one for each key of `layout`.
struct BoundValues {
  const TextLayout& layout;
  const std::vector<std::string>& values;
  Setting option;
  std::span<const TextColumn> columns{layout.columns, layout.columns_count};

  [[noreturn]] void reject(const std::string& value, const std::string& why) const {
    throw_error(ErrorCode::options, "{} \"{}\": {}", option, without_nul(value), why);
  }

  // Returns the value that each column must have, null for any. Returns nothing if the key is the
  // whole line.
  std::vector<const std::string*> by_column() const {
    std::vector<const std::string*> values_of;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t column = columns[i].column;
      if (column > max_columns)
        throw_error(ErrorCode::options, "{}: there is no column {} to compare; the most is {}",
                    option, column, max_columns);
      if (column == 0 && values.size() > 1)
        throw_error(ErrorCode::options,
                    "{}: a value for the whole line leaves none for other columns; give values for "
                    "the keys before it only",
                    option);
      const bool is_plain = layout.kind == TextKind::lines && (column == 0 || !layout.finder);
      if (is_plain && values[i].find(layout.terminator) != std::string::npos)
        reject(values[i], "no line holds what ends lines");
      if (is_plain && column != 0 && values[i].find(layout.delimiter) != std::string::npos)
        reject(values[i], "no column holds the delimiter");
      values_of.resize(std::max<std::size_t>(values_of.size(), column));
      if (column != 0) values_of[column - 1] = &values[i];
    }
    return values_of;
  }

  // Makes the record that has these values in its columns; CSV values are quoted.
  std::vector<std::byte> make_record(const std::vector<const std::string*>& values_of) const {
    std::vector<std::byte> record;
    if (values_of.empty()) append(record, values[0]);
    if (layout.finder && !values_of.empty())
      append(record, layout.finder->line_with(values_of, option));
    for (std::size_t i = 0; i < values_of.size() && !layout.finder; ++i) {
      if (i != 0) record.push_back(static_cast<std::byte>(layout.delimiter));
      if (!values_of[i]) continue;
      if (layout.kind == TextKind::lines) {
        append(record, *values_of[i]);
        continue;
      }
      append(record, "\"");
      for (const char c : *values_of[i]) {
        if (c == '"' || (layout.escape != 0 && c == layout.escape)) append(record, {&c, 1});
        append(record, {&c, 1});
      }
      append(record, "\"");
    }
    record.push_back(static_cast<std::byte>(layout.terminator));
    return record;
  }

  // Verifies that the record's columns have the types of their keys, and that each key's value
  // equals its column.
  void verify(const std::vector<const std::string*>& values_of,
              std::span<const std::byte> record) const {
    detail::Columns there(layout, record.data(), record.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!detail::holds_value(there(columns[i].column), columns[i]))
        reject(values[i],
               detail::is_number(columns[i].type)
                   ? "is not a number that the column's type holds"
                   : fmt::format("is not a value of type {}", type_name(columns[i].type)));
      // Several keys may name one column, as 1:nocase,1 do; the record has the last one's value.
      if (columns[i].column == 0 || values_of[columns[i].column - 1] == &values[i]) continue;
      TextLayout one = layout;
      one.columns = &columns[i];
      one.columns_count = 1;
      const std::vector<std::byte> own = record_with(one, {values[i]}, option);
      if (text_less(one, own.data(), own.size(), record.data(), record.size()) ||
          text_less(one, record.data(), record.size(), own.data(), own.size()))
        reject(values[i],
               fmt::format("column {} is a key again, with a value that is not equal to it",
                           columns[i].column));
    }
  }
};

// Returns a column as conditions name it.
std::string in_condition(const TextKey& column) {
  if (column.name.empty()) return column.column == 0 ? "line" : std::to_string(column.column);
  const bool needs_quotes = column.name.find_first_of(" ,:\"'()<>=!") != std::string::npos;
  return needs_quotes ? fmt::format("'{}'", column.name) : column.name;
}

}  // namespace

std::vector<std::byte> record_with(const TextLayout& layout, const std::vector<std::string>& values,
                                   Setting option) {
  assert(values.size() == layout.columns_count);
  if (layout.kind == TextKind::pairs) return make_pair_record(layout, values[0]);
  const BoundValues bound{layout, values, option};
  const auto values_of = bound.by_column();
  std::vector<std::byte> record = bound.make_record(values_of);
  bound.verify(values_of, record);
  return record;
}

void require_comparable(const ColumnValue& with, Setting option) {
  if (!with.is_number || with.column.type != TextType::bytes) return;
  const std::string column = in_condition(with.column);
  throw_error(ErrorCode::options,
              "{} \"{}\": the column compares with text in quotes; for numbers, add their type to "
              "the column: {}:u64, {}:i64, {}:f64 or {}:decimal",
              option, without_nul(with.value), column, column, column, column);
}

std::string_view end_of(const TextLayout& layout, std::string_view record) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(record.data());
  return record.substr(record.size() - (detail::has_return(layout, bytes, record.size()) ? 2 : 1));
}

std::string with_last_column(const TextLayout& layout, std::string_view record,
                             std::string_view value) {
  const bool holds_delimiter = value.find(layout.delimiter) != std::string_view::npos;
  if (holds_delimiter && layout.kind != TextKind::csv)
    throw_error(
        "{}: {}, which count() adds to a line, holds the delimiter; take another {}, or CSV",
        Setting::on_equal, value, Setting::delimiter);
  const std::string_view end = end_of(layout, record), quote = holds_delimiter ? "\"" : "";
  std::string longer;
  longer.reserve(record.size() + 3 + value.size());
  longer.append(record.substr(0, record.size() - end.size())) += layout.delimiter;
  return longer.append(quote).append(value).append(quote).append(end);
}

std::string shown_record(std::string_view record) {
  constexpr std::size_t max_shown_bytes = 60;
  while (record.ends_with('\n') || record.ends_with('\r') || record.ends_with('\0'))
    record.remove_suffix(1);
  return without_nul(record.substr(0, max_shown_bytes)) +
         (record.size() > max_shown_bytes ? "…" : "");
}

}  // namespace corank
