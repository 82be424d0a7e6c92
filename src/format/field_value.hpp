// Finds the fields of fixed-size records that columns name, and converts their values from text and
// to text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "corank/query.hpp"
#include "corank/record.hpp"
#include "util/option_items.hpp"

namespace corank {

// Return the fields that columns name, as indices into the schema's. Throw Error, which names
// `option`, if there is no such field, or find_fields() finds one twice.
std::uint32_t find_field(const Schema& schema, const TextKey& column, Setting option);
std::vector<std::uint32_t> find_fields(const Schema& schema, const std::vector<TextKey>& columns,
                                       Setting option);

// Returns the value as records store it: field.bytes bytes in the field's byte order. Throws Error,
// which names `option`, if the field cannot hold it.
std::vector<std::byte> encode_value(const Field& field, const ColumnValue& value, Setting option);

// Returns the value of the field in `record` as text.
std::string value_text(const Field& field, const std::byte* record);

// Calls `use` with a value of the field's type, which is an integer.
template <class Use>
auto with_integer(const Field& field, Use use) {
  const bool is_signed = field.kind == FieldKind::signed_integer;
  switch (field.bytes) {
    case 1:
      return is_signed ? use(std::int8_t{}) : use(std::uint8_t{});
    case 2:
      return is_signed ? use(std::int16_t{}) : use(std::uint16_t{});
    case 4:
      return is_signed ? use(std::int32_t{}) : use(std::uint32_t{});
    default:
      return is_signed ? use(std::int64_t{}) : use(std::uint64_t{});
  }
}

// Calls `use` with a value of the field's type, which is a number.
template <class Use>
auto with_number(const Field& field, Use use) {
  if (field.kind != FieldKind::floating) return with_integer(field, use);
  return field.bytes == 4 ? use(float{}) : use(double{});
}

template <class Number>
Number load_number(const std::byte* at, bool big_endian) {
  std::byte raw[sizeof(Number)];
  std::memcpy(raw, at, sizeof raw);
  if (big_endian) std::reverse(raw, raw + sizeof raw);
  Number number;
  std::memcpy(&number, raw, sizeof number);
  return number;
}

// Returns the type of the field as Schema::parse() takes it.
std::string field_type_name(const Field& field);

}  // namespace corank
