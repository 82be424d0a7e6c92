#include "format/text_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <utility>

#include "corank/error.hpp"
#include "corank/key.hpp"
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

// Splits the first bytes of a file into its comment lines, header lines and line of names.
class HeadParser {
 public:
  HeadParser(const TextLayout& layout, const TextFormat& format, std::string_view text, bool at_end)
      : layout_(layout),
        format_(format),
        text_(text),
        at_end_(at_end),
        mark_bytes_(byte_order_mark_bytes(layout.kind, text)),
        at_(mark_bytes_) {}

  // Returns false if the header is longer than `text`, so that more of the file is needed.
  bool parse() { return parse_comments() && parse_lines() && parse_names(); }

  std::string_view mark() const { return text_.substr(0, mark_bytes_); }  // byte order mark
  std::string_view comments() const {
    return text_.substr(mark_bytes_, comments_end_ - mark_bytes_);
  }
  std::string_view lines() const { return text_.substr(comments_end_, lines_end_ - comments_end_); }
  std::string_view names() const { return text_.substr(lines_end_, names_end_ - lines_end_); }
  std::uint64_t header_bytes() const { return names_end_; }
  std::uint64_t num_lines() const { return num_lines_; }
  bool lacks_lines() const { return lacks_lines_; }
  // Returns the error in the quotes of the line of names; empty if there is none.
  const std::string& stray_text() const { return stray_text_; }

 private:
  bool parse_comments() {
    if (format_.comment.empty()) return true;
    for (;;) {
      const std::string_view rest = text_.substr(at_);
      if (!rest.starts_with(format_.comment))
        return at_end_ || rest.size() >= format_.comment.size();
      if (!skip_line()) return false;
      comments_end_ = lines_end_ = names_end_ = at_;
    }
  }

  bool parse_lines() {
    for (std::uint64_t line = 0; line < format_.header_lines; ++line) {
      if (at_ == text_.size() && at_end_) {
        lacks_lines_ = true;
        return true;
      }
      if (!skip_line()) return false;
      lines_end_ = names_end_ = at_;
    }
    return true;
  }

  bool parse_names() {
    if (!format_.header) return true;
    const std::string_view rest = text_.substr(at_);
    const auto record = bytes_of(rest);
    const std::uint64_t bytes = first_record_bytes(layout_, record);
    if (const auto stray = find_stray_text(layout_, record))
      stray_text_ = stray_text_message(layout_, record.data(), *stray);
    if (bytes == 0 && !at_end_) return false;
    names_end_ = bytes != 0 ? at_ + bytes : text_.size();
    ++num_lines_;
    return true;
  }

  // Skips a line; the last line of a file may lack its terminator.
  bool skip_line() {
    const std::size_t end = text_.find(format_.terminator, at_);
    if (end == std::string_view::npos && !at_end_) return false;
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
    ++num_lines_;
    return true;
  }

  const TextLayout layout_;
  const TextFormat& format_;
  std::string_view text_;
  bool at_end_;
  std::size_t mark_bytes_;
  std::size_t at_;
  std::size_t comments_end_ = at_, lines_end_ = at_, names_end_ = at_;
  std::uint64_t num_lines_ = 0;
  bool lacks_lines_ = false;
  std::string stray_text_;
};

std::string terminated(std::string_view lines, char terminator) {
  std::string text(lines);
  if (!text.empty() && !text.ends_with(terminator)) text += terminator;
  return text;
}

bool holds_value(const TextLayout& layout, const std::string& record, std::uint32_t column,
                 TextType type) {
  detail::Columns columns(layout, bytes_of(record).data(), record.size());
  const detail::TextField field = columns(column);
  return field.there && detail::holds_value(field, type);
}

bool has_column(const TextLayout& layout, const std::string& record, std::uint32_t column) {
  detail::Columns columns(layout, bytes_of(record).data(), record.size());
  const detail::TextField field = columns(column);
  return field.there && field.bytes != 0;
}

// Returns whether a column holds text in `first` and a number in each of `seconds`.
bool is_named(const TextLayout& layout, const std::string& first,
              const std::vector<std::string>& seconds, std::uint32_t column) {
  return has_column(layout, first, column) && !holds_value(layout, first, column, TextType::f64) &&
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

bool TextHeader::is_empty() const {
  return !format_.header && format_.header_lines == 0 && format_.comment.empty();
}

std::optional<FileHead> TextHeader::parse(const std::filesystem::path& file,
                                          std::span<const std::byte> begin, bool at_end) const {
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  HeadParser head(encoding_.layout(), format_, text, at_end);
  const bool is_whole = head.parse();
  if (!head.stray_text().empty()) throw_error("{}: the header: {}", file, head.stray_text());
  if (!is_whole) return std::nullopt;
  if (head.lacks_lines() && !text.empty())
    throw_error("{}: ends within its {} header lines; correct {}", file, format_.header_lines,
                Setting::header_lines);
  return FileHead{.mark = std::string(head.mark()),
                  .comments = terminated(head.comments(), format_.terminator),
                  .lines = terminated(head.lines(), format_.terminator),
                  .names = terminated(head.names(), format_.terminator),
                  .bytes = head.header_bytes(),
                  .num_lines = head.num_lines()};
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

bool TextHeader::are_same_names(std::string_view a, std::string_view b) const {
  return column_values(encoding_.layout(), a) == column_values(encoding_.layout(), b);
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

std::string TextHeader::doubt_fields(const std::string& first) const {
  if (format_.kind != TextKind::json_lines || first.empty()) return {};
  const TextEncoding encoding(format_);
  const TextLayout layout = encoding.layout();
  const std::vector<std::string> names = layout.finder->names(bytes_of(first));
  for (std::size_t i = 0; i < format_.keys.size(); ++i) {
    const std::uint32_t column = layout.columns[i].column;
    if (column == 0) continue;  // the whole line
    if (names.empty() || layout.finder->find(bytes_of(first), column).there) continue;
    const std::string& name = format_.keys[i].name;
    const auto similar = nearest(name, names);
    return fmt::format("{}: the first record of each file has no field {}; its fields are {}{}",
                       Setting::keys, name, fmt::join(names, ", "),
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
