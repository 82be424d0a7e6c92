// The front of the merge of two runs, which is merged straight from where they are.
#pragma once

#include <algorithm>
#include <cstdint>

#include "corank/algorithm/co_rank.hpp"
#include "util/gallop.hpp"

namespace corank {

// How many of each run's first elements it takes.
struct Front {
  std::uint64_t a = 0, b = 0;

  std::uint64_t count() const { return a + b; }
};

// A front of `most` elements; of fewer, a multiple of `unit`, where else less than `margin`
// elements of a run would be left behind it. `a` and `b` are anything with operator[]. Runs that
// are out of order are cut anywhere.
template <class A, class B, class Less>
Front cut_front(const A& a, std::uint64_t a_count, const B& b, std::uint64_t b_count,
                std::uint64_t most, std::uint64_t margin, std::uint64_t unit, Less less) {
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
  return {split, count - split};
}

// Whether what is behind the front in each run sorts after what the other gives to it. Then a merge
// of a front that ascends in both runs takes no more of either, though it looks at what is next.
template <class A, class B, class Less>
bool is_front(const Front& front, const A& a, const B& b, Less less) {
  return (front.a == 0 || !less(b[front.b], a[front.a - 1])) &&
         (front.b == 0 || less(b[front.b - 1], a[front.a]));
}

}  // namespace corank
