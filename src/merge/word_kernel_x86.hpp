// Vectors of AVX2, or of AVX-512 if the including file is compiled for it.
#pragma once

#include <immintrin.h>

#include "merge/word_kernel.hpp"

namespace corank {
namespace {

struct X86Vectors {
  using Row = __m256i;

  static Row all(Word word) { return _mm256_set1_epi64x(word); }
  static Row load(const Word* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(Row row, Word* to) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), row); }
  static Row halves(const Word* low, const Word* high) {
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
  }
  static void store_halves(Row row, Word* low, Word* high) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(row));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(row, 1));
  }
  static void stream(Row row, Word* to) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), row);
  }

  // Join the low halves, or the high halves, of `x` and `y`.
  static Row low_halves(Row x, Row y) { return _mm256_permute2x128_si256(x, y, 0x20); }
  static Row high_halves(Row x, Row y) { return _mm256_permute2x128_si256(x, y, 0x31); }

  // Interleave the first words, or the second words, of each half of `x` and `y`.
  static Row firsts(Row x, Row y) { return _mm256_unpacklo_epi64(x, y); }
  static Row seconds(Row x, Row y) { return _mm256_unpackhi_epi64(x, y); }

  static Row exclusive_or(Row x, Row y) { return _mm256_xor_si256(x, y); }

  // Moves the smaller words to `x` and the larger ones to `y`.
  static void sort_columns(Row& x, Row& y) {
#ifdef __AVX512VL__
    const Row least = _mm256_min_epi64(x, y);
    y = _mm256_max_epi64(x, y);
    x = least;
#else
    const __m256d greater = _mm256_castsi256_pd(_mm256_cmpgt_epi64(x, y));
    const __m256d a = _mm256_castsi256_pd(x);
    const __m256d b = _mm256_castsi256_pd(y);
    x = _mm256_castpd_si256(_mm256_blendv_pd(a, b, greater));
    y = _mm256_castpd_si256(_mm256_blendv_pd(b, a, greater));
#endif
  }

  // Makes `p` the run whose next word is smaller. Written in assembly because compilers emit a
  // branch, which is mispredicted half of the time.
  template <bool Unsigned>
  static void choose(const Word*& p, const Word*& q) {
    const Word* const first = p;
    const Word word = *p;
    if constexpr (Unsigned)
      asm("cmpq %2, (%1)\n\tcmovbq %1, %0\n\tcmovbq %3, %1"
          : "+&r"(p), "+&r"(q)
          : "r"(word), "r"(first)
          : "cc", "memory");
    else
      asm("cmpq %2, (%1)\n\tcmovlq %1, %0\n\tcmovlq %3, %1"
          : "+&r"(p), "+&r"(q)
          : "r"(word), "r"(first)
          : "cc", "memory");
  }
};

}  // namespace
}  // namespace corank
