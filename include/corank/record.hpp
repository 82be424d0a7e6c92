// Schema and keys of fixed-size records. Plain data; sizes and offsets are bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corank {

enum class FieldKind : std::uint8_t { unsigned_integer, signed_integer, floating, bytes };

struct Field {
  std::string name;
  FieldKind kind;
  bool big_endian;       // byte order; only numbers wider than one byte have one
  std::uint32_t bytes;   // size: 1, 2, 4 or 8 for numbers; at least 1 for FieldKind::bytes
  std::uint32_t offset;  // from the start of the record
};

// Fields of a record, laid out end to end without padding.
struct Schema {
  static constexpr std::uint32_t max_record_bytes = 1u << 20;

  std::vector<Field> fields;
  std::uint32_t record_bytes = 0;
  // Bytes of the header that each file begins with. Without a value a file has no header, and the
  // first bytes of a file that show another format (such as Parquet) are an error; 0 accepts them.
  std::optional<std::uint64_t> header_bytes;

  // Parses `name:type,…`. The types are u8 u16 u32 u64 i8 i16 i32 i64 f32 f64, which are
  // little-endian, or big-endian with the suffix `be`, and bytesN, a string of N bytes. Throws
  // Error, which marks the position in `text`.
  static Schema parse(std::string_view text);
};

// Field by which records are ordered. Of several, earlier ones are more significant.
struct KeyField {
  std::uint32_t field;  // index into Schema::fields
  bool descending = false;
};

// Parses `field[:asc|:desc],…`. Empty text means the first field, ascending. Throws Error, which
// marks the position in `text`.
std::vector<KeyField> parse_keys(std::string_view text, const Schema& schema);

}  // namespace corank
