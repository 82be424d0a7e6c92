#include "generated_documents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "arguments.hpp"
#include "corank/version.hpp"
#include "help_formatter.hpp"

namespace corank {
namespace {

// Returns the commands that can be run, each after its own subcommands' parent, such as `plan
// merge`.
std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* const command : app.get_subcommands({})) {
    const auto nested = commands_of(*command);
    if (nested.empty()) commands.push_back(command);
    commands.insert(commands.end(), nested.begin(), nested.end());
  }
  return commands;
}

// Returns text that troff shows as it is.
std::string escaped(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (c == '\\')
      shown += "\\e";
    else if (c == '-')
      shown += "\\-";
    else
      shown += c;
  }
  // A line that begins so would be a request.
  return shown.starts_with('.') || shown.starts_with('\'') ? "\\&" + shown : shown;
}

// Returns the names of an option and its value, as help shows them.
std::string heading_of(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames())
    names += fmt::format("{}\\fB\\-{}\\fR", names.empty() ? "" : ", ", escaped(name));
  for (const std::string& name : option.get_lnames())
    names += fmt::format("{}\\fB\\-\\-{}\\fR", names.empty() ? "" : ", ", escaped(name));
  const std::string text = HelpFormatter().make_option_opts(&option);
  return names + escaped(text);
}

std::string options_of(const CLI::App& command) {
  std::string page;
  for (const std::string& group : command.get_groups()) {
    const auto options = command.get_options([&](const CLI::Option* option) {
      return option->get_group() == group && option->nonpositional();
    });
    if (group.empty() || options.empty()) continue;
    page += fmt::format(".SS {}\n", escaped(group));
    for (const CLI::Option* const option : options)
      page += fmt::format(".TP\n{}\n{}\n", heading_of(*option), escaped(option->get_description()));
  }
  return page;
}

// Returns the text after the options. Examples, which are indented, keep their lines.
std::string footer_of(const CLI::App& command) {
  std::string page;
  std::istringstream lines(command.get_footer());
  bool in_example = false;
  const auto set_example = [&](bool is_example) {
    if (in_example != is_example) page += is_example ? ".PP\n.nf\n" : ".fi\n";
    in_example = is_example;
  };
  if (!command.get_footer().empty()) page += ".PP\n";
  for (std::string line; std::getline(lines, line);) {
    set_example(line.starts_with(' '));
    page += escaped(line) + '\n';
  }
  set_example(false);
  return page;
}

// Returns the long options of a command, separated by blanks.
std::string long_options_of(const CLI::App& command) {
  std::string names;
  for (const CLI::Option* const option : command.get_options())
    for (const std::string& name : option->get_lnames())
      names += fmt::format("{}--{}", names.empty() ? "" : " ", name);
  return names;
}

// Returns the names of an app's commands, separated by blanks.
std::string names_of(const std::vector<const CLI::App*>& commands) {
  std::string names;
  for (const CLI::App* const command : commands)
    names += (names.empty() ? "" : " ") + command->get_name();
  return names;
}

}  // namespace

std::string manual_page(const CLI::App& app) {
  std::string page = fmt::format(
      ".TH CORANK 1 \"\" \"corank {}\" \"User Commands\"\n"
      ".SH NAME\ncorank \\- sort and merge files of records that are larger than memory\n"
      ".SH SYNOPSIS\n.B corank\n.I COMMAND\n[\\fIOPTION\\fR]... [\\fIFILE\\fR]...\n"
      ".SH DESCRIPTION\n{}\n"
      "The exit code is 0 if all is done, 1 if a file is out of order, and 2 after other errors.\n",
      version, escaped(app.get_description()));
  page += options_of(app);
  for (const CLI::App* const command : commands_of(app))
    page +=
        fmt::format(".SH corank {}\n{}.\n{}{}", full_name(*command),
                    escaped(command->get_description()), options_of(*command), footer_of(*command));
  return page;
}

std::string bash_completion(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* const command : app.get_subcommands({})) {
    const auto nested = command->get_subcommands({});
    cases += fmt::format("    {}) nested=\"{}\" options=\"{}\" ;;\n", command->get_name(),
                         names_of({nested.begin(), nested.end()}), long_options_of(*command));
    for (const CLI::App* const inner : nested)
      cases += fmt::format("    \"{}\") options=\"{}\" ;;\n", full_name(*inner),
                           long_options_of(*inner));
  }
  const auto commands = app.get_subcommands({});
  return fmt::format(
      R"(# Completes commands, options and file names of corank {}. Made by corank --generate bash.
_corank() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} nested="{} help" options="{}" word path= index
  for ((index = 1; index < COMP_CWORD; ++index)); do
    word=${{COMP_WORDS[index]}}
    [[ " $nested " == *" $word "* ]] || break
    [[ $word == help ]] && continue
    path+=${{path:+ }}$word nested=
    case $path in
{}    esac
  done
  COMPREPLY=()
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  elif [[ $nested ]]; then
    COMPREPLY=($(compgen -W "$nested" -- "$current"))
  fi
}}
complete -o bashdefault -o default -F _corank corank
)",
      version, names_of({commands.begin(), commands.end()}), long_options_of(app), cases);
}

}  // namespace corank
