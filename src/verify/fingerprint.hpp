// Order-independent fingerprints of records, cheap enough to verify every merge. All functions are
// thread-safe. Values are the same only for processes that use the same implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "corank/key.hpp"
#include "corank/text_key.hpp"
#include "format/rows.hpp"

namespace corank {

// Returns the sum modulo 2^64 of a 64-bit fingerprint of every record. Equal multisets of records
// have equal sums, whatever their order and however they are cut into blocks. Every bit counts with
// its position, so bytes swapped within a record or between records change the sum. An accidental
// change goes unnoticed with a probability near 2^-64.
using FingerprintSum = std::uint64_t (*)(std::span<const std::byte> records,
                                         std::uint32_t record_bytes);

// Returns the implementations that this processor supports, the fastest first and
// portable_fingerprint last. Each computes values of its own.
std::span<const FingerprintSum> fingerprint_sums();

// The implementation that the host and devices share: the sum of all records' fingerprint_of().
std::uint64_t portable_fingerprint(std::span<const std::byte> records, std::uint32_t record_bytes);

// Returns the sum of the fingerprints of the records that `refs` point to; a fingerprint
// includes the record's length. Values are comparable only if computed with the same `sum`.
std::uint64_t prefix_refs_fingerprint(FingerprintSum sum, const TextLayout& layout,
                                      std::span<const PrefixRef> refs);

// Returns the sum of the fingerprints of contiguous rows' records.
inline std::uint64_t rows_fingerprint(FingerprintSum sum, const KeyLayout& layout,
                                      const std::byte* rows, std::uint64_t count) {
  return visit_rows(layout, rows, count, sum, [sum](const auto& of, const auto& refs) {
    return prefix_refs_fingerprint(sum, of, refs);
  });
}

// Returns the sum of the fingerprints of contiguous records.
inline std::uint64_t records_fingerprint(FingerprintSum sum, const KeyLayout& layout,
                                         std::span<const std::byte> records) {
  std::uint64_t fingerprint = 0;
  RowReader batch(layout, records);
  while (batch.next()) fingerprint += rows_fingerprint(sum, layout, batch.rows(), batch.count());
  return fingerprint;
}

// A fingerprint sum, and whether the records were found to be in order.
struct OrderedSum {
  std::uint64_t sum;
  bool ascends;  // true only if all records are certainly in order
};
// Computes the fingerprint sum and checks the order in one pass; `strict` also rejects equal
// neighbours. Returns nothing if there is no such implementation for `sum` and these keys.
// `records` must not be empty; they are rows of the layout.
std::optional<OrderedSum> sum_and_order(FingerprintSum sum, const KeyLayout& layout,
                                        std::span<const std::byte> records, bool strict);
// Computes the fingerprint sum of lines and checks that their bytes ascend. `ends` holds the
// offsets of their terminators from `lines`. `last` is the line before them, empty if there is
// none; it becomes the last of them. Returns nothing if there is no such implementation for `sum`.
std::optional<OrderedSum> sum_and_order(FingerprintSum sum, const std::byte* lines,
                                        std::span<const std::uint32_t> ends, bool strict,
                                        std::string_view& last);

namespace detail {

// Digits of pi: constants that no data has reason to contain.
inline constexpr std::uint64_t fold_key_a = 0x243f6a8885a308d3, fold_key_b = 0x13198a2e03707344,
                               fold_key_step = 0xa4093822299f31d0, fold_key_c = 0x082efa98ec4e6c89,
                               fold_key_d = 0x452821e638d01377, fold_key_e = 0xbe5466cf34e90c6c;

// Returns both halves of the product, combined by exclusive or. A sum of plain products would not
// change if values swapped places between records and the sum of the products stayed.
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
// Returns all bytes of a record of fewer than 16 bytes as two words, which may overlap.
CORANK_HOST_DEVICE inline Pair short_record(const std::byte* record, std::uint64_t bytes) {
  const unsigned word = bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1;
  return {load_little(record, word), bytes == 1 ? 0 : load_little(record + bytes - word, word)};
}

// Returns the number of 16-byte blocks that a record is hashed in; the last may overlap the one
// before.
CORANK_HOST_DEVICE constexpr std::uint64_t folds(std::uint64_t record_bytes) {
  return record_bytes / 16 + (record_bytes % 16 != 0);
}
CORANK_HOST_DEVICE inline std::uint64_t fold_pair(const Pair& pair, std::uint64_t bytes,
                                                  std::uint64_t i) {
  // The length tells these 16 bytes from equal ones of a record of another length.
  return fold(pair.a ^ (fold_key_a + i * fold_key_step),
              pair.b ^ (fold_key_b + i * fold_key_step + bytes * fold_key_e));
}
// Returns the contribution of a record's block `i`.
CORANK_HOST_DEVICE inline std::uint64_t fold_part(const std::byte* record, std::uint64_t bytes,
                                                  std::uint64_t i) {
  if (bytes < 16) return fold_pair(short_record(record, bytes), bytes, i);
  const std::byte* const at = record + (i < bytes / 16 ? 16 * i : bytes - 16);
  return fold_pair({load_little(at, 8), load_little(at + 8, 8)}, bytes, i);
}
// Returns the fingerprint of a record from the sum of its blocks' contributions.
CORANK_HOST_DEVICE inline std::uint64_t finish_folds(std::uint64_t sum, std::uint64_t bytes) {
  return bytes > 16 ? fold(sum ^ fold_key_c, (sum << 32 | sum >> 32) ^ fold_key_d) : sum;
}

}  // namespace detail

// Returns the portable fingerprint of one record.
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
