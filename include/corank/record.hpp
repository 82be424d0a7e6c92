// Fixed-size records: which fields they have, and which of them order the records.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace corank {

enum class FieldKind : std::uint8_t { unsigned_integer, signed_integer, floating, bytes };

struct Field {
  std::string name;
  FieldKind kind;
  bool big_endian;       // only numbers wider than a byte have a byte order
  std::uint32_t bytes;   // 1, 2, 4 or 8 for numbers; any size from 1 for `bytes`
  std::uint32_t offset;  // from the start of the record, in bytes
};

// The fields of a record, laid end to end without padding.
struct Schema {
  static constexpr std::uint32_t max_record_bytes = 1u << 20;

  std::vector<Field> fields;
  std::uint32_t record_bytes = 0;

  // `text` is `name:type,…` with the types u8 u16 u32 u64 i8 i16 i32 i64 f32 f64, little-endian
  // or with the suffix `be` big-endian, and bytesN. Throws Error, which points into the text.
  static Schema parse(std::string_view text);
};

struct KeyField {
  std::uint32_t field;  // index into Schema::fields
  bool descending = false;
};

// `text` is `field[:asc|:desc],…`; empty means the first field, ascending. Throws Error, which
// points into the text.
std::vector<KeyField> parse_keys(std::string_view text, const Schema& schema);

}  // namespace corank
