// Robust use of the standard streams, which may be closed, full, or without a reader.
#pragma once

#include <string>
#include <string_view>

#include "corank/error.hpp"

namespace corank {

// Opens each closed standard stream on a file that fails. Otherwise the next opened file would get
// its number, and the stream's output. Must be called first in main().
void fill_closed_streams();

// Makes messages and progress JSON objects, one a line.
void log_as_json();
bool logs_as_json();

// Prints text to standard error; failures are ignored, because they must not fail a merge.
void say(const std::string& text);

// Prints a warning, with the flags of its settings.
void say_warning(const Message& warning);

// Tells on a terminal that standard input is read, since `command` got no file.
void hint_at_standard_input(const std::string& command);

// Prints a message as one line, even if a file name contains control characters. Returns `code`.
int report(std::string_view message, int code);
// Prints an error, with the flags of its settings. Without `code`, the error's own exit code is
// returned: 1 out of order, 2 anything else.
int report(const Error& error, int code);
int report(const Error& error);

// Throws Error if printed text cannot be written to standard output.
void finish_printing();

}  // namespace corank
