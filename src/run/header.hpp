// The header: a first line that each text run has, and that the output has once.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "corank/text.hpp"
#include "run/run.hpp"

namespace corank {

// Removes the header from each run and returns it with its terminator. Runs must count bytes; an
// empty run needs no header. Throws Error if a run's header differs from those before it, and
// Interrupted if `stop` is requested while a pipe is empty.
std::string take_header(std::vector<Run>& runs, const TextFormat& format,
                        std::stop_token stop = {});

}  // namespace corank
