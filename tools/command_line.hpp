// Where CLI11 would take a slip on the command line for something else.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corank/error.hpp"

namespace corank {

// A negative number would turn into a huge count; PositiveNumber says so in 300 digits.
inline CLI::Range at_least(std::int64_t least) {
  return {least, std::numeric_limits<std::int64_t>::max()};
}

// CLI11's own words for what is no size name types of C++.
inline CLI::Validator size_in_bytes() {
  return {[](std::string& value) -> std::string {
            const std::string given = value;
            std::uint64_t number;  // which CLI11 may lack, and takes for its greatest if it is more
            const bool is_number =
                std::from_chars(given.data(), given.data() + given.size(), number).ec ==
                std::errc();
            try {
              if (is_number) return CLI::AsSizeValue(false)(value);
            } catch (const CLI::ValidationError&) {
            }
            return given + " is no size; give a whole number of bytes, or of K, M or G: 512M";
          },
          "SIZE"};
}

// CLI11's own takes the values' numbers, too, and shows them where a word is none of these.
template <class Value>
CLI::Validator one_of(std::map<std::string, Value> values) {
  return {[values = std::move(values)](std::string& word) -> std::string {
            const auto found = values.find(word);
            if (found == values.end()) {
              std::vector<std::string> words;
              for (const auto& [name, value] : values) words.push_back(name);
              return fmt::format("{} is none of {}", word, fmt::join(words, ", "));
            }
            word = std::to_string(static_cast<int>(found->second));
            return {};
          },
          ""};
}

// For CLI::App::parse(): last first. What follows an empty --name= would be taken for its value.
inline std::vector<std::string> reversed_arguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  bool options = true;
  for (const std::string_view argument : std::span(argv, argv + argc).subspan(argc != 0)) {
    options &= argument != "--";
    const bool empty = options && argument.starts_with("--") && argument.ends_with("=");
    arguments.emplace_back(argument.substr(0, argument.size() - empty));
    if (empty) arguments.emplace_back();
  }
  std::ranges::reverse(arguments);
  return arguments;
}

// What a script has left empty would be taken for what is left out. Bounds may be empty.
inline void require_values(const CLI::App& command) {
  for (const CLI::Option* const option : command.get_options()) {
    const std::string name = option->get_name();
    if (name != "--from" && name != "--to" && std::ranges::count(option->results(), "") != 0)
      throw Error(fmt::format("{}: the value is empty; give one, or leave it out", name));
  }
}

}  // namespace corank
