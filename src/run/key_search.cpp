#include "run/key_search.hpp"

#include <cassert>
#include <vector>

namespace corank {
namespace {

template <class Before>
std::uint64_t partition_point(const Run& run, std::uint32_t record_bytes, Before before) {
  assert(run.record_bytes() == record_bytes && !run.is_stream());
  std::vector<std::byte> record(record_bytes);
  std::uint64_t begin = 0;
  std::uint64_t end = run.records();
  while (begin < end) {
    const std::uint64_t middle = begin + (end - begin) / 2;
    run.read(middle, 1, record);
    if (before(record.data()))
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

}  // namespace

std::uint64_t lower_bound(const Run& run, const KeyLayout& layout, const std::byte* record) {
  return partition_point(run, layout.record_bytes, [&](const std::byte* other) {
    return record_less(layout, other, record);
  });
}

std::uint64_t upper_bound(const Run& run, const KeyLayout& layout, const std::byte* record) {
  return partition_point(run, layout.record_bytes, [&](const std::byte* other) {
    return !record_less(layout, record, other);
  });
}

}  // namespace corank
