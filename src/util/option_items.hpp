// Splits an option's value into items, unquotes them, and looks up the names in them. Errors name
// the item and its position.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corank/error.hpp"
#include "util/messages.hpp"

namespace corank {

// An item and its position in the whole value, for error messages.
struct Item {
  std::string_view text;
  std::size_t position;

  Item part(std::size_t from, std::size_t count = std::string_view::npos) const {
    return {text.substr(from, count), position + from};
  }
};

inline bool is_quote(char c) {
  return c == '\'' || c == '"';
}

// Splits `text` at separators, except in items that begin with a quote.
std::vector<Item> split_quoted(std::string_view text, char separator = ',');

// Returns the text within quotes, with its escapes decoded; nothing if the closing quote is
// missing.
std::optional<std::string> unquoted(std::string_view text);

// Returns a column's name as options take it: in quotes if it would otherwise mean something else.
std::string quoted_if_needed(std::string_view name);

// Returns a name that begins with `name`, else the one that is closest to it by edit distance;
// nothing if none is similar.
std::optional<std::string_view> nearest(std::string_view name,
                                        const std::vector<std::string>& names);

[[noreturn]] inline void reject(Setting option, std::string_view whole, const Item& item,
                                std::string_view why) {
  throw_error(ErrorCode::options, "{} \"{}\": at character {}, \"{}\": {}", option,
              without_nul(whole), item.position + 1, without_nul(item.text), why);
}

// Returns the value that `item`, a part of the option's `whole` text, stands for: without quotes.
std::string value_of(Setting option, std::string_view whole, const Item& item);

// Throws the Error for `name`, a part of the option's `whole` text, which is not one of the fields
// `names`.
[[noreturn]] void reject_field(Setting option, std::string_view whole, const Item& name,
                               const std::vector<std::string>& names);

// Returns the index of the field that `name` names; throws Error if there is none.
template <class Fields>
std::uint32_t find_field(Setting option, std::string_view whole, const Item& name,
                         const Fields& fields) {
  std::vector<std::string> names;
  for (const auto& field : fields) {
    if (field.name == name.text) return static_cast<std::uint32_t>(names.size());
    names.push_back(field.name);
  }
  reject_field(option, whole, name, names);
}

}  // namespace corank
