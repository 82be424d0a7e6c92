#include "arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "corank/error.hpp"
#include "standard_streams.hpp"
#include "util/option_items.hpp"

namespace corank {
namespace {

// Returns "; did you mean X?" if a name is similar, and nothing otherwise. Names lack `prefix`.
std::string suggestion(std::string_view name, const std::vector<std::string>& names,
                       std::string_view prefix = {}) {
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  const auto similar = nearest(name, names);
  return similar ? fmt::format("; did you mean {}{}?", prefix, *similar) : "";
}

// Returns what to do instead of an option that GNU sort or another command has; nothing if there is
// no such option.
std::string_view advice(std::string_view name) {
  struct Habit {
    std::string_view names, advice;
  };
  constexpr std::string_view typed = "say a type in --by, such as 2:i64 or line:f64";
  constexpr std::array<Habit, 15> habits{{
      {" -k --key ", "say --by COLUMN"},
      {" -n -g --numeric-sort --general-numeric-sort ", typed},
      {" -V --version-sort ", "say --by line:natural"},
      {" --human-numeric-sort ", "say --by line:human, or COLUMN:human"},
      {" --ignore-case ", "say --by line:nocase, or COLUMN:nocase"},
      {" --reverse ", "say --by line:desc, or COLUMN:desc"},
      {" -c -C ", "say corank check"},
      {" -u --unique ", "say --on-equal first"},
      {" -s --stable ", "leave it out: records with equal keys keep their order"},
      {" -S --buffer-size ", "say --memory SIZE"},
      {" --parallel ", "say --threads N"},
      {" --field-separator --sep ", "say --delimiter C"},
      {" --temporary-directory ", "say --temp DIR"},
      {" --format ", "say --lines, --csv, --jsonl, --kv or --record SCHEMA"},
      {" --plan --partition ", "say corank merge --plan, which writes partitions of every plan"},
  }};
  const std::string word = fmt::format(" {} ", name);
  for (const Habit& habit : habits)
    if (habit.names.find(word) != std::string_view::npos) return habit.advice;
  return {};
}

const CLI::App& command_named(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* const command : app.get_subcommands({})) {
    if (command->check_name(name)) return *command;
    names.push_back(command->get_name());
  }
  throw Error(ErrorCode::options,
              fmt::format("there is no command \"{}\"{} (corank --help lists all)", name,
                          suggestion(name, names)));
}

[[noreturn]] void throw_no_option(const CLI::App& command, const std::string& name) {
  if (!command.get_parent())
    throw Error(
        ErrorCode::options,
        fmt::format("there is no option {} before the command; name the command first, such "
                    "as corank merge {}; see corank --help",
                    name, name));
  std::vector<std::string> names;
  for (const CLI::Option* const option : command.get_options())
    for (const std::string& known : option->get_lnames()) names.push_back(known);
  const std::string_view instead = command.get_option_no_throw("--by") ? advice(name) : "";
  throw Error(
      ErrorCode::options,
      fmt::format("corank {0} has no option {1}{2} (corank {0} --help lists all)",
                  full_name(command), name,
                  instead.empty() ? suggestion(name, names, "--") : fmt::format("; {}", instead)));
}

const CLI::Option& option_named(const CLI::App& command, const std::string& name) {
  const CLI::Option* const option = command.get_option_no_throw(name);
  if (!option) throw_no_option(command, name);
  return *option;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_min() > 0;
}

// Returns whether `argument` ends with an option whose value is the next argument. Throws Error for
// an option that the command lacks.
bool expects_value(const CLI::App& command, std::string_view argument) {
  if (command.get_allow_extras()) return false;
  if (argument.starts_with("--")) {
    const std::string_view name = argument.substr(0, argument.find('='));
    return takes_value(option_named(command, std::string(name))) && name == argument;
  }
  if (!argument.starts_with('-')) return false;
  // The first letter that takes a value takes the rest of the argument, if there is any.
  for (std::size_t i = 1; i < argument.size(); ++i)
    if (takes_value(option_named(command, {'-', argument[i]}))) return i + 1 == argument.size();
  return false;
}

// Rewrites `help` and `help COMMAND`.
std::vector<std::string> with_help_option(const CLI::App& app, std::vector<std::string> arguments) {
  if (arguments.empty() || arguments[0] != "help") return arguments;
  if (arguments.size() == 1) return {"--help"};
  std::vector<std::string> rewritten{command_named(app, arguments[1]).get_name()};
  if (arguments.size() > 2 && !command_named(app, arguments[1]).get_subcommands({}).empty())
    rewritten.push_back(arguments[2]);
  rewritten.emplace_back("--help");
  return rewritten;
}

// Returns how to say several values of an option at once; nothing if it has one.
std::string_view several_values_of(const std::string& option) {
  if (option == "--by" || option == "--select") return ", with commas between the values";
  if (option == "--where" || option == "--having") return ", with \"and\" between the conditions";
  return "";
}

}  // namespace

std::string full_name(const CLI::App& command) {
  const CLI::App& parent = *command.get_parent();
  return parent.get_parent() ? full_name(parent) + ' ' + command.get_name() : command.get_name();
}

std::vector<std::string> reversed_arguments(const CLI::App& app, int argc, char** argv) {
  const auto given = std::span(argv, static_cast<std::size_t>(argc)).subspan(argc != 0);
  std::vector<std::string> arguments;
  const CLI::App* command = &app;
  bool is_value = false, only_names_follow = false;
  for (const std::string& argument : with_help_option(app, {given.begin(), given.end()})) {
    // CLI11 takes names after "--" for options if other names precede.
    if (only_names_follow) {
      arguments.push_back(argument.starts_with('-') && argument != "-" ? "./" + argument
                                                                       : argument);
      continue;
    }
    if (!is_value && argument == "--") {
      only_names_follow = true;
      continue;
    }
    // Taken out here, so that every command has it, and errors in later arguments obey it.
    if (!is_value && argument == "--log-json") {
      log_as_json();
      continue;
    }
    arguments.push_back(argument);
    if (is_value) {
      is_value = false;
      continue;
    }
    is_value = expects_value(*command, argument);
    // Only the first `=` separates: a value may contain and end with others. CLI11 would read the
    // argument after an empty `--name=` as its value.
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      arguments.back().pop_back();
      arguments.emplace_back();
    }
    // `corank plan` has commands of its own.
    if (!command->get_subcommands({}).empty() && !argument.starts_with('-'))
      command = &command_named(*command, argument);
  }
  std::ranges::reverse(arguments);
  return arguments;
}

std::vector<std::string> without_force(const CLI::App& command,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> kept;
  bool is_value = false;
  for (std::string argument : arguments) {
    const bool is_option = !is_value && argument.size() > 1 && argument.starts_with('-');
    is_value = is_option && expects_value(command, argument);
    if (is_option && argument.substr(0, argument.find('=')) == "--force") continue;
    if (is_option && argument[1] != '-') {
      // The first letter that takes a value takes the rest of the argument.
      std::size_t i = 1;
      while (i < argument.size() && !takes_value(option_named(command, {'-', argument[i]}))) {
        if (argument[i] == 'f')
          argument.erase(i, 1);
        else
          ++i;
      }
      if (argument == "-") continue;
    }
    kept.push_back(argument);
  }
  return kept;
}

std::string problem(const CLI::App& command, const CLI::ParseError& error) {
  if (!dynamic_cast<const CLI::ArgumentMismatch*>(&error)) return error.what();
  for (const CLI::Option* const option : command.get_options()) {
    const auto num_values = static_cast<int>(option->results().size());
    if (takes_value(*option) && option->get_items_expected_max() < num_values)
      return fmt::format("{} is given {} times; give it once{}", option->get_name(), num_values,
                         several_values_of(option->get_name()));
    if (std::string_view(error.what()).starts_with(option->get_name() + ":"))
      return fmt::format("{} lacks its value", option->get_name());
  }
  return error.what();
}

void require_values(const CLI::App& command) {
  for (const CLI::Option* const option : command.get_options()) {
    const std::string name = option->get_name();
    if (name != "--from" && name != "--to" && std::ranges::count(option->results(), "") != 0)
      throw Error(ErrorCode::options,
                  fmt::format("{}: the value is empty; give one, or leave it out", name));
  }
}

}  // namespace corank
