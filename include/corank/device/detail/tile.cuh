// What one thread does inside a tile, on the host and on the device alike.
#pragma once

#include <cstdint>

#include "corank/key.hpp"

namespace corank::device::detail {

// How many of the first `rank` outputs come from a: corank::co_rank with the 32-bit indexes that
// suffice, and are cheaper, in shared memory. `a` and `b` map an index to a key.
template <class A, class B, class Less>
CORANK_HOST_DEVICE constexpr std::uint32_t tile_co_rank(std::uint32_t rank, A a,
                                                        std::uint32_t a_count, B b,
                                                        std::uint32_t b_count, Less less) {
  std::uint32_t low = rank > b_count ? rank - b_count : 0;
  std::uint32_t high = rank < a_count ? rank : a_count;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (less(b(rank - middle - 1), a(middle)))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// Merges the next `items` records of a, from i, and b, from j, into registers. `slot_a` and
// `slot_b` map an index to a place in `keys`; slots[n] is the place that merged[n] came from.
// `bounded` unless both have `items` records left; past their ends nothing is read, and what
// stands in `merged` beyond the last record has no meaning. Returns the new i.
//
// All indexes of `merged` and `slots` are known at compile time, so both live in registers; only
// `keys` is indexed by data. Source: Baxter, "Modern GPU" (2013), the serial merge.
template <bool bounded, int items, class Key, class SlotA, class SlotB, class Less>
CORANK_HOST_DEVICE std::uint32_t serial_merge(const Key* keys, SlotA slot_a, std::uint32_t i,
                                              std::uint32_t a_end, SlotB slot_b, std::uint32_t j,
                                              std::uint32_t b_end, Key (&merged)[items],
                                              std::uint32_t (&slots)[items], Less less) {
  std::uint32_t at_a = slot_a(i);
  std::uint32_t at_b = slot_b(j);
  Key x = keys[!bounded || i < a_end ? at_a : 0];
  Key y = keys[!bounded || j < b_end ? at_b : 0];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int n = 0; n < items; ++n) {
    const bool take_b = bounded ? i >= a_end || (j < b_end && less(y, x)) : less(y, x);
    merged[n] = take_b ? y : x;
    slots[n] = take_b ? at_b : at_a;
    if (take_b)
      at_b = slot_b(++j);
    else
      at_a = slot_a(++i);
    // One load for either side: two predicated ones would take twice the issue slots.
    if (n + 1 < items && (!bounded || (take_b ? j < b_end : i < a_end))) {
      const Key next = keys[take_b ? at_b : at_a];
      if (take_b)
        y = next;
      else
        x = next;
    }
  }
  return i;
}

}  // namespace corank::device::detail
