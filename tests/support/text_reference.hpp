// Reference order of variable-length records, decoded character by character. It shares no code
// with the library.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
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
    for (const char c : record)
      if (c == format.delimiter)
        columns.emplace_back();
      else
        columns.back() += c;
    return columns;
  }
  enum { start, plain, quoted, quote_in_quoted, behind_quotes } state = start;
  for (const char c : record) {
    if (state == start && c == '"') {
      state = quoted;
    } else if (state == quoted && c == '"') {
      state = quote_in_quoted;
    } else if (state == quote_in_quoted && c == '"') {
      columns.back() += '"';
      state = quoted;
    } else if (state != quoted && c == format.delimiter.value_or(',')) {
      columns.emplace_back();
      state = start;
    } else {
      const bool goes_on = state == quote_in_quoted || state == behind_quotes;
      columns.back() += goes_on && for_numbers && c != ' ' && c != '\t' && c != '\r' ? 'x' : c;
      if (state != quoted) state = goes_on ? behind_quotes : plain;
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
    const bool negative = type == TextType::i64 && text[0] == '-';
    const std::string digits = text.substr(negative);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
      return std::nullopt;
    const long double value = std::stold(text);
    const long double most = std::ldexp(1.0L, type == TextType::i64 ? 63 : 64);
    if (value >= most || value < -most) return std::nullopt;
    return value;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
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
    if (key.type == TextType::bytes) {
      if (key.nocase)
        for (std::string* text : {&x, &y})
          for (char& c : *text)
            if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
      order = x.compare(y);
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
