#include "corank/record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "corank/error.hpp"
#include "format/field_value.hpp"
#include "util/messages.hpp"
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
  for (const Item& item : split_quoted(text)) {
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
  for (const Item& item : split_quoted(text)) {
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

namespace {

bool put_number(const Field& field, std::string_view text, std::byte* to) {
  return with_number(field, [&](auto number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    std::memcpy(to, &number, sizeof number);
    return error == std::errc{} && end == text.data() + text.size();
  });
}

}  // namespace

std::string field_type_name(const Field& field) {
  if (field.kind == FieldKind::bytes) return fmt::format("bytes{}", field.bytes);
  return fmt::format("{}{}{}",
                     field.kind == FieldKind::floating         ? 'f'
                     : field.kind == FieldKind::signed_integer ? 'i'
                                                               : 'u',
                     8 * field.bytes, field.big_endian ? "be" : "");
}

std::uint32_t find_field(const Schema& schema, const TextKey& column, Setting option) {
  const std::string name = !column.name.empty() ? column.name
                           : column.column != 0 ? std::to_string(column.column)
                                                : "line";
  if (column.type != TextType::bytes || column.nocase)
    reject(option, name, {name, 0}, "the record tells the type of the field; leave it out here");
  return find_field(option, name, {name, 0}, schema.fields);
}

std::vector<std::uint32_t> find_fields(const Schema& schema, const std::vector<TextKey>& columns,
                                       Setting option) {
  std::vector<std::uint32_t> fields;
  for (const TextKey& column : columns) {
    fields.push_back(find_field(schema, column, option));
    if (std::ranges::count(fields, fields.back()) > 1)
      throw_error(ErrorCode::options, "{}: field {} is named twice", option,
                  schema.fields[fields.back()].name);
  }
  return fields;
}

std::vector<std::byte> encode_value(const Field& field, const ColumnValue& value, Setting option) {
  const auto fail = [&](const std::string& why) {
    reject(option, value.value, {value.value, 0}, why);
  };
  std::vector<std::byte> bytes(field.bytes);
  if (field.kind == FieldKind::bytes) {
    if (value.is_number) fail(fmt::format("field {} compares with bytes in quotes", field.name));
    if (value.value.size() > field.bytes)
      fail(fmt::format("has {} bytes, but field {} has {}", value.value.size(), field.name,
                       field.bytes));
    std::memcpy(bytes.data(), value.value.data(), value.value.size());
  } else {
    if (!put_number(field, value.value, bytes.data()))
      fail(fmt::format("is not a value of field {}, which is {}", field.name,
                       field_type_name(field)));
    if (field.big_endian) std::ranges::reverse(bytes);
  }
  return bytes;
}

Schema selected(const Schema& schema, const std::vector<TextKey>& select) {
  if (select.empty()) return schema;
  Schema result;
  for (const std::uint32_t index : find_fields(schema, select, Setting::select)) {
    Field field = schema.fields[index];
    field.offset = result.record_bytes;
    result.record_bytes += field.bytes;
    result.fields.push_back(std::move(field));
  }
  return result;
}

std::string value_text(const Field& field, const std::byte* record) {
  const std::byte* const at = record + field.offset;
  if (field.kind == FieldKind::bytes) {
    std::string text = "'";
    for (std::uint32_t i = 0; i < field.bytes; ++i) {
      const auto byte = static_cast<unsigned char>(at[i]);
      if (byte >= 0x20 && byte < 0x7f && byte != '\'' && byte != '\\')
        text += static_cast<char>(byte);
      else
        text += fmt::format("\\x{:02x}", byte);
    }
    return text + '\'';
  }
  return with_number(field, [&]<class Number>(Number) {
    return fmt::format("{}", +load_number<Number>(at, field.big_endian));  // bytes become int
  });
}

}  // namespace corank
