#include "corank/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <utility>

#include "util/option_items.hpp"

namespace corank {
namespace {

// Parses a column number; returns false if `text` is not one.
bool parse_column(std::string_view text, std::uint32_t& column) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), column);
  return error == std::errc{} && end == text.data() + text.size() && column != 0;
}

// Names of the types, in the order of TextType.
constexpr std::array<std::string_view, 8> type_names{"bytes", "u64",     "i64",     "f64",
                                                     "time",  "natural", "decimal", "human"};

}  // namespace

std::optional<TextType> text_type_named(std::string_view name) {
  const auto* const found = std::ranges::find(type_names, name);
  if (found == type_names.end()) return std::nullopt;
  return static_cast<TextType>(found - type_names.begin());
}

std::string_view type_name(TextType type) {
  return type_names[static_cast<std::size_t>(type)];
}

std::vector<TextKey> parse_text_keys(std::string_view text, Setting option) {
  std::vector<TextKey> keys;
  if (text.empty()) return keys;
  const auto fail = [&](const Item& item, std::string_view why) {
    reject(option, text, item, why);
  };
  for (const Item& item : split_quoted(text)) {
    TextKey key;
    std::vector<Item> words = split_quoted(item.text, ':');
    for (Item& word : words) word.position += item.position;
    const Item& column = words.front();
    const bool quoted = !column.text.empty() && is_quote(column.text[0]);
    const bool digits =
        std::ranges::all_of(column.text, [](char c) { return c >= '0' && c <= '9'; });
    if (column.text.empty() || (digits && !parse_column(column.text, key.column)))
      fail(column, "a column is a number from 1, a name in the header, or \"line\"");
    if (quoted) {
      const auto name = unquoted(column.text);
      if (!name) fail(column, "a name in quotes ends with its quote");
      if (name->empty()) fail(column, "a name is missing");
      key.name = *name;
    } else if (!digits && column.text != "line") {
      key.name = column.text;
    }
    bool has_type = false, has_direction = false;
    for (const Item& word : std::span(words).subspan(1)) {
      const auto type = text_type_named(word.text);
      const bool direction = word.text == "asc" || word.text == "desc";
      if (!type && !direction && word.text != "nocase")
        fail(word, fmt::format("no such type or order; allowed: {} asc desc nocase",
                               fmt::join(type_names, " ")));
      if (word.text != "nocase" && std::exchange(direction ? has_direction : has_type, true))
        fail(word, "a key has one type and one direction; leave one out");
      if (type) key.type = *type;
      key.descending |= word.text == "desc";
      key.nocase |= word.text == "nocase";
    }
    if (key.nocase && key.type != TextType::bytes && key.type != TextType::natural)
      fail(item, "its values have no upper and lower case; leave out nocase");
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace corank
