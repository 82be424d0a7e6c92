// Documents of the program that are made from its commands and options, so that they agree.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace corank {

// Returns a manual page of all commands, in troff with the macros of man(7).
std::string manual_page(const CLI::App& app);

// Returns a script for bash that completes commands, options and file names.
std::string bash_completion(const CLI::App& app);

}  // namespace corank
