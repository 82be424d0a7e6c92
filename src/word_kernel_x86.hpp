// The vector kernel, for whatever instruction set the file that includes it is compiled for.
#pragma once

#include <immintrin.h>

#include "word_kernel_loops.hpp"

namespace corank {
namespace {

// Four words, one of each lane.
using Row = __m256i;

inline void sort_columns(Row& x, Row& y) {
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

inline Row halves(const Word* low, const Word* high) {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
}

inline void store(Word* to, __m128i words) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
}

// The run whose next word is the lesser becomes p: the kernel takes its next block from there.
template <bool Unsigned>
inline void choose(const Word*& p, const Word*& q) {
  const Word* const first = p;
  const Word word = *p;
  // Written out because compilers make a jump of it, which half of the time is mispredicted.
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

// Each column of four rows is one lane: merging its block with what it carries is an odd-even
// network down the column, the same compares for all lanes, and no shuffles. (The network: Batcher,
// "Sorting networks and their applications", 1968; merging by blocks of which the one with the
// lesser first word comes next: Inoue et al., "AA-Sort", 2007.)
template <bool FlipIn, bool FlipOut>
void advance(WordLanes& lanes, std::uint64_t steps, Word flip) {
  const Word *p0 = lanes.p[0], *p1 = lanes.p[1], *p2 = lanes.p[2], *p3 = lanes.p[3];
  const Word *q0 = lanes.q[0], *q1 = lanes.q[1], *q2 = lanes.q[2], *q3 = lanes.q[3];
  Word *out0 = lanes.out[0], *out1 = lanes.out[1], *out2 = lanes.out[2], *out3 = lanes.out[3];
  const Row flips = _mm256_set1_epi64x(flip);
  const auto flipped = [&](Row row) __attribute__((always_inline)) {
    return _mm256_xor_si256(row, flips);
  };
  Row carry[4];
  for (int i = 0; i < 4; ++i) {
    carry[i] = _mm256_loadu_si256(reinterpret_cast<const Row*>(lanes.carry[i]));
    if constexpr (FlipIn) carry[i] = flipped(carry[i]);
  }
  for (std::uint64_t step = 0; step < steps; step += 4) {
    choose<FlipIn>(p0, q0);
    choose<FlipIn>(p1, q1);
    choose<FlipIn>(p2, q2);
    choose<FlipIn>(p3, q3);
    const Row head02 = halves(p0, p2), head13 = halves(p1, p3);
    const Row tail02 = halves(p0 + 2, p2 + 2), tail13 = halves(p1 + 2, p3 + 2);
    p0 += 4;
    p1 += 4;
    p2 += 4;
    p3 += 4;
    Row v0 = carry[0], v1 = carry[1], v2 = carry[2], v3 = carry[3];
    Row w0 = _mm256_unpacklo_epi64(head02, head13), w1 = _mm256_unpackhi_epi64(head02, head13);
    Row w2 = _mm256_unpacklo_epi64(tail02, tail13), w3 = _mm256_unpackhi_epi64(tail02, tail13);
    if constexpr (FlipIn) {
      w0 = flipped(w0);
      w1 = flipped(w1);
      w2 = flipped(w2);
      w3 = flipped(w3);
    }
    sort_columns(v0, w0);
    sort_columns(v1, w1);
    sort_columns(v2, w2);
    sort_columns(v3, w3);
    sort_columns(v2, w0);
    sort_columns(v3, w1);
    sort_columns(v1, v2);
    sort_columns(v3, w0);
    sort_columns(w1, w2);
    carry[0] = w0;
    carry[1] = w1;
    carry[2] = w2;
    carry[3] = w3;
    Row first02 = _mm256_unpacklo_epi64(v0, v1), first13 = _mm256_unpackhi_epi64(v0, v1);
    Row last02 = _mm256_unpacklo_epi64(v2, v3), last13 = _mm256_unpackhi_epi64(v2, v3);
    if constexpr (FlipOut) {
      first02 = flipped(first02);
      first13 = flipped(first13);
      last02 = flipped(last02);
      last13 = flipped(last13);
    }
    store(out0 + step, _mm256_castsi256_si128(first02));
    store(out0 + step + 2, _mm256_castsi256_si128(last02));
    store(out1 + step, _mm256_castsi256_si128(first13));
    store(out1 + step + 2, _mm256_castsi256_si128(last13));
    store(out2 + step, _mm256_extracti128_si256(first02, 1));
    store(out2 + step + 2, _mm256_extracti128_si256(last02, 1));
    store(out3 + step, _mm256_extracti128_si256(first13, 1));
    store(out3 + step + 2, _mm256_extracti128_si256(last13, 1));
  }
  for (int i = 0; i < 4; ++i) {
    if constexpr (FlipIn) carry[i] = flipped(carry[i]);
    _mm256_storeu_si256(reinterpret_cast<Row*>(lanes.carry[i]), carry[i]);
  }
  lanes.p[0] = p0, lanes.p[1] = p1, lanes.p[2] = p2, lanes.p[3] = p3;
  lanes.q[0] = q0, lanes.q[1] = q1, lanes.q[2] = q2, lanes.q[3] = q3;
  for (Word*& out : lanes.out) out += steps;
}

void advance_any(WordLanes& lanes, std::uint64_t steps, Word flip) {
  if (flip == 0)
    advance<false, false>(lanes, steps, 0);
  else
    advance<false, true>(lanes, steps, flip);
}

void advance_raw(WordLanes& lanes, std::uint64_t steps, bool unsigned_order) {
  if (unsigned_order)
    advance<true, true>(lanes, steps, sign_bit);
  else
    advance<false, false>(lanes, steps, 0);
}

constexpr WordKernel vector_kernel{true,           advance_any, advance_raw, ascend,
                                   read_ascending, pack,        read_packed, tied};

}  // namespace
}  // namespace corank
