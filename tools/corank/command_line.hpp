// Validators and checks for the mistakes that CLI11 accepts or reports unclearly.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstddef>
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

// Accepts whole decimal numbers. CLI11 reads 010 as 8, clamps numbers that are too large, and
// prints ranges in up to 300 digits.
inline CLI::Validator whole_number(
    std::uint64_t least, std::uint64_t greatest = std::numeric_limits<std::uint64_t>::max()) {
  return {[least, greatest](std::string& value) -> std::string {
            std::uint64_t number;
            const char* const end = value.data() + value.size();
            const auto [stop, error] = std::from_chars(value.data(), end, number);
            if (error != std::errc() || stop != end || number < least || number > greatest)
              return fmt::format("{} is no whole number from {}{}", value, least,
                                 greatest == std::numeric_limits<std::uint64_t>::max()
                                     ? " on"
                                     : fmt::format(" to {}", greatest));
            value = std::to_string(number);
            return {};
          },
          ""};
}

// Accepts sizes other than 0. The errors of CLI11's own validator name C++ types.
inline CLI::Validator size_in_bytes() {
  return {[](std::string& value) -> std::string {
            const std::string given = value;
            std::uint64_t number;
            const char* const end = given.data() + given.size();
            const auto [unit, error] = std::from_chars(given.data(), end, number);
            if (error == std::errc() && number != 0) {
              value = std::to_string(number) + std::string(unit, end);
              try {
                return CLI::AsSizeValue(false)(value);
              } catch (const CLI::ValidationError&) {
              }
            }
            return given + " is no size; give a whole number of bytes, or of K, M or G: 512M";
          },
          "SIZE"};
}

// Accepts the names in `values`. CLI11's own validator also accepts and prints their numbers.
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

// Lists the options that are added while this object lives under a heading of the command's help.
class OptionGroup {
 public:
  OptionGroup(CLI::App& command, const std::string& heading)
      : defaults_(*command.option_defaults()), before_(defaults_.get_group()) {
    defaults_.group(heading);
  }
  OptionGroup(const OptionGroup&) = delete;
  OptionGroup& operator=(const OptionGroup&) = delete;
  ~OptionGroup() { defaults_.group(before_); }

 private:
  CLI::OptionDefaults& defaults_;
  std::string before_;
};

// Returns whether `argument` ends with an option whose value is the next argument.
inline bool expects_value(const CLI::App& command, std::string_view argument) {
  const auto takes_value = [&](const std::string& name) {
    const CLI::Option* const option = command.get_option_no_throw(name);
    return option && option->get_items_expected_min() > 0;
  };
  if (argument.starts_with("--"))
    return argument.find('=') == std::string_view::npos && takes_value(std::string(argument));
  if (!argument.starts_with('-')) return false;
  // The first letter that takes a value takes the rest of the argument, if there is any.
  for (std::size_t i = 1; i < argument.size(); ++i)
    if (takes_value({'-', argument[i]})) return i + 1 == argument.size();
  return false;
}

// Returns the arguments in reverse order, as CLI::App::parse() takes them. Inserts an empty
// argument after an empty `--name=`, because CLI11 would read the next argument as its value.
inline std::vector<std::string> reversed_arguments(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments;
  const CLI::App* command = &app;
  bool is_value = false, only_names_follow = false;
  for (const std::string_view argument : std::span(argv, argv + argc).subspan(argc != 0)) {
    arguments.emplace_back(argument);
    if (is_value || only_names_follow) {
      is_value = false;
      continue;
    }
    only_names_follow = argument == "--";
    // Only the first `=` separates: a value may contain and end with others.
    const bool is_empty = argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    if (is_empty) {
      arguments.back().pop_back();
      arguments.emplace_back();
    }
    is_value = expects_value(*command, argument);
    if (command == &app)
      for (const CLI::App* const chosen : app.get_subcommands({}))
        if (chosen->check_name(std::string(argument))) command = chosen;
  }
  std::ranges::reverse(arguments);
  return arguments;
}

// Rejects empty values, which CLI11 would treat as missing; a script may produce them by mistake.
// Bounds may be empty.
inline void require_values(const CLI::App& command) {
  for (const CLI::Option* const option : command.get_options()) {
    const std::string name = option->get_name();
    if (name != "--from" && name != "--to" && std::ranges::count(option->results(), "") != 0)
      throw Error(fmt::format("{}: the value is empty; give one, or leave it out", name));
  }
}

}  // namespace corank
