// Normalised keys: type, sign, byte order, direction and number of fields vanish here, once, so
// that everything after compares unsigned 64-bit words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "corank/host_device.hpp"
#include "corank/record.hpp"
#include "corank/text_key.hpp"

namespace corank {

// The first W words of a normalised key; the order of the words is the order of the records.
template <int W>
struct Key {
  static constexpr int words = W;
  std::uint64_t word[W];

  friend CORANK_HOST_DEVICE constexpr bool operator<(const Key& a, const Key& b) {
    for (int w = 0; w < W - 1; ++w)
      if (a.word[w] != b.word[w]) return a.word[w] < b.word[w];
    return a.word[W - 1] < b.word[W - 1];
  }
  friend CORANK_HOST_DEVICE constexpr bool operator==(const Key& a, const Key& b) {
    for (int w = 0; w < W; ++w)
      if (a.word[w] != b.word[w]) return false;
    return true;
  }
};

// The widest key that travels through a merge; what a longer key has beyond it, its tail, is
// looked at in the records only when two such prefixes are equal.
inline constexpr int max_key_words = 4;

enum class Transform : std::uint8_t { none, sign, floating };

// Up to eight bytes of a record and where they stand in the normalised key.
struct KeyPiece {
  std::uint32_t offset;  // in the record, bytes
  std::uint8_t bytes;    // 1 to 8
  std::uint8_t word;     // of the prefix; unused in the tail
  std::int8_t shift;     // to the left; negative: to the right, for the head of a split number
  Transform transform;
  bool big_endian;
  bool descending;
};

// A key encoding as plain data, to be passed to a device. Owns nothing.
struct KeyLayout {
  const KeyPiece* pieces;
  std::uint32_t prefix_pieces;  // the first pieces make up the prefix words
  std::uint32_t pieces_count;   // the rest, in order of significance, is the tail
  std::uint32_t record_bytes;
  // Null unless the records are entries: what they stand for then orders them, and is what counts.
  const TextLayout* text = nullptr;

  CORANK_HOST_DEVICE bool has_tail() const { return pieces_count > prefix_pieces || text; }
};

// How the records of a schema are ordered. Floats have one total order: -0.0 equals +0.0, every
// NaN equals every NaN and is greater than everything else; descending reverses all of it.
class KeyEncoding {
 public:
  KeyEncoding(const Schema& schema, const std::vector<KeyField>& keys);
  // Of entries that stand for records of variable length.
  explicit KeyEncoding(const TextLayout& text);

  KeyLayout layout() const {
    return {pieces_.data(), prefix_pieces_, static_cast<std::uint32_t>(pieces_.size()),
            record_bytes_, text_ ? &*text_ : nullptr};
  }
  std::uint32_t record_bytes() const { return record_bytes_; }
  // Words of the prefix: 1, 2 or 4.
  int prefix_words() const { return prefix_words_; }
  bool has_tail() const { return layout().has_tail(); }
  const std::vector<KeyPiece>& pieces() const { return pieces_; }

 private:
  std::vector<KeyPiece> pieces_;
  std::uint32_t prefix_pieces_ = 0;
  std::uint32_t record_bytes_ = 0;
  int prefix_words_ = 1;
  std::optional<TextLayout> text_;
};

namespace detail {

CORANK_HOST_DEVICE inline std::uint64_t byte_swap(std::uint64_t value) {
#ifdef __CUDA_ARCH__
  const auto low = static_cast<std::uint32_t>(value);
  const auto high = static_cast<std::uint32_t>(value >> 32);
  return static_cast<std::uint64_t>(__byte_perm(low, 0, 0x0123)) << 32 |
         __byte_perm(high, 0, 0x0123);
#else
  return __builtin_bswap64(value);
#endif
}

// The `bytes` bytes at `at` as a little-endian number; hosts and devices here are little-endian.
CORANK_HOST_DEVICE inline std::uint64_t load_little(const std::byte* at, unsigned bytes) {
#ifdef __CUDA_ARCH__
  // A device faults on a load that is not aligned to its size.
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  if (bytes == 8 && address % 8 == 0) return *reinterpret_cast<const std::uint64_t*>(at);
  if (bytes % 4 == 0 && address % 4 == 0) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(at);
    return bytes == 8 ? words[0] | static_cast<std::uint64_t>(words[1]) << 32 : words[0];
  }
  std::uint64_t value = 0;
  for (unsigned i = 0; i < bytes; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])) << (8 * i);
  return value;
#else
  std::uint64_t value = 0;
  switch (bytes) {  // constant sizes become single loads
    case 8:
      std::memcpy(&value, at, 8);
      break;
    case 4:
      std::memcpy(&value, at, 4);
      break;
    case 2:
      std::memcpy(&value, at, 2);
      break;
    case 1:
      std::memcpy(&value, at, 1);
      break;
    default:
      std::memcpy(&value, at, bytes);
  }
  return value;
#endif
}

// A key that is one integer of 64 bits: its word is the integer, swapped if big-endian, ^ `flip`.
struct SingleWordKey {
  std::uint32_t offset;  // in the record, bytes
  bool big_endian;
  std::uint64_t flip;
};

inline std::uint64_t word_of(const SingleWordKey& key, const std::byte* record) {
  const std::uint64_t raw = load_little(record + key.offset, 8);
  return (key.big_endian ? byte_swap(raw) : raw) ^ key.flip;
}

// Whether `count` records that lie end to end are in order, behind the one `before`, unless that is
// null, by keys of two words, high(record) and low(record).
template <class High, class Low>
bool two_words_ascend(const std::byte* before, const std::byte* records, std::size_t count,
                      std::size_t record_bytes, High high, Low low) {
  __extension__ typedef unsigned __int128 Wide;
  const auto key = [&](const std::byte* record) { return Wide{high(record)} << 64 | low(record); };
  Wide last = before ? key(before) : 0;
  std::uint64_t descents = 0;
  // Two at a time, between which nothing is moved.
  std::size_t i = 0;
  for (; i + 1 < count; i += 2) {
    const Wide next = key(records + i * record_bytes),
               after = key(records + (i + 1) * record_bytes);
    descents += next < last;
    descents += after < next;
    last = after;
  }
  if (i < count) descents += key(records + i * record_bytes) < last;
  return descents == 0;
}

}  // namespace detail

// The piece's bits, ordered as unsigned and placed where they stand in their word.
CORANK_HOST_DEVICE inline std::uint64_t normalise(const KeyPiece& piece, const std::byte* record) {
  const unsigned bits = 8u * piece.bytes;
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits);
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  std::uint64_t value = detail::load_little(record + piece.offset, piece.bytes);
  if (piece.big_endian) value = detail::byte_swap(value) >> (64 - bits);
  if (piece.transform == Transform::sign) {
    value ^= sign;
  } else if (piece.transform == Transform::floating) {
    const std::uint64_t infinity = bits == 64 ? 0x7ff0000000000000u : std::uint64_t{0x7f800000u};
    const std::uint64_t magnitude = value & ~sign;
    if (magnitude > infinity)
      value = mask;  // NaN
    else if (magnitude == 0)
      value = sign;
    else
      value = (value & sign) ? ~value & mask : value | sign;
  }
  if (piece.descending) value ^= mask;
  return piece.shift >= 0 ? value << piece.shift : value >> -piece.shift;
}

template <int W>
CORANK_HOST_DEVICE inline Key<W> encode(const KeyLayout& layout, const std::byte* record) {
  Key<W> key{};
  for (std::uint32_t p = 0; p < layout.prefix_pieces; ++p) {
    const std::uint64_t bits = normalise(layout.pieces[p], record);
    for (int w = 0; w < W; ++w)  // a run-time index would push a device's key out of registers
      if (w == layout.pieces[p].word) key.word[w] |= bits;
  }
  return key;
}

// Whether `a` sorts before `b` by their tails alone; for records whose prefixes are equal.
CORANK_HOST_DEVICE inline bool tail_less(const KeyLayout& layout, const std::byte* a,
                                         const std::byte* b) {
  if (layout.text)
    return text_less(*layout.text, *reinterpret_cast<const PrefixRef*>(a),
                     *reinterpret_cast<const PrefixRef*>(b));
  for (std::uint32_t p = layout.prefix_pieces; p < layout.pieces_count; ++p) {
    const std::uint64_t x = normalise(layout.pieces[p], a);
    const std::uint64_t y = normalise(layout.pieces[p], b);
    if (x != y) return x < y;
  }
  return false;
}

// The order of whole records; the definition that every merge is held to.
CORANK_HOST_DEVICE inline bool record_less(const KeyLayout& layout, const std::byte* a,
                                           const std::byte* b) {
#ifdef __CUDA_ARCH__
  const Key<max_key_words> x = encode<max_key_words>(layout, a);
  const Key<max_key_words> y = encode<max_key_words>(layout, b);
  return x == y ? tail_less(layout, a, b) : x < y;
#else
  // The first piece that differs decides: no need to look at the others.
  for (std::uint32_t p = 0; p < layout.prefix_pieces; ++p) {
    const std::uint64_t x = normalise(layout.pieces[p], a);
    const std::uint64_t y = normalise(layout.pieces[p], b);
    if (x != y) return x < y;
  }
  return tail_less(layout, a, b);
#endif
}

// The bytes of records that lie end to end and that `count` entries, more than 0, stand for.
inline std::span<const std::byte> bytes_of(const TextLayout& layout, const std::byte* entries,
                                           std::uint64_t count) {
  const auto* const first = reinterpret_cast<const PrefixRef*>(entries);
  const PrefixRef& last = first[count - 1];
  return {record_of(*first), record_of(last) + record_bytes(layout, last)};
}
// The same of any records that lie end to end.
inline std::span<const std::byte> bytes_of(const KeyLayout& layout, const std::byte* records,
                                           std::uint64_t count) {
  if (layout.text) return bytes_of(*layout.text, records, count);
  return {records, count * layout.record_bytes};
}

// Encodes the prefixes of `count` records that lie end to end; faster than one by one.
template <int W>
void encode_keys(const KeyLayout& layout, const std::byte* records, std::uint64_t count,
                 Key<W>* keys);
// The same of records that lie anywhere.
template <int W>
void encode_keys(const KeyLayout& layout, std::span<const std::byte* const> records, Key<W>* keys);

}  // namespace corank
