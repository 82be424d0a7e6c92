// Brings into the caches what is wanted soon.
#pragma once

#include <cstddef>
#include <cstdint>

namespace corank {

// Of what is read in a row: at the end of a page the processor stops fetching by itself.
inline constexpr std::uint64_t fetched_ahead_bytes = 2048;
// The same of lines and pairs, with which less is done, and of where they go.
inline constexpr std::uint64_t text_fetched_ahead_bytes = 4096;
// Of those of many runs, which are read by turns.
inline constexpr std::uint64_t fetched_ahead_by_turns_bytes = 512;

// The beginning of what is long: the processor fetches the rest itself. Into the second cache,
// since the first waits for few lines at a time; Cache is 1 if it is to be that one nonetheless.
// Inline, since GCC leaves out calls of what does nothing but fetch.
template <int Cache = 2>
[[gnu::always_inline]] inline void prefetch(const std::byte* from, std::uint64_t bytes) {
  constexpr std::uint64_t max_bytes = 4096;
  for (std::uint64_t at = 0; at < bytes && at < max_bytes; at += 64)
    __builtin_prefetch(from + at, 0, 4 - Cache);
}

// Whether the first cache is the better one for records that are wanted soon, in the order of a
// merge. On a Zen 5 it makes merging 100-byte records up to 1.07 times as fast, 1,000-byte ones
// 1.03 to 1.3 times; on an Intel Emerald Rapids the second does, 1.05 times.
inline bool first_cache_takes_many() {
#ifdef __x86_64__
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

}  // namespace corank
