// Whether records in memory are in order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/key.hpp"

namespace corank {

// The first of the `count` records from `records` on, laid end to end, that sorts before its
// predecessor; `count` if there is none.
std::uint64_t first_descent(const KeyLayout& layout, const std::byte* records, std::uint64_t count);

}  // namespace corank
