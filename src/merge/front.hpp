// Cuts the front of a two-way merge: the common prefix of two runs that can be merged straight from
// where the runs lie, without bounds checks. Positions count elements; `a` and `b` are anything
// with operator[].
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "corank/algorithm/co_rank.hpp"
#include "util/gallop.hpp"

namespace corank {

// The number of elements that a front takes from each run.
struct Front {
  std::uint64_t a = 0, b = 0;

  std::uint64_t count() const { return a + b; }
};

// Returns a front of up to `most` elements, rounded down to a multiple of `unit`. It leaves at
// least `margin` elements in each run; a run with fewer makes the front empty. Unsorted runs are
// cut at arbitrary positions.
template <class A, class B, class Less>
Front cut_front(const A& a, std::uint64_t a_count, const B& b, std::uint64_t b_count,
                std::uint64_t most, std::uint64_t margin, std::uint64_t unit, Less less) {
  assert(unit != 0 && margin != 0);  // a[a_end] and b[b_end] are read
  if (std::min(a_count, b_count) <= margin) return {};
  std::uint64_t a_end = std::min(a_count - margin, most), b_end = std::min(b_count - margin, most);
  if (std::min(a_end, b_end) < most) {
    if (less(b[b_end], a[a_end]))
      a_end = gallop(a_end, a_end / 2, [&](std::uint64_t i) { return !less(b[b_end], a[i]); });
    else
      b_end = gallop(b_end, b_end / 2, [&](std::uint64_t i) { return less(b[i], a[a_end]); });
  }
  const std::uint64_t count = std::min(a_end + b_end, most) / unit * unit;
  const std::uint64_t split = co_rank(count, a, a_end, b, b_end, less);
  assert(split <= a_end && count - split <= b_end);
  return {split, count - split};
}

// Returns whether the next element of each run sorts after all that the front takes from the other
// run. Merging a front that is sorted in both runs then takes no further element, although it reads
// the next ones.
template <class A, class B, class Less>
bool is_front(const Front& front, const A& a, const B& b, Less less) {
  return (front.a == 0 || !less(b[front.b], a[front.a - 1])) &&
         (front.b == 0 || less(b[front.b - 1], a[front.a]));
}

}  // namespace corank
