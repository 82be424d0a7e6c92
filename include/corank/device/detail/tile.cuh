// What one thread does inside a tile, on the host and on the device alike.
#pragma once

#include <bit>
#include <cstdint>

#include "corank/key.hpp"

namespace corank::device::detail {

CORANK_HOST_DEVICE inline std::uint32_t power_of_two_within(std::uint32_t n) {
#ifdef __CUDA_ARCH__
  return n == 0 ? 0 : 0x80000000u >> __clz(static_cast<int>(n));
#else
  return std::bit_floor(n);
#endif
}

// How many of the first `rank` outputs come from a. `a` and `b` map an index to a key.
//
// corank::co_rank for shared memory: with 32-bit indexes, and with probes that stand at the same
// places of a whatever the rank. Neighbouring threads then read the same word of a, and words of b
// as far apart as their ranks, so that an odd distance keeps them out of each other's banks.
template <class A, class B, class Less>
CORANK_HOST_DEVICE std::uint32_t tile_co_rank(std::uint32_t rank, A a, std::uint32_t a_count, B b,
                                              std::uint32_t b_count, Less less) {
  const std::uint32_t low = rank > b_count ? rank - b_count : 0;
  const std::uint32_t high = rank < a_count ? rank : a_count;
  std::uint32_t i = 0;
  for (std::uint32_t step = power_of_two_within(a_count); step != 0; step /= 2) {
    const std::uint32_t probe = i + step - 1;
    if (probe < high && (probe < low || !less(b(rank - probe - 1), a(probe)))) i += step;
  }
  return i;
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
    const bool take_b = bounded ? taken > static_cast<std::uint32_t>(n) &&
                                      (taken >= all || less(y, x))
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
