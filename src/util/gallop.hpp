// Exponential (galloping) search.
// Source: J. L. Bentley and A. C. Yao, An almost optimal algorithm for unbounded searching,
// Information Processing Letters 5 (1976).
#pragma once

#include <algorithm>
#include <cstdint>

namespace corank {

// Returns how many indices i < `count` satisfy `take(i)`, which must hold for a prefix of them.
// Fastest if the result is close to `guess`.
template <class Take>
std::uint64_t gallop(std::uint64_t count, std::uint64_t guess, Take take) {
  std::uint64_t low = 0;
  std::uint64_t high = std::max<std::uint64_t>(guess, 1);
  while (high <= count && take(high - 1)) {
    low = high;
    high *= 2;
  }
  high = std::min(high - 1, count);
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (take(middle))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace corank
