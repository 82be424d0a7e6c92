// Fuzzes the parsers of schemas and keys. The input is two lines: fields and keys, as on the
// command line. An accepted schema must be consistent, and its printed form must parse to the same
// schema.
#include <algorithm>
#include <string>

#include "corank/error.hpp"
#include "corank/key.hpp"
#include "fuzz/target.hpp"

using namespace corank;

namespace {

std::string text_of(const Schema& schema) {
  std::string text;
  for (const Field& field : schema.fields) {
    if (!text.empty()) text += ',';
    text += field.name + ':';
    if (field.kind == FieldKind::bytes)
      text += "bytes" + std::to_string(field.bytes);
    else
      text += (field.kind == FieldKind::unsigned_integer ? 'u'
               : field.kind == FieldKind::signed_integer ? 'i'
                                                         : 'f') +
              std::to_string(8 * field.bytes);
    if (field.big_endian) text += "be";
  }
  return text;
}

std::string text_of(const std::vector<KeyField>& keys, const Schema& schema) {
  std::string text;
  for (const KeyField& key : keys) {
    if (!text.empty()) text += ',';
    text += schema.fields[key.field].name + (key.descending ? ":desc" : "");
  }
  return text;
}

bool same(const Field& a, const Field& b) {
  return a.name == b.name && a.kind == b.kind && a.big_endian == b.big_endian &&
         a.bytes == b.bytes && a.offset == b.offset;
}

void check_keys(std::string_view text, const Schema& schema) {
  std::vector<KeyField> keys;
  try {
    keys = parse_keys(text, schema);
  } catch (const Error&) {
    return;
  }
  const std::vector<KeyField> again = parse_keys(text_of(keys, schema), schema);
  require(std::ranges::equal(keys, again, [](const KeyField& a, const KeyField& b) {
    return a.field == b.field && a.descending == b.descending;
  }));
  std::vector<bool> named(schema.fields.size());
  for (const KeyField& key : keys) {
    require(key.field < schema.fields.size() && !named[key.field]);
    named[key.field] = true;
  }
  const KeyEncoding encoding(schema, keys);
  std::uint64_t key_bytes = 0;
  for (const KeyField& key : keys) key_bytes += schema.fields[key.field].bytes;
  std::uint64_t piece_bytes = 0;
  for (const KeyPiece& piece : encoding.pieces()) {
    require(piece.bytes >= 1 && piece.bytes <= 8);
    require(std::uint64_t{piece.offset} + piece.bytes <= schema.record_bytes);
    piece_bytes += piece.bytes;
  }
  require(piece_bytes >= key_bytes);       // a number can span two words
  if (schema.record_bytes > 4096) return;  // too slow to compare
  const std::vector<std::byte> record(schema.record_bytes);
  require(!record_less(encoding.layout(), record.data(), record.data()));
}

}  // namespace

void corank::fuzz(std::span<const std::uint8_t> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const std::size_t line = std::min(text.find('\n'), text.size());
  Schema schema;
  try {
    schema = Schema::parse(text.substr(0, line));
  } catch (const Error&) {
    return;
  }
  std::uint64_t bytes = 0;
  for (const Field& field : schema.fields) {
    require(field.offset == bytes && field.bytes >= 1);
    bytes += field.bytes;
  }
  require(bytes == schema.record_bytes && bytes >= 1 && bytes <= Schema::max_record_bytes);
  const Schema again = Schema::parse(text_of(schema));
  require(std::ranges::equal(schema.fields, again.fields, same));
  check_keys(text.substr(std::min(line + 1, text.size())), schema);
}
