#include "format/text_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <utility>

#include "corank/error.hpp"
#include "corank/key.hpp"
#include "corank/text_key.hpp"
#include "format/framing.hpp"
#include "format/text_columns.hpp"
#include "util/messages.hpp"
#include "util/option_items.hpp"

namespace corank {
namespace {

constexpr std::uint32_t max_examined_columns = 1000;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Returns an encoding without keys, which suffices to find records.
TextEncoding without_keys(TextFormat format) {
  format.keys.clear();
  return TextEncoding(format);
}

detail::TextField field_of(const TextLayout& layout, const std::string& record,
                           std::uint32_t column) {
  return detail::Columns(layout, bytes_of(record).data(), record.size())(column);
}

bool holds_value(const TextLayout& layout, const std::string& record, std::uint32_t column,
                 TextType type) {
  const detail::TextField field = field_of(layout, record, column);
  return field.there && detail::holds_value(field, {column, type, false, false});
}

bool has_column(const TextLayout& layout, const std::string& record, std::uint32_t column) {
  return field_of(layout, record, column).there;
}

// Returns whether a column holds text in `first` and a number in each of `seconds`.
bool is_named(const TextLayout& layout, const std::string& first,
              const std::vector<std::string>& seconds, std::uint32_t column) {
  return field_of(layout, first, column).bytes != 0 &&
         !holds_value(layout, first, column, TextType::f64) &&
         std::ranges::all_of(seconds, [&](const std::string& second) {
           return holds_value(layout, second, column, TextType::f64);
         });
}

bool holds_any_number(const TextLayout& layout, const std::string& record) {
  for (std::uint32_t column = 1; column <= max_examined_columns; ++column) {
    if (holds_value(layout, record, column, TextType::f64)) return true;
    if (!has_column(layout, record, column)) break;
  }
  return false;
}

bool looks_like_header(const TextLayout& layout, const std::string& first,
                       const std::vector<std::string>& seconds, bool has_columns, bool are_sorted,
                       bool is_verified) {
  if (seconds.empty()) return false;
  for (const TextColumn& key : std::span(layout.columns, layout.columns_count)) {
    if (holds_value(layout, first, key.column, key.type)) continue;
    // Unless told otherwise, the merge reports such a record as an error, so no warning is needed.
    return layout.bad_numbers != BadNumbers::error;
  }
  const auto is_before_first = [&](const std::string& second) {
    return text_less(layout, bytes_of(second).data(), second.size(), bytes_of(first).data(),
                     first.size());
  };
  if (are_sorted && std::ranges::any_of(seconds, is_before_first)) return !is_verified;
  for (std::uint32_t column = 1; has_columns && column <= max_examined_columns; ++column) {
    if (is_named(layout, first, seconds, column)) return true;
    if (!has_column(layout, first, column)) break;
  }
  return false;
}

// Returns the text with every digit replaced by 0 and every ASCII letter by a.
std::string shape_of(std::string text) {
  for (char& c : text)
    if (c >= '0' && c <= '9')
      c = '0';
    else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      c = 'a';
  return text;
}

bool is_year(const std::string& text) {
  return text.size() == 4 && (text.starts_with("19") || text.starts_with("20")) &&
         shape_of(text) == "0000";
}

// Returns whether numbers are names that programs give to columns: 0 alone or ascending by equal
// steps, as years and hours do. Two numbers are that only if they are neighbours.
bool are_names(const std::vector<double>& numbers) {
  if (numbers.size() == 1) return numbers.front() == 0;
  const double step = numbers[1] - numbers[0];
  const auto has_other_step = [&](double a, double b) { return b - a != step; };
  return step > 0 && (step == 1 || numbers.size() > 2) &&
         std::ranges::adjacent_find(numbers, has_other_step) == numbers.end();
}

// Returns values of `names`, a line of names, and of `record` in one column, if they are so alike
// that the first is hardly a name: both have digits at the same places, or are numbers. Numbers
// that are common names are not: years above other numbers, or all with equal steps.
std::optional<std::pair<std::string, std::string>> find_alike(const TextLayout& layout,
                                                              const std::string& names,
                                                              const std::string& record) {
  std::optional<std::pair<std::string, std::string>> alike;
  const std::vector<std::string> a = column_values(layout, names);
  const std::vector<std::string> b = column_values(layout, record);
  std::vector<double> numbers;
  for (std::uint32_t i = 0; i < std::min({a.size(), b.size(), std::size_t{max_examined_columns}});
       ++i) {
    const std::string shape = shape_of(a[i]);
    const auto digits = std::ranges::count(shape, '0');
    if (digits == 0) continue;
    if (!holds_value(layout, names, i + 1, TextType::f64)) {
      if (digits >= 3 && shape == shape_of(b[i])) return {{a[i], b[i]}};
      continue;
    }
    numbers.push_back(std::strtod(a[i].c_str(), nullptr));
    if (!alike && holds_value(layout, record, i + 1, TextType::f64) &&
        (!is_year(a[i]) || is_year(b[i])))
      alike.emplace(a[i], b[i]);
  }
  return alike && !are_names(numbers) ? alike : std::nullopt;
}

}  // namespace

TextHeader::TextHeader(const TextFormat& format)
    : format_(format), encoding_(without_keys(format)) {}

std::string_view TextHeader::byte_order_mark() const {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return mark.substr(0, byte_order_mark_bytes(format_.kind, mark));
}

TextHeader TextHeader::without_names() const {
  TextFormat format = format_;
  format.header = format.first_header = false;
  return TextHeader(format);
}

bool TextHeader::is_empty() const {
  return !format_.header && format_.header_lines == 0 && format_.comment.empty();
}

std::optional<FileHead> TextHeader::parse(const std::filesystem::path& file,
                                          std::span<const std::byte> begin, bool at_end) const {
  if (const auto& bytes = format_.header_bytes) {
    if (begin.size() < *bytes && !at_end) return std::nullopt;
    begin = begin.first(std::min<std::uint64_t>(*bytes, begin.size()));
    at_end = true;
  }
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  FileHead head;
  head.mark = text.substr(0, byte_order_mark_bytes(format_.kind, text));
  std::size_t at = head.mark.size();
  const auto take = [&](std::size_t bytes, std::string& part) {
    part += text.substr(at, bytes);
    if (!part.empty() && !part.ends_with(format_.terminator)) part += format_.terminator;
    at += bytes;
  };
  // Takes a line; the last one of a file may lack its terminator. Returns false if more of the file
  // is needed.
  const auto take_line = [&](std::string& part) {
    const std::size_t end = text.find(format_.terminator, at);
    if (end == std::string_view::npos && !at_end) return false;
    take((end == std::string_view::npos ? text.size() : end + 1) - at, part);
    ++head.num_lines;
    return true;
  };
  while (!format_.comment.empty()) {
    const std::string_view rest = text.substr(at);
    if (!at_end && rest.size() < format_.comment.size()) return std::nullopt;
    if (!rest.starts_with(format_.comment)) break;
    if (!take_line(head.comments)) return std::nullopt;
  }
  for (std::uint64_t line = 0; line < format_.header_lines; ++line) {
    if (text.empty() && at_end) break;
    if (at == text.size() && at_end)
      throw_error("{}: ends within its {} header lines; correct {}", file, format_.header_lines,
                  Setting::header_lines);
    if (!take_line(head.lines)) return std::nullopt;
  }
  if (format_.header) {
    const std::span<const std::byte> record = begin.subspan(at);
    const std::uint64_t bytes = first_record_bytes(encoding_.layout(), record);
    if (const auto stray = find_stray_text(encoding_.layout(), record))
      throw_error("{}: the header: {}", file,
                  stray_text_message(encoding_.layout(), record.data(), *stray));
    if (bytes == 0 && !at_end) return std::nullopt;
    if (bytes == 0 && !record.empty() &&
        first_record_bytes(encoding_.layout(),
                           bytes_of(std::string(text.substr(at)) + format_.terminator)) == 0)
      throw_error("{}: the header: {}", file, open_quote_message(encoding_.layout()));
    take(bytes != 0 ? bytes : record.size(), head.names);
    ++head.num_lines;
  }
  head.bytes = at;
  if (format_.header_bytes.value_or(at) != at)
    throw_error(ErrorCode::corrupted, "{}: does not begin with its header of {} bytes", file,
                *format_.header_bytes);
  return head;
}

std::optional<std::string> TextHeader::first_record(std::span<const std::byte> begin,
                                                    bool at_end) const {
  const TextLayout layout = encoding_.layout();
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  const std::size_t mark_bytes = byte_order_mark_bytes(layout.kind, text);
  const std::uint64_t found = first_record_bytes(layout, begin.subspan(mark_bytes));
  if (find_stray_text(layout, begin.subspan(mark_bytes))) return "";
  if (found == 0 && !at_end) return std::nullopt;
  return std::string(text.substr(0, found != 0 ? mark_bytes + found : text.size()));
}

FirstRecords TextHeader::first_records(std::string begin, bool at_end) const {
  const TextLayout layout = encoding_.layout();
  if (at_end && !begin.empty() && !begin.ends_with(layout.terminator)) begin += layout.terminator;
  const std::uint64_t first = first_record_bytes(layout, bytes_of(begin));
  const std::string rest = begin.substr(first);
  return {begin.substr(0, first), rest.substr(0, first_record_bytes(layout, bytes_of(rest)))};
}

std::string TextHeader::difference(std::string_view names, std::string_view others) const {
  const auto here = column_values(encoding_.layout(), names);
  const auto there = column_values(encoding_.layout(), others);
  const auto [first, other] = std::ranges::mismatch(here, there);
  if (first == here.end() && other == there.end()) return {};
  const auto shown = [](const auto& name, const auto& columns) {
    return name == columns.end() ? "missing" : fmt::format("\"{}\"", without_nul(*name));
  };
  return fmt::format("column {} is {} here and {} there", first - here.begin() + 1,
                     shown(first, here), shown(other, there));
}

std::string TextHeader::with_column(std::string_view names, std::string_view name) const {
  return with_last_column(encoding_.layout(), names, name);
}

std::uint32_t TextHeader::num_columns(std::string_view record) const {
  return count_columns(encoding_.layout(), record);
}

std::uint32_t TextHeader::wanted_columns(const Query& query) const {
  if (format_.kind == TextKind::pairs) return 0;
  std::uint32_t column = format_.ragged == RaggedRecords::error ? 1 : 0;
  const auto add = [&](const TextKey& key) { column = std::max(column, key.column); };
  std::ranges::for_each(format_.keys, add);
  std::ranges::for_each(query.select, add);
  for (const Condition::Step& step : query.where.steps) add(step.with.column);
  for (const Condition::Step& step : query.having.steps) add(step.with.column);
  if (query.tombstone) add(query.tombstone->column);
  for (const Reduction& reduction : query.reductions)
    if (reduction.column) add(*reduction.column);
  return column;
}

std::string TextHeader::doubt_names(std::string_view header, const std::string& record) const {
  if (header.empty()) return {};
  const std::string line(header);
  const TextEncoding encoding(format_, header);
  const auto doubt = [&](std::string_view reason) {
    return fmt::format(
        "the header, \"{}\", {}; if the files have no header, leave out {}, which takes a record "
        "for it",
        shown_record(line), reason, Setting::header);
  };
  for (const TextKey& key : format_.keys)
    if (key.type != TextType::bytes && key.type != TextType::natural && key.name.empty() &&
        holds_value(encoding.layout(), line, key.column, key.type))
      return doubt("holds a value of the key's type where the key is, as a record does");
  if (record.empty() || format_.kind == TextKind::json_lines) return {};
  const auto alike = find_alike(encoding_.layout(), line, record);
  if (!alike) return {};
  return doubt(fmt::format("looks like a record: it has {} where the next line has {}",
                           shown_record(alike->first), shown_record(alike->second)));
}

std::string TextHeader::doubt_fields(std::span<const std::string> firsts,
                                     const Query& query) const {
  if (format_.kind != TextKind::json_lines || firsts.empty()) return {};
  std::vector<std::pair<const TextKey*, Setting>> named;
  for (const TextKey& key : format_.keys) named.emplace_back(&key, Setting::keys);
  const auto add = [&](const Condition& condition, Setting option) {
    for (const Condition::Step& step : condition.steps)
      if (step.operation < ConditionOperation::negate)
        named.emplace_back(&step.with.column, option);
  };
  add(query.where, Setting::where);
  add(query.having, Setting::having);
  if (query.tombstone) named.emplace_back(&query.tombstone->column, Setting::tombstone);
  for (const auto& [key, option] : named) {
    if (key->name.empty()) continue;  // the whole line
    TextFormat by = format_;
    by.keys = {*key};
    const TextEncoding encoding(by, {}, option);
    const ColumnFinder& finder = *encoding.layout().finder;
    const auto lacks = [&](const std::string& first) {
      return !finder.names(bytes_of(first)).empty() && !finder.find(bytes_of(first), 1).there;
    };
    if (!std::ranges::all_of(firsts, lacks)) continue;
    std::vector<std::string> names;  // of all files
    for (const std::string& first : firsts)
      for (std::string& name : finder.names(bytes_of(first)))
        if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    const auto similar = nearest(key->name, names);
    return fmt::format("{}: the first record of each file has no field {}; its fields are {}{}",
                       option, key->name, fmt::join(names, ", "),
                       similar ? fmt::format("; did you mean {}?", *similar) : "");
  }
  return {};
}

std::string TextHeader::doubt_records(std::span<const FirstRecords> runs, bool are_sorted,
                                      bool is_verified) const {
  if (format_.kind == TextKind::pairs || format_.kind == TextKind::json_lines) return {};
  const std::string& first = runs.front().first;
  std::vector<std::string> seconds;
  for (const FirstRecords& run : runs) {
    if (run.first != first) return {};
    if (!run.second.empty()) seconds.push_back(run.second);
  }
  const TextEncoding encoding(format_);
  const TextLayout layout = encoding.layout();
  const bool has_columns = format_.kind == TextKind::csv || format_.delimiter;
  if (!looks_like_header(layout, first, seconds, has_columns, are_sorted, is_verified)) return {};
  const bool is_single = runs.size() == 1;
  if (is_single && (layout.bad_numbers != BadNumbers::error || holds_any_number(layout, first)))
    return {};
  return fmt::format("the first record{}, \"{}\",{} looks like a header; if it is one, say {}",
                     is_single ? "" : " of all runs is the same", shown_record(first),
                     is_single ? "" : " and", Setting::header);
}

}  // namespace corank
