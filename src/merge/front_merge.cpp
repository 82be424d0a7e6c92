#include "merge/front_merge.hpp"

#include <array>
#include <cassert>
#include <cstring>
#include <functional>

#include "util/branchless.hpp"

namespace corank {
namespace {

// Parts of the front that are merged in lockstep, so that their latencies overlap.
constexpr std::size_t front_lanes = 6;
// Maximum records per lane. Not a power of two, so that the lanes' addresses do not all map to the
// same cache sets.
constexpr std::uint64_t max_lane_records = 4080;

using Places = std::array<const std::byte*, front_lanes>;

template <bool big_endian>
CORANK_CONDITIONAL_MOVES void merge_lanes(detail::SingleWordKey key, const Places& a,
                                          const Places& b, std::uint64_t lane_records,
                                          std::byte* out) {
  constexpr std::uint64_t record_bytes = FrontKeys::record_bytes;
  const std::uint64_t lane_bytes = lane_records * record_bytes;
  key.big_endian = big_endian;
  std::array<std::uint64_t, front_lanes> of_b{};  // bytes taken from `b`
  for (std::uint64_t at = 0; at < lane_bytes; at += record_bytes) {
#pragma GCC unroll 8
    for (std::size_t l = 0; l < front_lanes; ++l) {
      const std::byte* const p = a[l] + (at - of_b[l]);
      const std::byte* const q = b[l] + of_b[l];
      const bool take_b = detail::word_of(key, q) < detail::word_of(key, p);
      std::memcpy(out + l * lane_bytes + at, take_b ? q : p, record_bytes);
      of_b[l] += record_bytes * take_b;
    }
  }
}

}  // namespace

Front cut_front(const FrontKeys& a, std::uint64_t a_count, const FrontKeys& b,
                std::uint64_t b_count) {
  return cut_front(a, a_count, b, b_count, front_lanes * max_lane_records, 1, front_lanes,
                   std::less{});
}

void merge_front(const Front& front, const FrontKeys& a, const FrontKeys& b, std::byte* out) {
  assert(front.count() % front_lanes == 0);
  // One key reads the records of both runs.
  assert(a.key.offset == b.key.offset && a.key.flip == b.key.flip &&
         a.key.big_endian == b.key.big_endian);
  const std::uint64_t lane_records = front.count() / front_lanes;
  Places p, q;
  for (std::size_t l = 0; l < front_lanes; ++l) {
    const std::uint64_t rank = l * lane_records;
    const std::uint64_t split = co_rank(rank, a, front.a, b, front.b, std::less{});
    assert(split <= front.a && rank - split <= front.b);
    p[l] = a.records + split * FrontKeys::record_bytes;
    q[l] = b.records + (rank - split) * FrontKeys::record_bytes;
  }
  (a.key.big_endian ? merge_lanes<true> : merge_lanes<false>)(a.key, p, q, lane_records, out);
}

}  // namespace corank
