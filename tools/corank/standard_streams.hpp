// Standard streams as a process may get them: closed, full, or with nobody at the other end.
#pragma once

#include <string>

namespace corank {

// Fills those that are closed with what can't be used either: the next file that is opened would
// get the number, and what is meant for the stream. To be called first of all.
void fill_closed_streams();

// To standard error, as it is. What can't be said is no failure of a merge.
void say(const std::string& text);

// Throws Error where what was printed cannot be written to standard output.
void finish_printing();

}  // namespace corank
