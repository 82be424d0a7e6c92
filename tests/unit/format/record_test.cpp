// Tests of record schemas and their parser.
#include "corank/record.hpp"

#include <string>

#include "corank/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

std::string refusal(const char* record, const char* keys = "") {
  try {
    parse_keys(keys, Schema::parse(record));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a schema lays its fields end to end") {
  const Schema schema = Schema::parse("key:u64,price:f32be,name:bytes10,flag:i8");
  REQUIRE(schema.fields.size() == 4);
  CHECK(schema.record_bytes == 23);
  CHECK(schema.fields[1].offset == 8);
  CHECK(schema.fields[1].kind == FieldKind::floating);
  CHECK(schema.fields[1].big_endian);
  CHECK(schema.fields[2].offset == 12);
  CHECK(schema.fields[2].bytes == 10);
  CHECK(schema.fields[3].kind == FieldKind::signed_integer);
}

TEST_CASE("keys name fields and directions, and are the first field without that") {
  const Schema schema = Schema::parse("a:u8,b:u8,c:u8");
  const auto keys = parse_keys("c:desc,a,b:asc", schema);
  REQUIRE(keys.size() == 3);
  CHECK(keys[0].field == 2);
  CHECK(keys[0].descending);
  CHECK(keys[1].field == 0);
  CHECK(!keys[1].descending);
  CHECK(!keys[2].descending);
  const auto fallback = parse_keys("", schema);
  REQUIRE(fallback.size() == 1);
  CHECK(fallback[0].field == 0);
}

TEST_CASE("a bad schema is refused with its place and what is allowed") {
  for (const auto& [text, place, why] :
       {std::tuple{"", "character 1", "name:type"},
        {"key", "character 1", "name:type"},
        {"key:u65", "character 5", "u8 u16"},
        {"a:u8,b:bytes", "character 8", "bytesN"},
        {"a:u8,b:bytes0", "character 8", "bytesN"},
        {"a:u8,b:bytes-1", "character 8", "bytesN"},
        {"a:u8,b:bytes99999999999", "character 8", "bytesN"},
        {"a:u8,b:bytes1be", "character 8", "bytesN"},
        {"a:u8,a:u8", "character 6", "already"},
        {"a:u8,,b:u8", "character 6", "name:type"},
        {":u8", "character 1", "name:type"},
        {"a:u8,b:bytes1048576", "character 6", "at most 1048576"}}) {
    const std::string message = refusal(text);
    INFO(text << " gives " << message);
    CHECK(holds(message, std::string("Options::record \"") + text + '"'));
    CHECK(holds(message, place));
    CHECK(holds(message, why));
  }
}

TEST_CASE("a bad key is refused with its place and what is allowed") {
  for (const auto& [text, place, why] : {std::tuple{"c", "character 1", "the record has: a b"},
                                         {"a,", "character 3", "a b"},
                                         {"a,b:down", "character 5", "asc desc"},
                                         {"a,a", "character 3", "twice"}}) {
    const std::string message = refusal("a:u8,b:u8", text);
    INFO(text << " gives " << message);
    CHECK(holds(message, std::string("keys \"") + text + '"'));
    CHECK(holds(message, place));
    CHECK(holds(message, why));
  }
}
