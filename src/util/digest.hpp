// Hash of a string: XXH64 with seed 0, or 0 for an empty string. It distinguishes strings that are
// not crafted to collide.
#pragma once

#include <cstdint>
#include <string_view>

namespace corank {

std::uint64_t digest(std::string_view text);

}  // namespace corank
