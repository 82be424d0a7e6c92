// Normalised keys: encode the key fields of a record as unsigned 64-bit words whose order is that
// of the records.
//
// Type, sign, byte order, direction and number of fields end here, so that all later code compares
// words. KeyEncoding owns an encoding and is immutable, hence thread-safe; KeyLayout is a view of
// it for host and device code. Record pointers need no alignment. Nothing here throws Error.
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

// First W words of a normalised key, most significant first.
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

// Max number of words in the prefix, the part of a key that is extracted for merging. The rest of a
// longer key, its tail, is read from the records, only if two prefixes are equal.
inline constexpr int max_key_words = 4;

// Maps bits to unsigned order: `sign` for signed integers, `floating` for IEEE 754 numbers.
enum class Transform : std::uint8_t { none, sign, floating };

// Up to eight bytes of a record, and their place in the normalised key.
struct KeyPiece {
  std::uint32_t offset;  // from the start of the record, in bytes
  std::uint8_t bytes;    // size: 1 to 8
  std::uint8_t word;     // index of the prefix word; unused in the tail
  std::int8_t shift;     // left shift; negative: right, if the number continues in the next word
  Transform transform;
  bool big_endian;
  bool descending;
};

// Key encoding as plain data, which can be passed to a device. Owns nothing.
struct KeyLayout {
  const KeyPiece* pieces;       // most significant first
  std::uint32_t prefix_pieces;  // leading pieces that make up the prefix words
  std::uint32_t pieces_count;   // all pieces; those after the prefix make up the tail
  std::uint32_t record_bytes;
  // Set if the records are prefix references: the records that they point to define the order.
  const TextLayout* text = nullptr;

  // Returns whether equal prefixes may belong to different keys.
  CORANK_HOST_DEVICE bool has_tail() const { return pieces_count > prefix_pieces || text; }
};

// Order of records. Floats have a total order: -0.0 equals +0.0, and every NaN equals every other
// NaN and is greater than all numbers. A descending key reverses all of that.
class KeyEncoding {
 public:
  // Encodes fixed-size records; empty `keys` mean the first field, ascending. Fields must exist in
  // `schema`.
  KeyEncoding(const Schema& schema, const std::vector<KeyField>& keys);
  // Encodes prefix references to variable-length records. The columns of `text` must outlive it.
  explicit KeyEncoding(const TextLayout& text);

  // Returns a view, valid until the encoding is moved or destroyed.
  KeyLayout layout() const {
    return {pieces_.data(), prefix_pieces_, static_cast<std::uint32_t>(pieces_.size()),
            record_bytes_, text_ ? &*text_ : nullptr};
  }
  std::uint32_t record_bytes() const { return record_bytes_; }
  // Returns the number of prefix words: 1, 2 or 4.
  int prefix_words() const { return prefix_words_; }
  bool has_tail() const { return layout().has_tail(); }
  const std::vector<KeyPiece>& pieces() const { return pieces_; }
  // Returns the key columns of variable-length records; none if records have a fixed size.
  std::span<const TextColumn> columns() const {
    if (!text_) return {};
    return {text_->columns, text_->columns_count};
  }

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

// Loads `bytes` bytes, 1 to 8, as a little-endian number. Hosts and devices are little-endian.
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

// Key that is one 64-bit integer. Its word is that integer, byte-swapped if big-endian, XOR `flip`.
struct SingleWordKey {
  std::uint32_t offset;  // from the start of the record, in bytes
  bool big_endian;
  std::uint64_t flip;
};

inline std::uint64_t word_of(const SingleWordKey& key, const std::byte* record) {
  const std::uint64_t raw = load_little(record + key.offset, 8);
  return (key.big_endian ? byte_swap(raw) : raw) ^ key.flip;
}

// Returns whether `count` contiguous records are in order by the two-word key high(record),
// low(record). The first must not sort before the record `before`, unless that is null.
template <class High, class Low>
bool two_words_ascend(const std::byte* before, const std::byte* records, std::size_t count,
                      std::size_t record_bytes, High high, Low low) {
  __extension__ typedef unsigned __int128 Wide;
  const auto key = [&](const std::byte* record) { return Wide{high(record)} << 64 | low(record); };
  Wide last = before ? key(before) : 0;
  std::uint64_t descents = 0;
  // Unrolled by two, which saves moving the last key between registers.
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

// Returns the bits of one piece, in unsigned order and shifted to their place in the word.
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

// Returns the first W words of the record's key, up to its tail. Words that the key lacks are 0.
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

// Returns whether `a` sorts before `b` by the tails of their keys. Their prefixes must be equal.
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

// Returns whether `a` sorts before `b`. Defines the order of records: every merge must agree.
CORANK_HOST_DEVICE inline bool record_less(const KeyLayout& layout, const std::byte* a,
                                           const std::byte* b) {
#ifdef __CUDA_ARCH__
  const Key<max_key_words> x = encode<max_key_words>(layout, a);
  const Key<max_key_words> y = encode<max_key_words>(layout, b);
  return x == y ? tail_less(layout, a, b) : x < y;
#else
  // The first piece that differs decides, so the others need not be encoded.
  for (std::uint32_t p = 0; p < layout.prefix_pieces; ++p) {
    const std::uint64_t x = normalise(layout.pieces[p], a);
    const std::uint64_t y = normalise(layout.pieces[p], b);
    if (x != y) return x < y;
  }
  return tail_less(layout, a, b);
#endif
}

// Return the bytes of `count` contiguous records, at least 1. For prefix references, `entries`,
// these are the bytes of the records that they point to, which must be contiguous.
inline std::span<const std::byte> bytes_of(const TextLayout& layout, const std::byte* entries,
                                           std::uint64_t count) {
  const auto* const first = reinterpret_cast<const PrefixRef*>(entries);
  const PrefixRef& last = first[count - 1];
  return {record_of(*first), record_of(last) + record_bytes(layout, last)};
}
inline std::span<const std::byte> bytes_of(const KeyLayout& layout, const std::byte* records,
                                           std::uint64_t count) {
  if (layout.text) return bytes_of(*layout.text, records, count);
  return {records, count * layout.record_bytes};
}

// Encode the key prefixes of many records into `keys`, which must have room for them. Faster than
// encode() for each. The records are contiguous, or anywhere.
template <int W>
void encode_keys(const KeyLayout& layout, const std::byte* records, std::uint64_t count,
                 Key<W>* keys);
template <int W>
void encode_keys(const KeyLayout& layout, std::span<const std::byte* const> records, Key<W>* keys);

}  // namespace corank
