// Splits an option's value into items, separated by commas by default. Errors name the item and its
// position.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "corank/error.hpp"

namespace corank {

// An item and its position in the whole value, for error messages.
struct Item {
  std::string_view text;
  std::size_t position;

  Item part(std::size_t from, std::size_t count = std::string_view::npos) const {
    return {text.substr(from, count), position + from};
  }
};

inline std::vector<Item> split(std::string_view text, char separator = ',') {
  std::vector<Item> items;
  std::size_t from = 0;
  for (;;) {
    const std::size_t end = text.find(separator, from);
    items.push_back({text.substr(from, end - from), from});
    if (end == std::string_view::npos) return items;
    from = end + 1;
  }
}

[[noreturn]] inline void reject(std::string_view option, std::string_view whole, const Item& item,
                                std::string_view why) {
  throw Error(fmt::format("{} \"{}\": at character {}, \"{}\": {}", option, whole,
                          item.position + 1, item.text, why));
}

}  // namespace corank
