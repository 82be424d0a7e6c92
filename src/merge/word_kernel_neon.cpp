#ifdef __aarch64__
#include <arm_neon.h>

#include "merge/word_kernel_vector.hpp"

namespace corank {
namespace {

struct NeonVectors {
  struct Row {
    int64x2_t low, high;
  };

  static Row all(Word word) { return {vdupq_n_s64(word), vdupq_n_s64(word)}; }
  static Row load(const Word* from) { return halves(from, from + 2); }
  static void store(Row row, Word* to) { store_halves(row, to, to + 2); }
  static Row halves(const Word* low, const Word* high) { return {vld1q_s64(low), vld1q_s64(high)}; }
  static void store_halves(Row row, Word* low, Word* high) {
    vst1q_s64(low, row.low);
    vst1q_s64(high, row.high);
  }
  static void stream(Row row, Word* to) { store(row, to); }

  // Join the low halves, or the high halves, of `x` and `y`.
  static Row low_halves(Row x, Row y) { return {x.low, y.low}; }
  static Row high_halves(Row x, Row y) { return {x.high, y.high}; }

  // Interleave the first words, or the second words, of each half of `x` and `y`.
  static Row firsts(Row x, Row y) { return {vzip1q_s64(x.low, y.low), vzip1q_s64(x.high, y.high)}; }
  static Row seconds(Row x, Row y) {
    return {vzip2q_s64(x.low, y.low), vzip2q_s64(x.high, y.high)};
  }

  static Row exclusive_or(Row x, Row y) {
    return {veorq_s64(x.low, y.low), veorq_s64(x.high, y.high)};
  }

  // Moves the smaller words to `x` and the larger ones to `y`.
  static void sort_columns(Row& x, Row& y) {
    sort_half(x.low, y.low);
    sort_half(x.high, y.high);
  }

  // Makes `p` the run whose next word is smaller.
  template <bool Unsigned>
  static void choose(const Word*& p, const Word*& q) {
    constexpr Word flip = Unsigned ? sign_bit : 0;
    const bool swap = (*q ^ flip) < (*p ^ flip);
    const Word* const first = p;
    p = swap ? q : p;
    q = swap ? first : q;
  }

 private:
  static void sort_half(int64x2_t& x, int64x2_t& y) {
    const uint64x2_t greater = vcgtq_s64(x, y);
    const int64x2_t least = vbslq_s64(greater, y, x);
    y = vbslq_s64(greater, x, y);
    x = least;
  }
};

}  // namespace

extern const WordKernel neon_word_kernel = vector_kernel<NeonVectors>;

}  // namespace corank
#endif
