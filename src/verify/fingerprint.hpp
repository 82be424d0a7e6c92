// What the self-verification sums up: a number for each record, cheap enough for every merge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "corank/key.hpp"
#include "corank/text_key.hpp"

namespace corank {

// The sum modulo 2^64 of a 64-bit fingerprint of every record: equal for equal multisets of
// records, whatever their order and however they are cut into blocks. Every bit counts with its
// place in its record, so that bytes which change places within a record or between records show.
// A change that was not made to deceive goes unnoticed with a chance near 2^-64. The values are of
// no use outside this process.
using FingerprintSum = std::uint64_t (*)(std::span<const std::byte> records,
                                         std::uint32_t record_bytes);

// The ways to compute it that this processor has, each with values of its own, the fastest first;
// the last is portable_fingerprint.
std::span<const FingerprintSum> fingerprint_sums();

// The one that processors and devices have in common: the sum of all records' fingerprint_of().
std::uint64_t portable_fingerprint(std::span<const std::byte> records, std::uint32_t record_bytes);

// The same of the records that the entries stand for, the length of each being a part of it: in a
// way that goes with `sum`, and with it alone.
std::uint64_t prefix_refs_fingerprint(FingerprintSum sum, const TextLayout& layout,
                                      std::span<const PrefixRef> entries);

struct OrderedSum {
  std::uint64_t sum;
  bool ascends;  // that all records are in order is certain
};
// The same sum, in one go with a look at the order of the records, which none of them may equal its
// predecessor in if `strict`. Nothing if there is no such way for this `sum` and these keys. There
// must be records.
std::optional<OrderedSum> sum_and_order(FingerprintSum sum, const KeyLayout& layout,
                                        std::span<const std::byte> records, bool strict);
// The same of lines ordered by their bytes, whose terminators stand where `ends` says, counted from
// where the first of them begins. `last`: the line before them, an empty one if there is none, and
// then the last of them.
std::optional<OrderedSum> sum_and_order(FingerprintSum sum, const std::byte* lines,
                                        std::span<const std::uint32_t> ends, bool strict,
                                        std::string_view& last);

namespace detail {

// Digits of pi: numbers that no data has reason to hold.
inline constexpr std::uint64_t fold_key_a = 0x243f6a8885a308d3, fold_key_b = 0x13198a2e03707344,
                               fold_key_step = 0xa4093822299f31d0, fold_key_c = 0x082efa98ec4e6c89,
                               fold_key_d = 0x452821e638d01377, fold_key_e = 0xbe5466cf34e90c6c;

// The halves of the product, folded: a sum of plain products would be blind to values that change
// places between records where the sum of the products stays.
CORANK_HOST_DEVICE inline std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDA_ARCH__
  return a * b ^ __umul64hi(a, b);
#else
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
#endif
}

struct Pair {
  std::uint64_t a, b;
};
// All bytes of a record of fewer than 16, as two words; some bytes may stand in it twice.
CORANK_HOST_DEVICE inline Pair short_record(const std::byte* record, std::uint64_t bytes) {
  const unsigned word = bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1;
  return {load_little(record, word), bytes == 1 ? 0 : load_little(record + bytes - word, word)};
}

// A record's bytes go in by 16, the last of which may overlap the ones before.
CORANK_HOST_DEVICE constexpr std::uint64_t folds(std::uint64_t record_bytes) {
  return record_bytes / 16 + (record_bytes % 16 != 0);
}
CORANK_HOST_DEVICE inline std::uint64_t fold_pair(const Pair& pair, std::uint64_t bytes,
                                                  std::uint64_t i) {
  // Records of other lengths could be these 16 bytes, too.
  return fold(pair.a ^ (fold_key_a + i * fold_key_step),
              pair.b ^ (fold_key_b + i * fold_key_step + bytes * fold_key_e));
}
// What the `i`-th of them add.
CORANK_HOST_DEVICE inline std::uint64_t fold_part(const std::byte* record, std::uint64_t bytes,
                                                  std::uint64_t i) {
  if (bytes < 16) return fold_pair(short_record(record, bytes), bytes, i);
  const std::byte* const at = record + (i < bytes / 16 ? 16 * i : bytes - 16);
  return fold_pair({load_little(at, 8), load_little(at + 8, 8)}, bytes, i);
}
// Of their sum.
CORANK_HOST_DEVICE inline std::uint64_t finish_folds(std::uint64_t sum, std::uint64_t bytes) {
  return bytes > 16 ? fold(sum ^ fold_key_c, (sum << 32 | sum >> 32) ^ fold_key_d) : sum;
}

}  // namespace detail

CORANK_HOST_DEVICE inline std::uint64_t fingerprint_of(const std::byte* record,
                                                       std::uint64_t bytes) {
  std::uint64_t sum = 0;
  const std::uint64_t whole = bytes / 16;
  for (std::uint64_t i = 0; i < whole; ++i) {
    const std::byte* const at = record + 16 * i;
    sum +=
        detail::fold_pair({detail::load_little(at, 8), detail::load_little(at + 8, 8)}, bytes, i);
  }
  if (bytes % 16 != 0) sum += detail::fold_part(record, bytes, whole);
  return detail::finish_folds(sum, bytes);
}

}  // namespace corank
