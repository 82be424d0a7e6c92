#include "run/key_search.hpp"

#include <cassert>

namespace corank {
namespace {

template <class Before>
std::uint64_t partition_point(BlockReader& run, [[maybe_unused]] const KeyLayout& layout,
                              Before before) {
  assert(run.record_bytes() == layout.record_bytes);
  std::uint64_t begin = 0;
  std::uint64_t end = run.records();
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
  return partition_point(
      run, layout, [&](const std::byte* other) { return record_less(layout, other, record); });
}

std::uint64_t upper_bound(BlockReader& run, const KeyLayout& layout, const std::byte* record) {
  return partition_point(
      run, layout, [&](const std::byte* other) { return !record_less(layout, record, other); });
}

}  // namespace corank
