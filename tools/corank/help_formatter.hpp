// Wraps help at 80 columns, and shows of an option its name, its value and whether it is required.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <utility>

namespace corank {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    // CLI11 puts two empty lines between groups.
    for (std::size_t at; (at = help.find("\n\n\n")) != std::string::npos;) help.erase(at, 1);
    return help;
  }

  // Wraps all lines but the examples, which are indented.
  std::string make_footer(const CLI::App* app) const override {
    std::istringstream lines(app->get_footer());
    std::string footer, text;
    const auto end_text = [&] {
      if (!text.empty()) footer += wrap(text, max_columns) + '\n';
      text.clear();
    };
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(' ') || line.ends_with(':')) {
        end_text();
        footer += line + '\n';
      } else {
        text += line + ' ';
      }
    }
    end_text();
    return footer.empty() ? "" : "\n" + footer;  // from version 2.4 on, CLI11 puts no empty line
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = option->get_option_text();
    const std::string value = text.empty() ? option->get_type_name() : text;
    return (value.empty() ? "" : ' ' + value) + (option->get_required() ? " (required)" : "");
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    return wrap(option->get_description(), max_columns - get_column_width());
  }

 private:
  static constexpr std::size_t max_columns = 80;

  static std::string wrap(const std::string& text, std::size_t max_width) {
    std::istringstream words(text);
    std::string wrapped;
    std::size_t width = 0;
    for (std::string word; words >> word;) {
      const std::size_t word_width = characters_in(word);
      const bool fits = width + 1 + word_width <= max_width;
      if (width != 0) wrapped += fits ? ' ' : '\n';
      width = width != 0 && fits ? width + 1 + word_width : word_width;
      wrapped += word;
    }
    return wrapped;
  }

  // Counts the bytes of UTF-8 that begin a character.
  static std::size_t characters_in(const std::string& text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char byte) { return (byte & 0xc0) != 0x80; }));
  }
};

}  // namespace corank
