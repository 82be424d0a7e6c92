// Narrows runs to the range of keys that is wanted of them, by probing their files.
#pragma once

#include <span>

#include "corank/key.hpp"
#include "corank/options.hpp"
#include "run/run.hpp"

namespace corank {

// By Shaping::from and Shaping::to.
void keep_range(std::span<Run> runs, const Options& options);
// By Shaping::text_from and Shaping::text_to, of lines.
void keep_range(std::span<Run> runs, const TextLayout& text, const Query& query);

}  // namespace corank
