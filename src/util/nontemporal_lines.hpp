// Copies cache lines by non-temporal stores, with the instruction set that the including file is
// compiled for. Every including file has a copy of its own.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace corank {
namespace {

// Copies whole 64-byte lines: `bytes` is a multiple of 64, and `to` is aligned to 64.
inline void stream_lines(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  assert(bytes % 64 == 0 && reinterpret_cast<std::uintptr_t>(to) % 64 == 0);
#if defined(__AVX512F__)
  for (std::uint64_t at = 0; at < bytes; at += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_loadu_si512(from + at));
#elif defined(__SSE2__)
  for (std::uint64_t at = 0; at < bytes; at += 64) {
    const auto* in = reinterpret_cast<const __m128i*>(from + at);
    auto* out = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace
}  // namespace corank
