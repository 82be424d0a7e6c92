// Integer arithmetic that does not overflow, and a unit of sizes.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace corank {

inline constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

// Returns n * by / of, which must fit in 64 bits; the product may need more.
constexpr std::uint64_t scaled(std::uint64_t n, std::uint64_t by, std::uint64_t of) {
  assert(of != 0);
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(n) * by / of);
}

// Returns where part `part` of `parts` equal parts of `total` begins.
constexpr std::uint64_t part_of(std::uint64_t total, std::size_t part, std::size_t parts) {
  assert(part <= parts);
  return scaled(total, part, parts);
}

// Returns n / by, rounded up.
constexpr std::uint64_t divide_up(std::uint64_t n, std::uint64_t by) {
  assert(by != 0 && n <= ~std::uint64_t{0} - (by - 1));
  return (n + by - 1) / by;
}

// Returns the smallest multiple of `multiple` that is not below `bytes`.
constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t multiple) {
  assert(multiple != 0 && bytes <= ~std::uint64_t{0} - (multiple - 1));
  return divide_up(bytes, multiple) * multiple;
}

}  // namespace corank
