// The vector kernel, for the instruction set of the including file.
//
// Source: Batcher, "Sorting networks and their applications" (1968); for block-wise merging, where
// the block with the smaller first word comes next, Inoue et al., "AA-Sort" (2007).
#pragma once

#include <cassert>

#include "merge/word_kernel_loops.hpp"
#include "util/nontemporal_lines.hpp"

namespace corank {
namespace {

// Merges four lanes. Vectors::Row holds one word of each lane, in two halves of two lanes. Each
// column of four rows is one lane: an odd-even network down the columns merges each lane's next
// block with its carry. All lanes share the comparisons, and none needs shuffles.
template <class Vectors, bool FlipIn, bool FlipOut, bool Streams>
void advance(WordLanes& lanes, std::uint64_t steps, Word flip) {
  assert(steps % WordLanes::block == 0);
  using Row = typename Vectors::Row;
  const Word *p0 = lanes.p[0], *p1 = lanes.p[1], *p2 = lanes.p[2], *p3 = lanes.p[3];
  const Word *q0 = lanes.q[0], *q1 = lanes.q[1], *q2 = lanes.q[2], *q3 = lanes.q[3];
  Word *out0 = lanes.out[0], *out1 = lanes.out[1], *out2 = lanes.out[2], *out3 = lanes.out[3];
  const Row flips = Vectors::all(flip);
  const auto flip_rows = [&](auto&... rows) __attribute__((always_inline)) {
    ((rows = Vectors::exclusive_or(rows, flips)), ...);
  };
  // Separate variables, since GCC keeps an array in memory.
  Row carry0 = Vectors::load(lanes.carry[0]), carry1 = Vectors::load(lanes.carry[1]);
  Row carry2 = Vectors::load(lanes.carry[2]), carry3 = Vectors::load(lanes.carry[3]);
  if constexpr (FlipIn) flip_rows(carry0, carry1, carry2, carry3);
  for (std::uint64_t step = 0; step < steps; step += 4) {
    Vectors::template choose<FlipIn>(p0, q0);
    Vectors::template choose<FlipIn>(p1, q1);
    Vectors::template choose<FlipIn>(p2, q2);
    Vectors::template choose<FlipIn>(p3, q3);
    const Row head02 = Vectors::halves(p0, p2), head13 = Vectors::halves(p1, p3);
    const Row tail02 = Vectors::halves(p0 + 2, p2 + 2), tail13 = Vectors::halves(p1 + 2, p3 + 2);
    p0 += 4;
    p1 += 4;
    p2 += 4;
    p3 += 4;
    Row v0 = carry0, v1 = carry1, v2 = carry2, v3 = carry3;
    Row w0 = Vectors::firsts(head02, head13), w1 = Vectors::seconds(head02, head13);
    Row w2 = Vectors::firsts(tail02, tail13), w3 = Vectors::seconds(tail02, tail13);
    if constexpr (FlipIn) flip_rows(w0, w1, w2, w3);
    Vectors::sort_columns(v0, w0);
    Vectors::sort_columns(v1, w1);
    Vectors::sort_columns(v2, w2);
    Vectors::sort_columns(v3, w3);
    Vectors::sort_columns(v2, w0);
    Vectors::sort_columns(v3, w1);
    Vectors::sort_columns(v1, v2);
    Vectors::sort_columns(v3, w0);
    Vectors::sort_columns(w1, w2);
    carry0 = w0;
    carry1 = w1;
    carry2 = w2;
    carry3 = w3;
    Row first02 = Vectors::firsts(v0, v1), first13 = Vectors::seconds(v0, v1);
    Row last02 = Vectors::firsts(v2, v3), last13 = Vectors::seconds(v2, v3);
    if constexpr (FlipOut) flip_rows(first02, first13, last02, last13);
    // Non-temporal stores are faster in whole rows, half as many; ordinary ones do not repay the
    // shuffles.
    if constexpr (Streams) {
      Vectors::stream(Vectors::low_halves(first02, last02), out0 + step);
      Vectors::stream(Vectors::low_halves(first13, last13), out1 + step);
      Vectors::stream(Vectors::high_halves(first02, last02), out2 + step);
      Vectors::stream(Vectors::high_halves(first13, last13), out3 + step);
    } else {
      Vectors::store_halves(first02, out0 + step, out2 + step);
      Vectors::store_halves(last02, out0 + step + 2, out2 + step + 2);
      Vectors::store_halves(first13, out1 + step, out3 + step);
      Vectors::store_halves(last13, out1 + step + 2, out3 + step + 2);
    }
  }
  if constexpr (FlipIn) flip_rows(carry0, carry1, carry2, carry3);
  Vectors::store(carry0, lanes.carry[0]);
  Vectors::store(carry1, lanes.carry[1]);
  Vectors::store(carry2, lanes.carry[2]);
  Vectors::store(carry3, lanes.carry[3]);
  lanes.p[0] = p0, lanes.p[1] = p1, lanes.p[2] = p2, lanes.p[3] = p3;
  lanes.q[0] = q0, lanes.q[1] = q1, lanes.q[2] = q2, lanes.q[3] = q3;
  for (Word*& out : lanes.out) out += steps;
}

template <class Vectors>
void advance_any(WordLanes& lanes, std::uint64_t steps, Word flip) {
  if (flip == 0)
    advance<Vectors, false, false, false>(lanes, steps, 0);
  else
    advance<Vectors, false, true, false>(lanes, steps, flip);
}

template <class Vectors>
void advance_streaming(WordLanes& lanes, std::uint64_t steps, Word flip) {
  for ([[maybe_unused]] const Word* out : lanes.out)
    assert(reinterpret_cast<std::uintptr_t>(out) % streamed_bytes == 0);
  advance<Vectors, false, true, true>(lanes, steps, flip);
}

template <class Vectors>
void advance_raw(WordLanes& lanes, std::uint64_t steps, bool unsigned_order) {
  if (unsigned_order)
    advance<Vectors, true, true, false>(lanes, steps, sign_bit);
  else
    advance<Vectors, false, false, false>(lanes, steps, 0);
}

template <class Vectors>
constexpr WordKernel vector_kernel{true,
                                   advance_any<Vectors>,
                                   advance_streaming<Vectors>,
                                   advance_raw<Vectors>,
                                   ascend,
                                   read_ascending,
                                   find_order,
                                   pack,
                                   read_packed,
                                   tied,
                                   stream_lines};

}  // namespace
}  // namespace corank
