// Validators for the mistakes that CLI11 accepts or reports unclearly, and groups of options.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
              return fmt::format("{} is not a whole number from {}{}", value, least,
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
            return given + " is not a size; give a whole number of bytes, or of K, M or G: 512M";
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

}  // namespace corank
