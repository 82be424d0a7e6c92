// Co-rank and serial merge of one thread inside a tile, for host and device. Indexes count records.
#pragma once

#include <cstdint>

#include "corank/key.hpp"

namespace corank::device::detail {

// Returns how many of the first `rank` outputs come from `a`. Equals corank::co_rank, but its
// 32-bit indexes, which suffice in shared memory, are cheaper. `a` and `b` map an index to a key.
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

// Returns the next slot in memory that does not wrap.
struct Straight {
  CORANK_HOST_DEVICE std::uint32_t operator()(std::uint32_t slot) const { return slot + 1; }
};
// Returns the next slot in one of several adjacent rings of mask + 1 slots each.
struct Wrapping {
  std::uint32_t mask;
  CORANK_HOST_DEVICE std::uint32_t operator()(std::uint32_t slot) const {
    return ((slot + 1) & mask) | (slot & ~mask);
  }
};

// Merges the next `items` records of a and b, which start at keys[at_a] and keys[at_b], into
// registers. slots[n] is the slot that merged[n] came from. `bounded` may be false only if both
// runs have `items` records left. Outputs after the last record are undefined and never compared.
// Reads up to `items` slots beyond the ends of a and b. Returns the slot at which a continues.
//
// All indexes of `merged` and `slots` are known at compile time, so both stay in registers; only
// `keys` is indexed by data. Source: Baxter, "Modern GPU" (2013), the serial merge.
template <bool bounded, int items, class Key, class Next, class Less>
CORANK_HOST_DEVICE std::uint32_t serial_merge(const Key* keys, Next next, std::uint32_t at_a,
                                              std::uint32_t a_left, std::uint32_t at_b,
                                              std::uint32_t b_left, Key (&merged)[items],
                                              std::uint32_t (&slots)[items], Less less) {
  Key x = keys[at_a];
  Key y = keys[at_b];
  // b_left plus the records taken from a: after n outputs, b is exhausted if this is n or less.
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
      // One load serves either side; two predicated loads would take twice the issue slots.
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
