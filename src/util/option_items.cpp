#include "util/option_items.hpp"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <numeric>
#include <utility>

namespace corank {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<Item> split_quoted(std::string_view text, char separator) {
  std::vector<Item> items;
  for (std::size_t from = 0;; ++from) {
    std::size_t end = from;
    char quote = 0;
    for (; end < text.size() && (quote != 0 || text[end] != separator); ++end) {
      if (quote != 0 && text[end] == '\\')
        ++end;
      else if (quote != 0 && text[end] == quote)
        quote = 0;
      else if (quote == 0 && is_quote(text[end]) && end == from)
        quote = text[end];
    }
    end = std::min(end, text.size());
    items.push_back({text.substr(from, end - from), from});
    if (end == text.size()) return items;
    from = end;
  }
}

std::optional<std::string> unquoted(std::string_view text) {
  assert(!text.empty() && is_quote(text.front()));
  std::string value;
  std::size_t at = 1;
  for (; at < text.size() && text[at] != text[0]; ++at) {
    if (text[at] != '\\') {
      value += text[at];
      continue;
    }
    if (++at == text.size()) return std::nullopt;
    if (text[at] == 'x') {
      unsigned char byte = 0;
      const char* const digits = text.data() + at + 1;
      if (at + 2 >= text.size() || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
        return std::nullopt;
      value += static_cast<char>(byte);
      at += 2;
    } else if (text[at] == '\\' || text[at] == '\'' || text[at] == '"') {
      value += text[at];
    } else {
      return std::nullopt;
    }
  }
  if (at + 1 != text.size()) return std::nullopt;
  return value;
}

std::string value_of(Setting option, std::string_view whole, const Item& item) {
  if (item.text.empty() || !is_quote(item.text.front())) return std::string(item.text);
  auto value = unquoted(item.text);
  if (!value)
    reject(option, whole, item,
           "what is quoted ends with its quote; a quote in it is written \\\"");
  return *std::move(value);
}

std::string quoted_if_needed(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool is_plain = !name.empty() && name != "line" && !std::ranges::all_of(name, is_digit) &&
                        name.find_first_of(",:'\"\\ ()<=!>") == name.npos;
  if (is_plain) return without_nul(name);
  std::string text = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return without_nul(text) + '"';
}

std::optional<std::string_view> nearest(std::string_view name,
                                        const std::vector<std::string>& names) {
  constexpr std::size_t max_compared_bytes = 100, min_prefix_bytes = 3;
  std::optional<std::string_view> found;
  std::size_t min_distance = 0;
  for (const std::string& other : names) {
    if (name.size() >= min_prefix_bytes && other.starts_with(name)) return other;
    const std::size_t longer = std::max(name.size(), other.size());
    if (longer > max_compared_bytes) continue;
    const std::size_t distance = edit_distance(name, other);
    if (distance * 2 > longer || distance > std::max<std::size_t>(1, longer * 2 / 5) ||
        (found && distance >= min_distance))
      continue;
    found = other;
    min_distance = distance;
  }
  return found;
}

void reject_field(Setting option, std::string_view whole, const Item& name,
                  const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& known : names) list += ' ' + known;
  const auto similar = nearest(name.text, names);
  reject(option, whole, name,
         fmt::format("no such field; the record has:{}{}", list,
                     similar ? fmt::format("; did you mean {}?", *similar) : ""));
}

}  // namespace corank
