#include "format/key_order.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "util/cpu_features.hpp"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace corank {
namespace {

// Records per block, whose keys fit the L1 cache.
constexpr std::uint64_t block_records = max_neighbours;

// Compares `count` numbers, `stride` bytes apart, with their predecessors. The XOR with `flip`
// makes signed and descending numbers ascend as unsigned ones.
template <class Number, bool big_endian, class Stride>
inline __attribute__((always_inline)) Neighbours compare_numbers(const std::byte* number,
                                                                 Number flip, std::uint64_t count,
                                                                 Stride stride) {
  const auto key = [=](std::uint64_t i) {
    Number value;
    std::memcpy(&value, number + i * stride, sizeof value);
    if constexpr (big_endian)
      value = static_cast<Number>(detail::byte_swap(value) >> (64 - 8 * sizeof(Number)));
    return static_cast<Number>(value ^ flip);
  };
  // Masks have the width of the numbers, because some compilers do not vectorise the loop with
  // bools.
  Number descend = 0;
  Number tie = 0;
  for (std::uint64_t i = 1; i < count; ++i) {
    descend |= key(i) < key(i - 1) ? ~Number{0} : Number{0};
    tie |= key(i) == key(i - 1) ? ~Number{0} : Number{0};
  }
  return {descend != 0, tie != 0};
}

template <class Number, bool big_endian>
Neighbours compare_integers(const std::byte* number, Number flip, std::uint64_t count,
                            std::uint32_t stride) {
  return compare_numbers<Number, big_endian>(number, flip, count, stride);
}

#ifdef __x86_64__
template <class Number, bool big_endian, std::uint32_t stride>
__attribute__((target("avx2"))) Neighbours compare_integers_avx2(const std::byte* number,
                                                                 Number flip, std::uint64_t count) {
  return compare_numbers<Number, big_endian>(number, flip, count,
                                             std::integral_constant<std::uint64_t, stride>());
}

// Compares little-endian 8-byte numbers, 16 bytes apart. Faster than the vectorised loop in
// compare_numbers(), because it loads two records at a time and discards the rest.
__attribute__((target("avx2"))) Neighbours compare_by_16(const std::byte* number,
                                                         std::uint64_t flip, std::uint64_t count) {
  constexpr std::uint64_t sign = std::uint64_t{1} << 63;  // AVX2 compares signed numbers
  const __m256i flips = _mm256_set1_epi64x(static_cast<long long>(flip ^ sign));
  const auto four_from = [&](std::uint64_t i) __attribute__((target("avx2"), always_inline)) {
    const auto* const at = reinterpret_cast<const __m256i*>(number + 16 * i);
    const __m256i numbers =
        _mm256_unpacklo_epi64(_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1));
    return _mm256_xor_si256(numbers, flips);
  };
  __m256i descend = _mm256_setzero_si256(), tie = descend;
  std::uint64_t i = 0;
  // Each load reads 16 bytes from a number on, which may cross into the next record. The loop
  // therefore ends while a next record exists.
  for (; i + 5 < count; i += 4) {
    const __m256i four = four_from(i), next = four_from(i + 1);
    descend = _mm256_or_si256(descend, _mm256_cmpgt_epi64(four, next));
    tie = _mm256_or_si256(tie, _mm256_cmpeq_epi64(four, next));
  }
  const auto rest = compare_integers<std::uint64_t, false>(number + 16 * i, flip, count - i, 16);
  return {rest.descend || !_mm256_testz_si256(descend, descend),
          rest.tie || !_mm256_testz_si256(tie, tie)};
}
#endif

template <class Number>
Neighbours compare_by(const KeyPiece& piece, std::uint32_t stride, const std::byte* records,
                      std::uint64_t count) {
  const auto sign = static_cast<Number>(Number{1} << (8 * sizeof(Number) - 1));
  const auto flip = static_cast<Number>((piece.transform == Transform::sign ? sign : 0) ^
                                        (piece.descending ? ~Number{0} : 0));
  const std::byte* const number = records + piece.offset;
#ifdef __x86_64__
  if constexpr (sizeof(Number) == 8)
    if ((stride == 16 || stride == 8) && cpu_features().has_avx2) {
      if (stride == 16 && !piece.big_endian) return compare_by_16(number, flip, count);
      const auto compare = stride == 16       ? compare_integers_avx2<Number, true, 16>
                           : piece.big_endian ? compare_integers_avx2<Number, true, 8>
                                              : compare_integers_avx2<Number, false, 8>;
      return compare(number, flip, count);
    }
#endif
  return (piece.big_endian ? compare_integers<Number, true>
                           : compare_integers<Number, false>)(number, flip, count, stride);
}

// Returns the first record of a block that sorts before its predecessor, or is equal to it if
// `strict`; `count` if there is none. Compares piece by piece, as long as some neighbours are
// equal.
std::uint64_t descent_in_block(const KeyLayout& layout, const std::byte* records,
                               std::uint64_t count, bool strict) {
  std::array<bool, block_records> equal;  // to the predecessor, in the pieces compared so far
  equal.fill(true);
  Key<1> keys[block_records];
  bool undecided = true;
  for (std::uint32_t p = 0; p < layout.pieces_count && undecided; ++p) {
    KeyPiece piece = layout.pieces[p];
    piece.word = 0;
    encode_keys({&piece, 1, 1, layout.record_bytes}, records, count, keys);
    undecided = false;
    for (std::uint64_t i = 1; i < count; ++i) {
      if (!equal[i]) continue;
      if (keys[i] < keys[i - 1]) count = i;  // later records no longer matter
      equal[i] = keys[i] == keys[i - 1];
      undecided |= equal[i];
    }
  }
  if (!strict || count == 0) return count;
  return static_cast<std::uint64_t>(std::find(equal.data() + 1, equal.data() + count, true) -
                                    equal.data());
}

std::uint64_t first_text_descent(const TextLayout& text, std::span<const PrefixRef> entries,
                                 bool strict) {
  const auto follows = [&](std::size_t i) {
    return strict ? text_less(text, entries[i - 1], entries[i])
                  : !text_less(text, entries[i], entries[i - 1]);
  };
  const TextColumn& column = text.columns[0];
  const bool one_string = text.columns_count == 1 && column.type == TextType::bytes;
  // Each column is located once: it is compared with the one before, then with the one after.
  detail::TextField field{};
  std::size_t sought = entries.size();
  const auto seek = [&](std::size_t i) {
    sought = i;
    return detail::Columns(text, record_of(entries[i]),
                           record_bytes(text, entries[i]))(column.column);
  };
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].word > entries[i - 1].word) continue;
    if (!one_string || entries[i].word < entries[i - 1].word ||
        detail::holds_column(text, column, entries[i].word)) {
      if (!follows(i)) return i;
      continue;
    }
    const detail::TextField before = sought == i - 1 ? field : seek(i - 1);
    field = seek(i);
    const int order = detail::compare_strings(before, field, column.nocase);
    if (column.descending ? order < strict : order > -static_cast<int>(strict)) return i;
  }
  return entries.size();
}

bool more_than_a_word(const KeyLayout& layout) {
  return layout.has_tail() || layout.pieces[layout.prefix_pieces - 1].word != 0;
}

}  // namespace

std::optional<detail::SingleWordKey> first_word(const KeyLayout& layout) {
  if (layout.text) return std::nullopt;
  const KeyPiece& piece = layout.pieces[0];
  if (piece.bytes != 8 || piece.transform == Transform::floating) return std::nullopt;
  return detail::SingleWordKey{piece.offset, piece.big_endian,
                               (piece.transform == Transform::sign ? std::uint64_t{1} << 63 : 0) ^
                                   (piece.descending ? ~std::uint64_t{0} : 0)};
}

std::optional<TwoWords> two_words(const KeyLayout& layout) {
  if (layout.text || layout.pieces_count != 2) return std::nullopt;
  const std::optional<detail::SingleWordKey> high = first_word(layout);
  const KeyPiece& piece = layout.pieces[1];
  // The second word is loaded as the eight bytes of the record that end with the string.
  if (!high || !piece.big_endian || piece.transform != Transform::none ||
      piece.offset + piece.bytes < 8)
    return std::nullopt;
  const std::uint64_t flip = piece.descending ? ~std::uint64_t{0} : 0;
  return TwoWords{*high, {piece.offset + piece.bytes - 8, true, flip}, 64u - 8 * piece.bytes};
}

bool TwoWords::ascend(const std::byte* before, const std::byte* records, std::uint64_t count,
                      std::uint32_t record_bytes) const {
  const TwoWords by = *this;  // a local copy stays in registers
  return detail::two_words_ascend(
      before, records, count, record_bytes,
      [by](const std::byte* record) { return detail::word_of(by.high, record); },
      [by](const std::byte* record) { return detail::word_of(by.low, record) << by.other_bits; });
}

KeyLayout first_word_layout(const KeyLayout& layout) {
  std::uint32_t pieces = 0;
  while (pieces < layout.prefix_pieces && layout.pieces[pieces].word == 0) ++pieces;
  return {layout.pieces, pieces, pieces, layout.record_bytes};
}

Neighbours compare_first_words(const KeyLayout& layout, const std::byte* records,
                               std::uint64_t count) {
  const KeyLayout first_word = first_word_layout(layout);
  const KeyPiece& piece = layout.pieces[0];
  if (first_word.pieces_count == 1 && piece.transform != Transform::floating) {
    if (piece.bytes == 8)
      return compare_by<std::uint64_t>(piece, layout.record_bytes, records, count);
    if (piece.bytes == 4)
      return compare_by<std::uint32_t>(piece, layout.record_bytes, records, count);
  }
  Key<1> keys[block_records];
  encode_keys(first_word, records, count, keys);
  Neighbours found;
  for (std::uint64_t i = 1; i < count; ++i) {
    found.descend |= keys[i] < keys[i - 1];
    found.tie |= keys[i] == keys[i - 1];
  }
  return found;
}

std::uint64_t first_descent(const KeyLayout& layout, const std::byte* records, std::uint64_t count,
                            bool strict) {
  if (layout.text)
    return first_text_descent(*layout.text, {reinterpret_cast<const PrefixRef*>(records), count},
                              strict);
  const bool ties = strict || more_than_a_word(layout);
  const std::optional<TwoWords> two = strict ? std::nullopt : two_words(layout);
  // Blocks overlap by one record, so that the first record of each has its predecessor.
  for (std::uint64_t first = 0; first + 1 < count; first += block_records - 1) {
    const std::byte* const block = records + first * layout.record_bytes;
    const std::uint64_t in_block = std::min(block_records, count - first);
    const Neighbours found = compare_first_words(layout, block, in_block);
    if (!found.descend && !(found.tie && ties)) continue;
    if (two && two->ascend(nullptr, block, in_block, layout.record_bytes)) continue;
    const std::uint64_t descent = descent_in_block(layout, block, in_block, strict);
    if (descent != in_block) return first + descent;
  }
  return count;
}

std::optional<char> end_of_bytewise(const KeyLayout& layout) {
  if (!layout.text || layout.text->kind != TextKind::lines || !layout.text->whole_line())
    return std::nullopt;
  return layout.text->terminator;
}

}  // namespace corank
