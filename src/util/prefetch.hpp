// Software prefetch: distances, in bytes, and the prefetch itself. Tuned by bench-cpu; see
// docs/tuning.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "util/cpu_features.hpp"

namespace corank {

// Distance for sequential reads, since the hardware prefetcher stops at page boundaries.
inline constexpr std::uint64_t sequential_prefetch_bytes = 2048;
// Distance for variable-length records, which take less work per byte, and for their destination.
inline constexpr std::uint64_t text_prefetch_bytes = 4096;
// Distance for the records of many runs, which are read alternately.
inline constexpr std::uint64_t many_runs_prefetch_bytes = 512;

// Prefetches the first `max_bytes` of a range; the hardware prefetcher fetches the rest. Targets
// L2, since L1 can wait for few lines at a time; with `Cache` 1 it targets L1. Always inlined: GCC
// drops calls of a function that only prefetches.
template <int Cache = 2>
[[gnu::always_inline]] inline void prefetch(const std::byte* from, std::uint64_t bytes) {
  constexpr std::uint64_t max_bytes = 4096;
  for (std::uint64_t at = 0; at < bytes && at < max_bytes; at += 64)
    __builtin_prefetch(from + at, 0, 4 - Cache);
}

// Returns whether L1 is the better target for records that a merge needs soon: true on AMD
// processors. Tuned by bench-cpu; see docs/tuning.md.
inline bool prefers_l1_prefetch() {
  return cpu_features().is_amd;
}

}  // namespace corank
