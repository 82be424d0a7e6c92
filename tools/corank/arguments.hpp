// Arguments of the program, checked and rewritten for CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace corank {

// Returns the names of a command after the program's, such as `plan merge`.
std::string full_name(const CLI::App& command);

// Returns the arguments in reverse order, as CLI::App::parse() takes them; `help COMMAND` becomes
// `COMMAND --help`. Throws Error for an unknown command or option, before CLI11 misses another.
std::vector<std::string> reversed_arguments(const CLI::App& app, int argc, char** argv);

// Returns the arguments without the command's flag --force, which does not change what it makes.
// They must have been parsed.
std::vector<std::string> without_force(const CLI::App& command,
                                       const std::vector<std::string>& arguments);

// Returns what is wrong with the command's arguments, of which CLI11 says `error`.
std::string problem(const CLI::App& command, const CLI::ParseError& error);

// Rejects empty values, which CLI11 would treat as missing; a script may produce them by mistake.
// Bounds may be empty.
void require_values(const CLI::App& command);

}  // namespace corank
