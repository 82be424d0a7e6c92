// Robust use of the standard streams, which may be closed, full, or without a reader.
#pragma once

#include <string>

namespace corank {

// Opens each closed standard stream on a file that fails. Otherwise the next opened file would get
// its number, and the stream's output. Must be called first in main().
void fill_closed_streams();

// Prints text to standard error; failures are ignored, because they must not fail a merge.
void say(const std::string& text);

// Throws Error if printed text cannot be written to standard output.
void finish_printing();

}  // namespace corank
