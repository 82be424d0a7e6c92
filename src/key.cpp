#include "corank/key.hpp"

#include <algorithm>

namespace corank {

KeyEncoding::KeyEncoding(const Schema& schema, const std::vector<KeyField>& keys)
    : record_bytes_(schema.record_bytes) {
  static const std::vector<KeyField> first_field{{0}};
  std::uint32_t at = 0;  // bits of the normalised key so far
  const auto place = [&](KeyPiece piece, std::uint32_t bits) {
    // A number that crosses a word's end stands in both words: its head here, its rest below.
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
        // Bytes are split where a word ends.
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

template <int W>
void encode_keys(const KeyLayout& layout, const std::byte* records, std::uint64_t count,
                 Key<W>* keys) {
  // The commonest key, a whole word, is encoded in one loop without a look at its description.
  const auto whole_word = [&](auto big_endian, auto flip) {
    const std::byte* at = records + layout.pieces[0].offset;
    for (std::uint64_t i = 0; i < count; ++i, at += layout.record_bytes) {
      std::uint64_t value = detail::load_little(at, 8);
      if (big_endian) value = detail::byte_swap(value);
      keys[i].word[0] = value ^ flip;
    }
  };
  const KeyPiece& head = layout.pieces[0];
  if (W == 1 && layout.prefix_pieces == 1 && head.bytes == 8 &&
      head.transform != Transform::floating) {
    const std::uint64_t flip = (head.transform == Transform::sign ? std::uint64_t{1} << 63 : 0) ^
                               (head.descending ? ~std::uint64_t{0} : 0);
    if (head.big_endian)
      whole_word(std::true_type{}, flip);
    else
      whole_word(std::false_type{}, flip);
    return;
  }
  std::fill_n(keys, count, Key<W>{});
  for (std::uint32_t p = 0; p < layout.prefix_pieces; ++p) {
    const KeyPiece piece = layout.pieces[p];
    const std::byte* record = records;
    for (std::uint64_t i = 0; i < count; ++i, record += layout.record_bytes)
      keys[i].word[piece.word] |= normalise(piece, record);
  }
}

template void encode_keys(const KeyLayout&, const std::byte*, std::uint64_t, Key<1>*);
template void encode_keys(const KeyLayout&, const std::byte*, std::uint64_t, Key<2>*);
template void encode_keys(const KeyLayout&, const std::byte*, std::uint64_t, Key<4>*);

}  // namespace corank
