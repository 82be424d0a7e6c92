// Merges the front of two runs of 16-byte records with single-word keys. Stateless; see front.hpp
// for what a front is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/key.hpp"
#include "merge/front.hpp"

namespace corank {

// The keys of contiguous records, by index.
struct FrontKeys {
  static constexpr std::uint32_t record_bytes = 16;

  detail::SingleWordKey key;
  const std::byte* records;

  std::uint64_t operator[](std::uint64_t i) const {
    return detail::word_of(key, records + i * record_bytes);
  }
};

// Returns the largest front that fits in L2 and leaves a sentinel record in both runs.
Front cut_front(const FrontKeys& a, std::uint64_t a_count, const FrontKeys& b,
                std::uint64_t b_count);

// Merges `front` into `out`, stably: records of `a` precede equal records of `b`. The front must be
// sorted in both runs, and is_front() must hold for it.
void merge_front(const Front& front, const FrontKeys& a, const FrontKeys& b, std::byte* out);

}  // namespace corank
