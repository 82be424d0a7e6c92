#include <vector>

#include "merge/word_kernel.hpp"
#include "merge/word_kernel_loops.hpp"
#include "util/branchless.hpp"
#include "util/cpu_features.hpp"
#include "util/nontemporal_lines.hpp"

namespace corank {
namespace {

// Compares words XOR `flip_in`, and emits them XOR `flip_out`.
CORANK_CONDITIONAL_MOVES void advance_scalar(WordLanes& lanes, std::uint64_t steps, Word flip_in,
                                             Word flip_out) {
  constexpr int n = WordLanes::count;
  const Word *p[n], *q[n];
  Word* out[n];
  std::uint64_t from_q[n];
  for (int l = 0; l < n; ++l) {
    p[l] = lanes.p[l];
    q[l] = lanes.q[l];
    out[l] = lanes.out[l];
    from_q[l] = 0;
  }
  for (std::uint64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 8
    for (int l = 0; l < n; ++l) {
      const Word x = p[l][step - from_q[l]];
      const Word y = q[l][from_q[l]];
      const bool take_q = (y ^ flip_in) < (x ^ flip_in);
      out[l][step] = (take_q ? y : x) ^ flip_out;
      from_q[l] += take_q;
    }
  }
  for (int l = 0; l < n; ++l) {
    lanes.p[l] += steps - from_q[l];
    lanes.q[l] += from_q[l];
    lanes.out[l] += steps;
  }
}

void advance(WordLanes& lanes, std::uint64_t steps, Word flip) {
  advance_scalar(lanes, steps, 0, flip);
}
void advance_raw(WordLanes& lanes, std::uint64_t steps, bool unsigned_order) {
  advance_scalar(lanes, steps, unsigned_order ? sign_bit : 0, 0);
}

constexpr WordKernel portable_kernel{false,       advance,        advance,     advance_raw,
                                     ascend,      read_ascending, find_order,  pack,
                                     read_packed, tied,           stream_lines};

}  // namespace

#ifdef CORANK_X86_KERNELS
extern const WordKernel avx2_word_kernel, avx512_word_kernel;
#endif
#ifdef __aarch64__
extern const WordKernel neon_word_kernel;
#endif

std::span<const WordKernel* const> word_kernels() {
  static const std::vector<const WordKernel*> kernels = supported<const WordKernel*>({
#ifdef CORANK_X86_KERNELS
      {cpu_features().has_avx512, &avx512_word_kernel},
      {cpu_features().has_avx2, &avx2_word_kernel},
#endif
#ifdef __aarch64__
      {cpu_features().has_neon, &neon_word_kernel},
#endif
      {true, &portable_kernel},
  });
  return kernels;
}

}  // namespace corank
