// What one thread does inside a tile, on the host and on the device alike.
#pragma once

#include <cstdint>

#include "corank/key.hpp"

namespace corank::device::detail {

// How many of the first `rank` outputs come from a: corank::co_rank with the 32-bit indexes that
// suffice, and are cheaper, in shared memory. `a` and `b` map an index to a key.
template <class A, class B, class Less>
CORANK_HOST_DEVICE std::uint32_t tile_co_rank(std::uint32_t rank, A a, std::uint32_t a_count, B b,
                                              std::uint32_t b_count, Less less) {
  std::uint32_t low = rank > b_count ? rank - b_count : 0;
  std::uint32_t high = rank < a_count ? rank : a_count;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    const bool too_high = less(b(rank - 1 - middle), a(middle));
    high = too_high ? middle : high;
    low = too_high ? low : middle + 1;
  }
  return low;
}

// The place after this one: in memory that does not wrap.
struct Straight {
  CORANK_HOST_DEVICE std::uint32_t operator()(std::uint32_t slot) const { return slot + 1; }
};
// In one of several rings that lie side by side, each of mask + 1 places.
struct Wrapping {
  std::uint32_t mask;
  CORANK_HOST_DEVICE std::uint32_t operator()(std::uint32_t slot) const {
    return ((slot + 1) & mask) | (slot & ~mask);
  }
};

// Merges `items` records of a and b, which stand in `keys` from at_a and at_b on, into registers.
// slots[n] is the place that merged[n] came from. `bounded` unless both have `items` records left;
// what follows the last record has no meaning, and is never compared. Reads up to `items` places
// beyond the ends of a and b. Returns where a goes on.
//
// All indexes of `merged` and `slots` are known at compile time, so both live in registers; only
// `keys` is indexed by data. Source: Baxter, "Modern GPU" (2013), the serial merge.
template <bool bounded, int items, class Key, class Next, class Less>
CORANK_HOST_DEVICE std::uint32_t serial_merge(const Key* keys, Next next, std::uint32_t at_a,
                                              std::uint32_t a_left, std::uint32_t at_b,
                                              std::uint32_t b_left, Key (&merged)[items],
                                              std::uint32_t (&slots)[items], Less less) {
  Key x = keys[at_a];
  Key y = keys[at_b];
  // b_left more than was taken from a: with n outputs, b is exhausted when this is n or less.
  std::uint32_t taken = b_left;
  const std::uint32_t all = a_left + b_left;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int n = 0; n < items; ++n) {
    const bool take_b = bounded
                            ? taken > static_cast<std::uint32_t>(n) && (taken >= all || less(y, x))
                            : less(y, x);
    merged[n] = take_b ? y : x;
    slots[n] = take_b ? at_b : at_a;
    const std::uint32_t slot = next(slots[n]);
    if (take_b)
      at_b = slot;
    else
      at_a = slot;
    if (bounded && !take_b) ++taken;
    if (n + 1 < items) {
      // One load for either side: two predicated ones would take twice the issue slots.
      const Key key = keys[slot];
      if (take_b)
        y = key;
      else
        x = key;
    }
  }
  return at_a;
}

}  // namespace corank::device::detail
