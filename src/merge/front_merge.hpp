// Merges the fronts of two runs of 16-byte records.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/key.hpp"
#include "merge/front.hpp"

namespace corank {

// The keys of records that lie end to end.
struct FrontKeys {
  static constexpr std::uint32_t record_bytes = 16;

  detail::SingleWordKey key;
  const std::byte* records;

  std::uint64_t operator[](std::uint64_t i) const {
    return detail::word_of(key, records + i * record_bytes);
  }
};

// A front that the caches like, as long as both runs have a record behind it.
Front cut_front(const FrontKeys& a, std::uint64_t a_count, const FrontKeys& b,
                std::uint64_t b_count);

// Such a front, if it ascends in both runs and is_front(). Stable: of equal records those of `a`
// come first.
void merge_front(const Front& front, const FrontKeys& a, const FrontKeys& b, std::byte* out);

}  // namespace corank
