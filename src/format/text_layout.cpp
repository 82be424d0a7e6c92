#include "corank/text_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <string>

#include "corank/error.hpp"
#include "corank/text_field.hpp"
#include "format/json_lines.hpp"
#include "util/messages.hpp"
#include "util/option_items.hpp"

namespace corank {
namespace {

// Names of the columns of pairs.
constexpr std::string_view key_name = "key", value_name = "value";

// Throws the Error for a column that the runs lack; its message begins with `problem`.
[[noreturn]] void throw_no_column(const std::string& problem, const std::string& wanted,
                                  const std::vector<std::string>& names) {
  constexpr std::size_t max_listed = 20;
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), max_listed); ++i)
    list += (i == 0 ? " " : ", ") + quoted_if_needed(names[i]);
  if (names.size() > max_listed) list += fmt::format(", … ({} in all)", names.size());
  const auto similar = nearest(wanted, names);
  throw_error(ErrorCode::options, "{}; its columns are{}{}", problem, list,
              similar ? fmt::format("; did you mean {}?", quoted_if_needed(*similar)) : "");
}

// Returns the number of the column that `key` names. `values` are those of the header or, without a
// header, of the first record.
std::uint32_t find_column(const TextKey& key, const TextFormat& format,
                          const std::vector<std::string>& values, Setting option) {
  if (key.name.empty()) {
    if (key.column <= values.size()) return key.column;
    if (format.header)
      throw_no_column(fmt::format("{}: the header has no column {}", option, key.column),
                      fmt::format("{}", key.column), values);
    if (format.ragged == RaggedRecords::empty) return key.column;
    throw_error(ErrorCode::options,
                "{}: there is no column {}; the first record has {} column{}; if other lines come "
                "first, say {}, {} or {}; if records may lack columns, say {}",
                option, key.column, values.size(), values.size() == 1 ? "" : "s", Setting::header,
                setting_is(Setting::header_lines, "N"), setting_is(Setting::comment, "PREFIX"),
                setting_is(Setting::ragged, "empty"));
  }
  const auto count = std::ranges::count(values, key.name);
  if (count == 0)
    throw_no_column(
        fmt::format("{}: the header has no column \"{}\"", option, without_nul(key.name)), key.name,
        values);
  if (count > 1)
    throw_error(
        ErrorCode::options,
        "{}: the header has {} columns that are called \"{}\"; name one of them by its number",
        option, count, without_nul(key.name));
  return static_cast<std::uint32_t>(std::ranges::find(values, key.name) - values.begin()) + 1;
}

void require_pair_column(const TextKey& key, Setting option) {
  const bool orders = option == Setting::keys;
  const bool named = key.name.empty() ? key.column == 0
                                      : key.name == key_name || (key.name == value_name && !orders);
  if (named && key.type == TextType::bytes) return;
  if (orders)
    throw_error(ErrorCode::options,
                "pairs are ordered by their keys as bytes; leave out {}, or name nothing but key",
                option);
  throw_error(ErrorCode::options,
              "{}: a pair has a key and a value, both of bytes; name key or value", option);
}

void require_consistent(const TextFormat& format, char delimiter, Setting option) {
  const bool pairs = format.kind == TextKind::pairs;
  if (pairs &&
      (format.delimiter || format.header || format.header_lines != 0 || !format.comment.empty()))
    throw Error(ErrorCode::options,
                "pairs have no columns: leave out the delimiter and the header");
  if (format.ragged == RaggedRecords::error &&
      (pairs || (format.kind == TextKind::lines && !format.delimiter)))
    throw_error(ErrorCode::options, "{} is for columns; name the delimiter, or leave it out",
                setting_is(Setting::ragged, "error"));
  if (format.kind == TextKind::json_lines &&
      (format.delimiter || format.header || format.header_lines != 0 || !format.comment.empty() ||
       format.ragged == RaggedRecords::error))
    throw Error(ErrorCode::options,
                "the fields of JSON Lines have names: leave out the delimiter, the header and how "
                "to treat records with few columns");
  if (format.header_bytes.value_or(0) != 0 && pairs)
    throw Error(ErrorCode::options, "pairs have no header; drop TextFormat::header_bytes");
  if (format.header_bytes && format.first_header)
    throw Error(ErrorCode::options,
                "with TextFormat::first_header files have headers of several sizes; drop it or "
                "header_bytes");
  if (format.first_header && !format.header)
    throw Error(ErrorCode::options,
                "the first file has the header, but there is said to be none; give the header");
  if ((format.delimiter || format.kind == TextKind::csv) && delimiter == format.terminator)
    throw Error(ErrorCode::options, "the delimiter is what ends a record, too; choose another one");
  if (format.kind == TextKind::csv &&
      (delimiter == '"' || delimiter == '\r' || format.terminator == '"'))
    throw Error(
        ErrorCode::options,
        "in CSV neither a quote nor a carriage return can be the delimiter, nor can a quote "
        "end a record");
  if (format.escape && format.kind != TextKind::csv)
    throw Error(ErrorCode::options, "an escape character is for CSV; leave it out");
  if (format.escape &&
      (std::isalnum(static_cast<unsigned char>(*format.escape)) != 0 ||
       std::string_view("\"\r\0+-.", 6).find(*format.escape) != std::string_view::npos ||
       *format.escape == delimiter || *format.escape == format.terminator))
    throw Error(
        ErrorCode::options,
        "the escape character is a letter, a digit, a sign, a point, a quote, a NUL byte, the "
        "delimiter or what ends a record; choose another one (a doubled quote needs none)");
  for (const TextKey& key : format.keys) {
    if (pairs) {
      require_pair_column(key, option);
      continue;
    }
    if (format.kind == TextKind::json_lines) {
      if (key.column != 0)
        throw_error(ErrorCode::options,
                    "{}: fields of JSON have names, not numbers; for a field that is called {}, "
                    "put the name in quotes",
                    option, key.column);
      continue;
    }
    const bool column = key.column != 0 || !key.name.empty();
    if (!key.name.empty() && !format.header)
      throw_error(ErrorCode::options,
                  "{} names the column \"{}\", but the runs are said to have no header; give the "
                  "column's number or, if they have one, add {}",
                  option, without_nul(key.name), Setting::header);
    if (column && format.kind == TextKind::lines && !format.delimiter)
      throw_error(ErrorCode::options, "{} names a column of lines; say by {} what ends a column",
                  option, Setting::delimiter);
  }
}

}  // namespace

TextEncoding::TextEncoding(const TextFormat& format, std::string_view header, Setting option)
    : kind_(format.kind == TextKind::json_lines ? TextKind::lines : format.kind),
      bad_numbers_(format.bad_numbers),
      terminator_(format.terminator),
      delimiter_(format.delimiter.value_or(',')),
      escape_(format.escape.value_or('\0')) {
  require_consistent(format, delimiter_, option);
  if (format.kind == TextKind::json_lines) {
    std::vector<std::string> fields;
    for (const TextKey& key : format.keys) {
      const auto field = std::ranges::find(fields, key.name);
      const auto number = key.name.empty() ? 0 : field - fields.begin() + 1;
      columns_.push_back({static_cast<std::uint32_t>(number), key.type, key.descending, key.nocase,
                          format.bad_numbers == BadNumbers::first});
      if (number != 0 && field == fields.end()) fields.push_back(key.name);
    }
    if (columns_.empty()) columns_.push_back({0, TextType::bytes, false, false});
    finder_ = make_json_finder(fields, option);
    return;
  }
  // Empty runs have no header and no records, so a named column may get any number that no other
  // key has.
  std::uint32_t free_column = 0;
  for (const TextKey& key : format.keys) free_column = std::max(free_column, key.column);
  const std::vector<std::string> values =
      header.empty() ? std::vector<std::string>() : column_values(layout(), header);
  header_columns_ = static_cast<std::uint32_t>(values.size());
  if (format.ragged == RaggedRecords::error) min_columns_ = header_columns_;
  for (const TextKey& key : format.keys) {
    TextColumn column{key.column, key.type, key.descending, key.nocase,
                      format.bad_numbers == BadNumbers::first};
    if (kind_ == TextKind::pairs)
      column.column = key.name == value_name;
    else if (!header.empty())
      column.column = find_column(key, format, values, option);
    else if (!key.name.empty())
      column.column = ++free_column;
    columns_.push_back(column);
  }
  if (columns_.empty()) columns_.push_back({0, TextType::bytes, false, false});
}

std::optional<TextEncoding> TextEncoding::without_checks() const {
  if (!finder_) return std::nullopt;
  TextEncoding encoding = *this;
  encoding.finder_ = finder_->without_checks();
  return encoding;
}

TextLayout TextEncoding::layout_with(const TextColumn* columns) const {
  return {columns,      static_cast<std::uint32_t>(columns_.size()),
          kind_,        bad_numbers_,
          terminator_,  delimiter_,
          min_columns_, escape_,
          finder_.get()};
}

std::vector<std::string> column_values(const TextLayout& layout, std::string_view text) {
  std::string line(text);
  if (!line.ends_with(layout.terminator)) line += layout.terminator;
  const std::string_view record =
      std::string_view(line).substr(byte_order_mark_bytes(layout.kind, line));
  detail::Columns columns(layout, reinterpret_cast<const std::byte*>(record.data()), record.size());
  std::vector<std::string> values;
  for (std::uint32_t column = 1;; ++column) {
    const detail::TextField field = columns(column);
    if (!field.there) break;
    values.push_back(detail::decoded(field));
  }
  if (!values.empty() && layout.terminator == '\n' && values.back().ends_with('\r'))
    values.back().pop_back();
  return values;
}

std::uint32_t count_columns(const TextLayout& layout, std::string_view line) {
  return static_cast<std::uint32_t>(column_values(layout, line).size());
}

bool device_reads(TextType type) {
  return type == TextType::bytes || type == TextType::u64 || type == TextType::i64;
}

bool device_comparable(const TextLayout& layout) {
  return !layout.finder &&
         std::ranges::all_of(std::span(layout.columns, layout.columns_count),
                             [](const TextColumn& c) { return device_reads(c.type); });
}

std::size_t byte_order_mark_bytes(TextKind kind, std::string_view header) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return kind != TextKind::pairs && header.starts_with(mark) ? mark.size() : 0;
}

}  // namespace corank
