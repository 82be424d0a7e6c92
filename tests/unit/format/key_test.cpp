// Tests of key encodings: normalised keys must sort as the decoded values do.
#include "corank/key.hpp"

#include <vector>

#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

struct KeyCase {
  const char* schema;
  const char* keys;
};

// Every type, both byte orders, both directions, one to many words, numbers that span two words.
const KeyCase cases[] = {
    {"a:u8", "a"},
    {"a:u16,b:u8", "a:desc"},
    {"a:u32", "a"},
    {"a:u64", "a:desc"},
    {"a:i8,b:i16be", "b,a:desc"},
    {"a:i32,b:i64", "b:desc,a"},
    {"a:u16be,b:u32be,c:u64be", "b,a:desc,c"},
    {"a:i16be,b:i32be,c:i64be", "c:desc,b"},
    {"a:f32", "a"},
    {"a:f64", "a:desc"},
    {"a:f32be,b:f64be", "b,a:desc"},
    {"x:u8,a:f32,b:u8", "a:desc,b"},
    {"a:bytes10,b:bytes90", "a"},
    {"a:bytes3,b:u64,c:bytes9", "a,b:desc,c"},
    {"a:u8,b:u64,c:u64,d:u64,e:u64", "a,b,c,d:desc,e"},
    {"a:bytes31,b:u64be,c:f64", "a,b:desc,c"},
    {"a:bytes40", "a:desc"},
    {"a:bytes300,b:i64", "a,b"},
};

}  // namespace

TEST_CASE("the normalised order is the order of the decoded values") {
  Random random(1);
  for (const KeyCase& test : cases) {
    const Schema schema = Schema::parse(test.schema);
    const auto keys = parse_keys(test.keys, schema);
    const KeyEncoding encoding(schema, keys);
    for (const Values values : {Values::any, Values::few}) {
      const std::uint64_t count = 300;
      const Bytes records = random_records(schema, count, values, random);
      for (std::uint64_t i = 0; i < count; ++i)
        for (std::uint64_t j = 0; j < count; ++j) {
          const std::byte* a = records.data() + i * schema.record_bytes;
          const std::byte* b = records.data() + j * schema.record_bytes;
          if (record_less(encoding.layout(), a, b) != reference_less(schema, keys, a, b))
            FAIL(test.schema << " by " << test.keys << ": records " << i << " and " << j);
        }
    }
  }
}

TEST_CASE("encoding many keys gives what encoding each gives") {
  Random random(2);
  for (const KeyCase& test : cases) {
    const Schema schema = Schema::parse(test.schema);
    const KeyEncoding encoding(schema, parse_keys(test.keys, schema));
    const Bytes records = random_records(schema, 100, Values::any, random);
    std::vector<Key<max_key_words>> keys(100);
    encode_keys(encoding.layout(), records.data(), 100, keys.data());
    for (std::size_t i = 0; i < keys.size(); ++i)
      CHECK(keys[i] ==
            encode<max_key_words>(encoding.layout(), records.data() + i * schema.record_bytes));
    if (encoding.prefix_words() != 1) continue;
    std::vector<Key<1>> narrow(100);
    encode_keys(encoding.layout(), records.data(), 100, narrow.data());
    for (std::size_t i = 0; i < narrow.size(); ++i) CHECK(narrow[i].word[0] == keys[i].word[0]);
    std::vector<const std::byte*> backwards;
    for (std::size_t i = 100; i-- > 0;)
      backwards.push_back(records.data() + i * schema.record_bytes);
    encode_keys(encoding.layout(), backwards, narrow.data());
    for (std::size_t i = 0; i < narrow.size(); ++i)
      CHECK(narrow[i].word[0] == keys[99 - i].word[0]);
  }
}

TEST_CASE("a key's prefix is as wide as the key needs, and its tail is the rest") {
  const auto width = [](const char* text, const char* by) {
    const Schema schema = Schema::parse(text);
    const KeyEncoding encoding(schema, parse_keys(by, schema));
    return std::pair(encoding.prefix_words(), encoding.has_tail());
  };
  CHECK(width("a:u8,b:u32", "a,b") == std::pair(1, false));
  CHECK(width("a:u64,b:u8", "a") == std::pair(1, false));
  CHECK(width("a:u64,b:u8", "a,b") == std::pair(2, false));
  CHECK(width("a:bytes17", "a") == std::pair(4, false));
  CHECK(width("a:bytes32", "a") == std::pair(4, false));
  CHECK(width("a:bytes33", "a") == std::pair(4, true));
  CHECK(width("a:bytes29,b:u64", "a,b") == std::pair(4, true));
}
