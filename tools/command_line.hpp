// Where CLI11 would take a slip on the command line for something else.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corank/error.hpp"

namespace corank {

// A negative number would turn into a huge count; PositiveNumber says so in 300 digits.
inline CLI::Range at_least(std::int64_t least) {
  return {least, std::numeric_limits<std::int64_t>::max()};
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
