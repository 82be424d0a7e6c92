// Hash of a string: XXH64 with seed 0, or 0 for an empty string. It distinguishes strings that are
// not crafted to collide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace corank {

std::uint64_t digest(std::string_view text);

// Returns `text` if it has at most `max_bytes` bytes, and otherwise its start and its digest.
std::string shortened(std::string_view text, std::size_t max_bytes);

}  // namespace corank
