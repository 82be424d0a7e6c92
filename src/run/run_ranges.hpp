// Narrows runs to the requested range of keys, by binary search in their files.
#pragma once

#include <span>

#include "corank/key.hpp"
#include "corank/options.hpp"
#include "run/run.hpp"

namespace corank {

// Narrows runs of fixed-size records to [Query::from, Query::to).
void keep_range(std::span<Run> runs, const Options& options);
// Narrows runs of lines to [Query::text_from, Query::text_to).
void keep_range(std::span<Run> runs, const TextLayout& text, const Query& query);

}  // namespace corank
