#include "order.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace corank {
namespace {

// Their keys stay in the first cache.
constexpr std::uint64_t block_records = most_neighbours;

// `flip` makes signed and descending numbers ascend as unsigned ones.
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
  // Masks as wide as the numbers: with bools GCC 12 makes no vectors of this.
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
    if ((stride == 16 || stride == 8) && __builtin_cpu_supports("avx2")) {
      const auto compare = stride == 16       ? piece.big_endian
                                                    ? compare_integers_avx2<Number, true, 16>
                                                    : compare_integers_avx2<Number, false, 16>
                                 : piece.big_endian ? compare_integers_avx2<Number, true, 8>
                                              : compare_integers_avx2<Number, false, 8>;
      return compare(number, flip, count);
    }
#endif
  return (piece.big_endian ? compare_integers<Number, true>
                           : compare_integers<Number, false>)(number, flip, count, stride);
}

bool more_than_a_word(const KeyLayout& layout) {
  return layout.has_tail() || layout.pieces[layout.prefix_pieces - 1].word != 0;
}

}  // namespace

Neighbours compare_first_words(const KeyLayout& layout, const std::byte* records,
                               std::uint64_t count) {
  std::uint32_t pieces = 1;
  while (pieces < layout.prefix_pieces && layout.pieces[pieces].word == 0) ++pieces;
  const KeyPiece& piece = layout.pieces[0];
  if (pieces == 1 && piece.transform != Transform::floating) {
    if (piece.bytes == 8)
      return compare_by<std::uint64_t>(piece, layout.record_bytes, records, count);
    if (piece.bytes == 4)
      return compare_by<std::uint32_t>(piece, layout.record_bytes, records, count);
  }
  Key<1> keys[block_records];
  encode_keys({layout.pieces, pieces, pieces, layout.record_bytes}, records, count, keys);
  Neighbours found;
  for (std::uint64_t i = 1; i < count; ++i) {
    found.descend |= keys[i] < keys[i - 1];
    found.tie |= keys[i] == keys[i - 1];
  }
  return found;
}

std::uint64_t first_descent(const KeyLayout& layout, const std::byte* records, std::uint64_t count,
                            bool strict) {
  if (layout.text) {
    const auto* const entries = reinterpret_cast<const Entry*>(records);
    for (std::uint64_t i = 1; i < count; ++i)
      if (entries[i].word <= entries[i - 1].word &&
          (strict ? !text_less(*layout.text, entries[i - 1], entries[i])
                  : text_less(*layout.text, entries[i], entries[i - 1])))
        return i;
    return count;
  }
  // A block begins with the last record of the one before it.
  for (std::uint64_t first = 0; first + 1 < count; first += block_records - 1) {
    const std::byte* const block = records + first * layout.record_bytes;
    const std::uint64_t in_block = std::min(block_records, count - first);
    const Neighbours found = compare_first_words(layout, block, in_block);
    if (!found.descend && !(found.tie && (strict || more_than_a_word(layout)))) continue;
    for (std::uint64_t i = 1; i < in_block; ++i) {
      const std::byte* const record = block + i * layout.record_bytes;
      const std::byte* const before = record - layout.record_bytes;
      if (strict ? !record_less(layout, before, record) : record_less(layout, record, before))
        return first + i;
    }
  }
  return count;
}

}  // namespace corank
