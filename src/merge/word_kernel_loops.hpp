// The loops of word_kernel.hpp that compilers vectorise by themselves. Included once per
// instruction set, hence in an unnamed namespace.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "merge/word_kernel.hpp"

namespace corank {
namespace {

constexpr Word sign_bit = INT64_MIN;

template <bool Swap>
inline Word read_word(const std::byte* record, std::uint64_t flip) {
  std::uint64_t word;
  std::memcpy(&word, record, 8);
  return static_cast<Word>((Swap ? __builtin_bswap64(word) : word) ^ flip);
}

// `Stride` is 0 if it is known only at run time.
template <bool Swap, std::uint64_t Stride, bool Store>
bool read_loop(const std::byte* keys, std::uint64_t any_stride, std::uint64_t count,
               std::uint64_t flip, Word* to) {
  const std::uint64_t stride = Stride != 0 ? Stride : any_stride;
  if (Store && count > 0) to[0] = read_word<Swap>(keys, flip);
  std::uint64_t descents = 0;
  for (std::uint64_t i = 1; i < count; ++i) {
    const Word word = read_word<Swap>(keys + stride * i, flip);
    descents |= word < read_word<Swap>(keys + stride * (i - 1), flip);
    if (Store) to[i] = word;
  }
  return descents == 0;
}

// Compilers vectorise the loop only for constant strides.
template <bool Swap>
bool ascend_by(const std::byte* keys, std::uint64_t stride, std::uint64_t count,
               std::uint64_t flip) {
  return (stride == 8    ? read_loop<Swap, 8, false>
          : stride == 16 ? read_loop<Swap, 16, false>
                         : read_loop<Swap, 0, false>)(keys, stride, count, flip, nullptr);
}

bool ascend(const std::byte* keys, std::uint64_t stride, std::uint64_t count, bool swap,
            std::uint64_t flip) {
  return (swap ? ascend_by<true> : ascend_by<false>)(keys, stride, count, flip);
}

bool read_ascending(const std::byte* records, std::uint64_t count, bool swap, std::uint64_t flip,
                    Word* to) {
  return (swap ? read_loop<true, 8, true> : read_loop<false, 8, true>)(records, 8, count, flip, to);
}

void find_order(const std::uint64_t* words, std::uint64_t count, Order& order) {
  if (count == 0) return;
  std::uint64_t descents = words[0] < order.last;
  std::uint64_t equals = words[0] == order.last;
  for (std::uint64_t i = 1; i < count; ++i) {
    descents |= words[i] < words[i - 1];
    equals |= words[i] == words[i - 1];
  }
  order = {words[count - 1], order.descends || descents != 0, order.equals || equals != 0};
}

void pack(std::uint64_t* words, std::uint64_t count, const Packing& packing, std::uint64_t run) {
  assert(run >> packing.run_bits == 0);
  const auto [least, shift, run_bits] = packing;
  for (std::uint64_t i = 0; i < count; ++i)
    words[i] = (words[i] - least) >> shift << run_bits | run;
}

// `Stride` is 0 if it is known only at run time.
template <bool Swap, std::uint64_t Stride>
void read_packed_loop(const std::byte* keys, std::uint64_t any_stride, std::uint64_t count,
                      std::uint64_t flip, const Packing& packing, std::uint64_t run, Order& order,
                      std::uint64_t* to) {
  if (count == 0) return;
  const std::uint64_t stride = Stride != 0 ? Stride : any_stride;
  const auto word = [&](std::uint64_t i) __attribute__((always_inline)) {
    return static_cast<std::uint64_t>(read_word<Swap>(keys + i * stride, flip));
  };
  const auto [least, shift, run_bits] = packing;
  const auto packed = [&](std::uint64_t value) __attribute__((always_inline)) {
    return (value - least) >> shift << run_bits | run;
  };
  std::uint64_t descents = word(0) < order.last;
  std::uint64_t equals = word(0) == order.last;
  to[0] = packed(word(0));
  for (std::uint64_t i = 1; i < count; ++i) {
    descents |= word(i) < word(i - 1);
    equals |= word(i) == word(i - 1);
    to[i] = packed(word(i));
  }
  order = {word(count - 1), order.descends || descents != 0, order.equals || equals != 0};
}

void read_packed(const std::byte* keys, std::uint64_t stride, std::uint64_t count, bool swap,
                 std::uint64_t flip, const Packing& packing, std::uint64_t run, Order& order,
                 std::uint64_t* to) {
  assert(run >> packing.run_bits == 0);
  if (stride == 16)
    (swap ? read_packed_loop<true, 16> : read_packed_loop<false, 16>)(keys, stride, count, flip,
                                                                      packing, run, order, to);
  else
    (swap ? read_packed_loop<true, 0> : read_packed_loop<false, 0>)(keys, stride, count, flip,
                                                                    packing, run, order, to);
}

bool tied(const Word* words, std::uint64_t count, const Packing& packing, bool within_runs) {
  assert(packing.run_bits < 64);
  std::uint64_t ties = 0;
  // A difference that is not counted.
  const std::uint64_t none = within_runs ? ~std::uint64_t{0} : 0;
  for (std::uint64_t i = 1; i < count; ++i) {
    const auto difference = static_cast<std::uint64_t>(words[i] ^ words[i - 1]);
    ties |= std::uint64_t{difference >> packing.run_bits == 0} & std::uint64_t{difference != none};
  }
  return ties != 0;
}

}  // namespace
}  // namespace corank
