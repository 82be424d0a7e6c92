#include "corank/record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "corank/error.hpp"
#include "util/option_items.hpp"

namespace corank {

namespace {

constexpr std::string_view allowed_types =
    "allowed types: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64, with the suffix be for big-endian "
    "(u32be), and bytesN with N from 1 to 1048576";

struct NumberType {
  std::string_view name;
  FieldKind kind;
  std::uint32_t bytes;
};
constexpr std::array<NumberType, 10> number_types{{
    {"u8", FieldKind::unsigned_integer, 1},
    {"u16", FieldKind::unsigned_integer, 2},
    {"u32", FieldKind::unsigned_integer, 4},
    {"u64", FieldKind::unsigned_integer, 8},
    {"i8", FieldKind::signed_integer, 1},
    {"i16", FieldKind::signed_integer, 2},
    {"i32", FieldKind::signed_integer, 4},
    {"i64", FieldKind::signed_integer, 8},
    {"f32", FieldKind::floating, 4},
    {"f64", FieldKind::floating, 8},
}};

// Fills in the kind, byte order and size of the type; returns false if `text` is not a type.
bool parse_type(std::string_view text, Field& field) {
  if (text.starts_with("bytes")) {
    const std::string_view digits = text.substr(5);
    std::uint32_t bytes = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
    if (error != std::errc{} || end != digits.data() + digits.size() || bytes == 0 ||
        bytes > Schema::max_record_bytes)
      return false;
    field.kind = FieldKind::bytes;
    field.big_endian = false;
    field.bytes = bytes;
    return true;
  }
  field.big_endian = text.ends_with("be");
  if (field.big_endian) text.remove_suffix(2);
  const auto type = std::ranges::find(number_types, text, &NumberType::name);
  if (type == number_types.end()) return false;
  field.kind = type->kind;
  field.bytes = type->bytes;
  return true;
}

}  // namespace

Schema Schema::parse(std::string_view text) {
  Schema schema;
  const auto fail = [text](const Item& item, std::string_view why) {
    reject(Setting::record, text, item, why);
  };
  for (const Item& item : split(text)) {
    const std::size_t colon = item.text.find(':');
    if (colon == std::string_view::npos || colon == 0)
      fail(item, fmt::format("a field is name:type; {}", allowed_types));
    Field field{};
    field.name = item.text.substr(0, colon);
    if (std::ranges::any_of(schema.fields,
                            [&](const Field& other) { return other.name == field.name; }))
      fail(item.part(0, colon), "there is a field of this name already");
    const Item type = item.part(colon + 1);
    if (!parse_type(type.text, field)) fail(type, fmt::format("no such type; {}", allowed_types));
    field.offset = schema.record_bytes;
    if (field.bytes > max_record_bytes - schema.record_bytes)
      fail(item, fmt::format("a record has at most {} bytes", max_record_bytes));
    schema.record_bytes += field.bytes;
    schema.fields.push_back(std::move(field));
  }
  return schema;
}

std::vector<KeyField> parse_keys(std::string_view text, const Schema& schema) {
  if (text.empty()) return {{0}};
  std::vector<KeyField> keys;
  const auto fail = [text](const Item& item, std::string_view why) {
    reject(Setting::keys, text, item, why);
  };
  for (const Item& item : split(text)) {
    const std::size_t colon = std::min(item.text.find(':'), item.text.size());
    const Item name = item.part(0, colon);
    KeyField key{find_field(Setting::keys, text, name, schema.fields)};
    if (std::ranges::any_of(keys, [&](const KeyField& other) { return other.field == key.field; }))
      fail(name, "the field is named twice");
    if (colon < item.text.size()) {
      const Item direction = item.part(colon + 1);
      if (direction.text != "asc" && direction.text != "desc")
        fail(direction, "no such direction; allowed: asc desc");
      key.descending = direction.text == "desc";
    }
    keys.push_back(key);
  }
  return keys;
}

}  // namespace corank
