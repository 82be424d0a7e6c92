// The line that each run of text begins with, and that the output keeps once.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "corank/text.hpp"
#include "run/run.hpp"

namespace corank {

// Leaves the runs, which count bytes, without their headers, and returns it with its terminator. An
// empty file needs none. Throws Error where a run has another header than those before it, and
// Interrupted where `stop` asks for it while a pipe is empty.
std::string take_header(std::vector<Run>& runs, const TextFormat& format,
                        std::stop_token stop = {});

}  // namespace corank
