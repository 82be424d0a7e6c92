#include "corank/key.hpp"

#include <algorithm>
#include <type_traits>

namespace corank {

KeyEncoding::KeyEncoding(const Schema& schema, const std::vector<KeyField>& keys)
    : record_bytes_(schema.record_bytes) {
  static const std::vector<KeyField> first_field{{0}};
  std::uint32_t at = 0;  // bits of the normalised key so far
  const auto place = [&](KeyPiece piece, std::uint32_t bits) {
    // A number that crosses a word boundary has two pieces: the high bits in this word, the rest in
    // the next.
    const std::uint32_t room = 64 - at % 64;
    piece.word = static_cast<std::uint8_t>(std::min(at / 64, 255u));
    piece.shift = static_cast<std::int8_t>(static_cast<int>(room) - static_cast<int>(bits));
    pieces_.push_back(piece);
    if (at / 64 < max_key_words) ++prefix_pieces_;
    if (bits > room) {
      piece.word = static_cast<std::uint8_t>(std::min(at / 64 + 1, 255u));
      piece.shift = static_cast<std::int8_t>(64 + static_cast<int>(room) - static_cast<int>(bits));
      pieces_.push_back(piece);
      if (at / 64 + 1 < max_key_words) ++prefix_pieces_;
    }
    at += bits;
  };

  for (const KeyField& key : keys.empty() ? first_field : keys) {
    const Field& field = schema.fields[key.field];
    KeyPiece piece{};
    piece.offset = field.offset;
    piece.descending = key.descending;
    if (field.kind == FieldKind::bytes) {
      piece.big_endian = true;
      for (std::uint32_t left = field.bytes; left != 0;) {
        // Byte strings are split at word boundaries.
        const std::uint32_t bytes = std::min(left, 8 - at / 8 % 8);
        piece.bytes = static_cast<std::uint8_t>(bytes);
        place(piece, 8 * bytes);
        piece.offset += bytes;
        left -= bytes;
      }
    } else {
      piece.bytes = static_cast<std::uint8_t>(field.bytes);
      piece.big_endian = field.big_endian;
      piece.transform = field.kind == FieldKind::signed_integer ? Transform::sign
                        : field.kind == FieldKind::floating     ? Transform::floating
                                                                : Transform::none;
      place(piece, 8 * field.bytes);
    }
  }
  const std::uint32_t words = (at + 63) / 64;
  prefix_words_ = words <= 1 ? 1 : words <= 2 ? 2 : max_key_words;
}

KeyEncoding::KeyEncoding(const TextLayout& text)
    : pieces_{KeyPiece{offsetof(PrefixRef, word), sizeof(PrefixRef::word), 0, 0, Transform::none,
                       false, false}},
      prefix_pieces_(1),
      record_bytes_(sizeof(PrefixRef)),
      text_(text) {}

namespace {

// Calls `use` with a function that normalises the piece of one record, as normalise() does.
// Everything that does not depend on the record is decided before the call.
template <class Use>
void with_piece(const KeyPiece& piece, Use use) {
  const auto number = [&]<class T>(T) {
    const unsigned bits = 8 * sizeof(T);
    const std::uint64_t flip =
        (piece.transform == Transform::sign ? std::uint64_t{1} << (bits - 1) : 0) ^
        (piece.descending ? ~std::uint64_t{0} >> (64 - bits) : 0);
    const unsigned left = piece.shift > 0 ? static_cast<unsigned>(piece.shift) : 0;
    const unsigned right = piece.shift < 0 ? static_cast<unsigned>(-piece.shift) : 0;
    const auto read = [=, offset = piece.offset](auto big_endian) {
      return [=](const std::byte* record) {
        std::uint64_t value = detail::load_little(record + offset, sizeof(T));
        if (big_endian) value = detail::byte_swap(value) >> (64 - bits);
        return (value ^ flip) << left >> right;
      };
    };
    if (piece.big_endian)
      use(read(std::true_type{}));
    else
      use(read(std::false_type{}));
  };
  if (piece.transform != Transform::floating) {
    switch (piece.bytes) {
      case 8:
        return number(std::uint64_t{});
      case 4:
        return number(std::uint32_t{});
      case 2:
        return number(std::uint16_t{});
      case 1:
        return number(std::uint8_t{});
    }
  }
  use([&piece](const std::byte* record) { return normalise(piece, record); });
}

// Encodes the keys of `count` records; record(i) returns the address of record i.
template <int W, class Record>
void encode_all(const KeyLayout& layout, std::uint64_t count, Record record, Key<W>* keys) {
  // The first piece of a word, which is often its only one, assigns it; later pieces are ORed in.
  int words = 0;
  for (std::uint32_t p = 0; p < layout.prefix_pieces; ++p) {
    const int word = layout.pieces[p].word;
    const bool sets = word == words;
    words = word + 1;
    with_piece(layout.pieces[p], [&, record](auto bits) {
      if (sets)
        for (std::uint64_t i = 0; i < count; ++i) keys[i].word[word] = bits(record(i));
      else
        for (std::uint64_t i = 0; i < count; ++i) keys[i].word[word] |= bits(record(i));
    });
  }
  for (; words < W; ++words)
    for (std::uint64_t i = 0; i < count; ++i) keys[i].word[words] = 0;
}

}  // namespace

template <int W>
void encode_keys(const KeyLayout& layout, const std::byte* records, std::uint64_t count,
                 Key<W>* keys) {
  encode_all(
      layout, count,
      [records, stride = std::uint64_t{layout.record_bytes}](std::uint64_t i) {
        return records + i * stride;
      },
      keys);
}

template <int W>
void encode_keys(const KeyLayout& layout, std::span<const std::byte* const> records, Key<W>* keys) {
  encode_all(
      layout, records.size(), [records](std::uint64_t i) { return records[i]; }, keys);
}

template void encode_keys(const KeyLayout&, const std::byte*, std::uint64_t, Key<1>*);
template void encode_keys(const KeyLayout&, const std::byte*, std::uint64_t, Key<2>*);
template void encode_keys(const KeyLayout&, const std::byte*, std::uint64_t, Key<4>*);
template void encode_keys(const KeyLayout&, std::span<const std::byte* const>, Key<1>*);

}  // namespace corank
