// Reference order of variable-length records, decoded character by character. It shares no code
// with the library.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <regex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "corank/text.hpp"

namespace corank::test {

using Strings = std::vector<std::string>;

// Returns the columns of a record without its terminator. With `for_numbers`, characters after a
// closing quote, except blanks, make a column an invalid number.
inline Strings columns_of(const std::string& record, const TextFormat& format,
                          bool for_numbers = false) {
  Strings columns(1);
  if (format.kind == TextKind::lines) {
    if (!format.delimiter) return {record};
    std::size_t begin = 0;
    for (std::size_t end; (end = record.find(*format.delimiter, begin)) != record.npos;
         begin = end + 1) {
      columns.back() = record.substr(begin, end - begin);
      columns.emplace_back();
    }
    columns.back() = record.substr(begin);
    return columns;
  }
  enum { start, plain, quoted, quote_in_quoted, behind_quotes } state = start;
  const char delimiter = format.delimiter.value_or(',');
  for (std::size_t at = 0; at < record.size(); ++at) {
    const char c = record[at];
    if ((state == quoted && c != '"') || (state == plain && c != delimiter)) {
      const std::size_t end =
          std::min(record.find(state == quoted ? '"' : delimiter, at), record.size());
      columns.back().append(record, at, end - at);
      at = end - 1;
    } else if (state == start && c == '"') {
      state = quoted;
    } else if (state == quoted && c == '"') {
      state = quote_in_quoted;
    } else if (state == quote_in_quoted && c == '"') {
      columns.back() += '"';
      state = quoted;
    } else if (state != quoted && c == delimiter) {
      columns.emplace_back();
      state = start;
    } else {
      const bool goes_on = state == quote_in_quoted || state == behind_quotes;
      columns.back() += goes_on && for_numbers && c != ' ' && c != '\t' && c != '\r' ? 'x' : c;
      state = goes_on ? behind_quotes : plain;
    }
  }
  if (state != quoted && record.ends_with('\r')) columns.back().pop_back();
  return columns;
}

inline std::optional<long double> number_of(std::string text, TextType type) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.erase(0, 1);
  while (!text.empty() && blank(text.back())) text.pop_back();
  if (text.empty()) return std::nullopt;
  if (type != TextType::f64) {
    const bool has_sign = text[0] == '+' || (type == TextType::i64 && text[0] == '-');
    const std::string digits = text.substr(has_sign);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
      return std::nullopt;
    const long double value = std::strtold(text.c_str(), nullptr);
    const long double most = std::ldexp(1.0L, type == TextType::i64 ? 63 : 64);
    if (value >= most || value < -most) return std::nullopt;
    return value;
  }
  if (text[0] == '+' && text.substr(0, 2) != "+-") text.erase(0, 1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_tiny =
      error == std::errc::result_out_of_range && std::abs(std::strtold(text.c_str(), nullptr)) < 1;
  if ((error != std::errc{} && !is_tiny) || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Value of type time, decimal or human. Values of one sign compare by rank, length of `whole`,
// `whole` and `fraction`.
struct OrderedValue {
  int sign = 1;
  std::int64_t rank = 0;
  std::string whole, fraction;

  auto magnitude() const { return std::tuple(rank, whole.size(), whole, fraction); }
};

// Parses [+-]digits[.digits], with a suffix if `is_human`.
inline std::optional<OrderedValue> decimal_of(const std::string& text, bool is_human) {
  static const std::regex pattern("([+-]?)0*([0-9]*)\\.?([0-9]*?)0*([kKMGTPEZYRQ]?)i?B?");
  std::smatch found;
  if (!std::regex_match(text, found, pattern) ||
      text.find_first_of("0123456789") == std::string::npos)
    return std::nullopt;
  const std::string suffix = found[4].str() == "k" ? "K" : found[4].str();
  if (!is_human && text.find_first_of("kKMGTPEZYRQiB") != std::string::npos) return std::nullopt;
  OrderedValue value{1, 0, found[2], found[3]};
  value.rank =
      suffix.empty() ? 0 : 1 + static_cast<std::int64_t>(std::string("KMGTPEZYRQ").find(suffix));
  if (value.whole.empty() && value.fraction.empty()) return OrderedValue{0, 0, {}, {}};
  if (found[1] == "-") value.sign = -1;
  return value;
}

// Parses an ISO 8601 date with an optional time, fraction and offset.
inline std::optional<OrderedValue> time_of(const std::string& text) {
  static const std::regex pattern(
      "(\\d{4})-(\\d\\d)-(\\d\\d)(?:[T ](\\d\\d):(\\d\\d):(\\d\\d)(?:\\.(\\d*?)0*)?"
      "(?:Z|([+-])(\\d\\d):?(\\d\\d))?)?");
  std::smatch found;
  if (!std::regex_match(text, found, pattern)) return std::nullopt;
  const auto number = [&](std::size_t i) { return found[i].matched ? std::stoi(found[i]) : 0; };
  const std::chrono::year_month_day date{std::chrono::year(number(1)),
                                         std::chrono::month(static_cast<unsigned>(number(2))),
                                         std::chrono::day(static_cast<unsigned>(number(3)))};
  if (!date.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  const int offset = (number(9) * 60 + number(10)) * 60;
  return OrderedValue{1,
                      days * 86'400 + (number(4) * 60 + number(5)) * 60 + number(6) -
                          (found[8] == "-" ? -offset : offset),
                      {},
                      found[7]};
}

// Compares runs of digits as numbers, then their leading zeros, run by run.
inline int compare_natural(const std::string& a, const std::string& b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  int tie = 0;
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      const auto x = static_cast<unsigned char>(a[i++]), y = static_cast<unsigned char>(b[j++]);
      if (x != y) return x < y ? -1 : 1;
      continue;
    }
    std::string x, y;
    while (i < a.size() && is_digit(a[i])) x += a[i++];
    while (j < b.size() && is_digit(b[j])) y += b[j++];
    const std::size_t x_bytes = x.size(), y_bytes = y.size();
    x.erase(0, x.find_first_not_of('0'));
    y.erase(0, y.find_first_not_of('0'));
    if (x.size() != y.size()) return x.size() < y.size() ? -1 : 1;
    if (x != y) return x < y ? -1 : 1;
    if (tie == 0 && x_bytes != y_bytes) tie = x_bytes < y_bytes ? -1 : 1;
  }
  if (i < a.size() || j < b.size()) return i < a.size() ? 1 : -1;
  return tie;
}

inline std::optional<OrderedValue> ordered_value(std::string text, TextType type) {
  while (text.ends_with(' ') || text.ends_with('\r')) text.pop_back();
  while (text.starts_with(' ')) text.erase(0, 1);
  return type == TextType::time ? time_of(text) : decimal_of(text, type == TextType::human);
}

// Returns a negative number, 0 or a positive one; the records have no terminators.
inline int compare_records(const std::string& a, const std::string& b, const TextFormat& format) {
  for (const TextKey& key : format.keys) {
    const auto value = [&](const std::string& record) -> std::optional<std::string> {
      if (key.column == 0) return record;
      const Strings columns = columns_of(record, format, key.type != TextType::bytes);
      if (columns.size() < key.column) return std::nullopt;
      return columns[key.column - 1];
    };
    std::string x = value(a).value_or(""), y = value(b).value_or("");
    int order = 0;
    if (key.nocase)
      for (std::string* text : {&x, &y})
        for (char& c : *text)
          if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (key.type == TextType::bytes) {
      order = x.compare(y);
    } else if (key.type == TextType::natural) {
      order = compare_natural(x, y);
    } else if (key.type > TextType::f64) {
      const auto p = ordered_value(x, key.type), q = ordered_value(y, key.type);
      if (!p || !q) {
        if (!p != !q) return p ? -1 : 1;
        continue;
      }
      const auto less = [](const OrderedValue& v, const OrderedValue& w) {
        if (v.sign != w.sign) return v.sign < w.sign;
        return v.sign < 0 ? w.magnitude() < v.magnitude() : v.magnitude() < w.magnitude();
      };
      order = less(*q, *p) - less(*p, *q);
    } else {
      const auto p = number_of(x, key.type), q = number_of(y, key.type);
      if (!p || !q) {
        if (!p != !q) return p ? -1 : 1;
        continue;
      }
      if (std::isnan(*p) || std::isnan(*q))
        order = std::isnan(*p) - std::isnan(*q);
      else
        order = (*p > *q) - (*p < *q);
    }
    if (order != 0) return (order < 0) != key.descending ? -1 : 1;
  }
  return 0;
}

// Returns whether text other than blanks follows a closing quote in a CSV column.
inline bool has_stray_text(const std::string& text, const TextFormat& format) {
  enum { start, plain, quoted, closed, blanks } state = start;
  for (const char c : text) {
    const bool ends = c == format.delimiter.value_or(',') || c == format.terminator;
    const bool opens = c == '"' && (state == start || state == closed);
    if (state == quoted || opens)
      state = opens || c != '"' ? quoted : closed;
    else if (ends)
      state = start;
    else if (state == start)
      state = plain;
    else if (state != plain && c != ' ' && c != '\t' && c != '\r')
      return true;
    else if (state == closed)
      state = blanks;
  }
  return false;
}

// Returns the records of `text`, each with its terminator, and the incomplete rest.
inline std::pair<Strings, std::string> records_of(const std::string& text,
                                                  const TextFormat& format) {
  Strings records;
  std::string record;
  if (format.kind == TextKind::pairs) {
    for (std::size_t at = 0;;) {
      std::uint32_t lengths[2];
      if (text.size() - at < 8) return {records, text.substr(at)};
      std::memcpy(lengths, text.data() + at, 8);
      const std::size_t bytes = std::size_t{8} + lengths[0] + lengths[1];
      if (text.size() - at < bytes) return {records, text.substr(at)};
      records.push_back(text.substr(at, bytes));
      at += bytes;
    }
  }
  bool field_start = true, inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    record += c;
    if (inside) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"')
        record += text[++i];
      else if (c == '"')
        inside = false;
    } else if (c == format.terminator) {
      records.push_back(std::exchange(record, ""));
      field_start = true;
    } else {
      inside = format.kind == TextKind::csv && field_start && c == '"';
      field_start = c == format.delimiter.value_or(',');
    }
  }
  return {records, record};
}

}  // namespace corank::test
