#include "run/key_search.hpp"

#include <algorithm>
#include <cassert>

namespace corank {
namespace {

template <class Before>
std::uint64_t partition_point(BlockReader& run, std::uint64_t begin, std::uint64_t end,
                              Before before) {
  while (begin < end) {
    const std::uint64_t middle = begin + (end - begin) / 2;
    run.expect(begin, end);
    if (before(run.read(middle, 1).data()))
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

}  // namespace

std::uint64_t lower_bound(BlockReader& run, const KeyLayout& layout, const std::byte* record) {
  assert(run.record_bytes() == layout.record_bytes);
  return partition_point(run, 0, run.records(), [&](const std::byte* other) {
    return record_less(layout, other, record);
  });
}

std::uint64_t upper_bound(BlockReader& run, const KeyLayout& layout, const std::byte* record) {
  assert(run.record_bytes() == layout.record_bytes);
  const auto before = [&](const std::byte* other) { return !record_less(layout, record, other); };
  // Steps that double, as of a galloping search.
  std::uint64_t begin = 0, step = 1;
  const std::uint64_t records = run.records();
  while (begin < records && before(run.read(std::min(begin + step, records) - 1, 1).data())) {
    begin = std::min(begin + step, records);
    step *= 2;
  }
  return partition_point(run, begin, std::min(begin + step, records), before);
}

}  // namespace corank
