// Tests of operators on fixed records against simple reference implementations.
#include "ops/operator_chain.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>

#include "corank/merge.hpp"
#include "format/field_value.hpp"
#include "format/fixed_format.hpp"
#include "ops/exact_sum.hpp"
#include "support/catch.hpp"
#include "support/merge_case.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

using Records = std::vector<Bytes>;

std::int64_t integer(const Field& field, const Bytes& record) {
  Bytes raw(record.begin() + field.offset, record.begin() + field.offset + field.bytes);
  if (!field.big_endian) std::ranges::reverse(raw);
  const bool negative =
      field.kind == FieldKind::signed_integer && (raw[0] & std::byte{0x80}) != std::byte{};
  std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
  for (const std::byte byte : raw) value = value << 8 | static_cast<std::uint64_t>(byte);
  return static_cast<std::int64_t>(value);
}

void set_integer(const Field& field, std::int64_t value, Bytes& record) {
  for (std::uint32_t i = 0; i < field.bytes; ++i)
    record[field.offset + (field.big_endian ? field.bytes - 1 - i : i)] =
        static_cast<std::byte>(static_cast<std::uint64_t>(value) >> 8 * i);
}

void copy_field(const Field& field, const Bytes& from, Bytes& to) {
  std::copy_n(from.begin() + field.offset, field.bytes, to.begin() + field.offset);
}

// Reduces a group record by record; sums wrap.
Bytes reduced(const Schema& schema, const Query& query, std::span<const Bytes> group) {
  if (query.on_equal == OnEqual::last) return group.back();
  Bytes result = group.front();
  for (const Reduction& reduction : query.reductions) {
    using enum Reduction::Operation;
    const Field& field =
        schema.fields[find_field(schema, reduction.column.value(), Setting::on_equal)];
    std::int64_t value = integer(field, group.front());
    for (const Bytes& record : group.subspan(1)) {
      const std::int64_t other = integer(field, record);
      if (reduction.operation == sum)
        value = static_cast<std::int64_t>(static_cast<std::uint64_t>(value) +
                                          static_cast<std::uint64_t>(other));
      if (reduction.operation == min) value = std::min(value, other);
      if (reduction.operation == max) value = std::max(value, other);
    }
    if (reduction.operation == last) {
      copy_field(field, group.back(), result);
      continue;
    }
    if (reduction.operation == count) value = static_cast<std::int64_t>(group.size());
    if (reduction.operation != first) set_integer(field, value, result);
  }
  return result;
}

// Reference: applies one operator after another to all records. `fulfils` evaluates `where`, and
// `stays` evaluates `having`.
template <class Fulfils, class Stays>
Bytes shaped(const Schema& schema, const std::vector<KeyField>& keys, const Query& query,
             const Bytes& merged, Fulfils fulfils, Stays stays) {
  Records records;
  for (std::size_t at = 0; at < merged.size(); at += schema.record_bytes) {
    const Bytes record(merged.begin() + static_cast<std::ptrdiff_t>(at),
                       merged.begin() + static_cast<std::ptrdiff_t>(at + schema.record_bytes));
    if (fulfils(record)) records.push_back(record);
  }
  if (query.on_equal != OnEqual::keep) {
    Records groups;
    for (std::size_t begin = 0, end; begin < records.size(); begin = end) {
      for (end = begin + 1;
           end < records.size() &&
           !reference_less(schema, keys, records[begin].data(), records[end].data());
           ++end)
        ;
      const Bytes group = reduced(schema, query, std::span(records).subspan(begin, end - begin));
      const auto& tombstone = query.tombstone;
      const auto is_deletion = [&] {
        const Field& field =
            schema.fields[find_field(schema, tombstone->column, Setting::tombstone)];
        return std::ranges::equal(encode_value(field, *tombstone, Setting::tombstone),
                                  std::span(group).subspan(field.offset, field.bytes));
      };
      if (!tombstone || !is_deletion()) groups.push_back(group);
    }
    records = groups;
  }
  std::erase_if(records, [&](const Bytes& record) { return !stays(record); });
  records.resize(std::min<std::uint64_t>(records.size(), query.limit.value_or(records.size())));
  Bytes output;
  for (const Bytes& record : records)
    if (query.select.empty())
      output.insert(output.end(), record.begin(), record.end());
    else
      for (const std::uint32_t field : find_fields(schema, query.select, Setting::select))
        output.insert(output.end(), record.begin() + schema.fields[field].offset,
                      record.begin() + schema.fields[field].offset + schema.fields[field].bytes);
  return output;
}

struct ChainCase : MergeCase {
  ChainCase(const std::string& schema, const std::string& keys) : MergeCase(schema, keys) {
    options.checksum = true;
    options.backend = BackendChoice::cpu;
  }

  using MergeCase::merged;
  Bytes merged() { return merged(options); }
  const Schema& schema() const { return options.record; }
  Bytes all_merged() const {
    Bytes all;
    for (const Bytes& run : runs) all.insert(all.end(), run.begin(), run.end());
    return stably_sorted(schema(), options.keys, all);
  }
};

template <class... Values>
Bytes packed(Values... values) {
  Bytes bytes;
  const auto add = [&](auto value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), raw, raw + sizeof value);
  };
  (add(values), ...);
  return bytes;
}

void append(Bytes& to, const Bytes& bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

std::string error_of(ChainCase& test) {
  try {
    test.merged();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("random shapes give what their definition says") {
  Random random(6);
  for (int round = 0; round < 60; ++round) {
    const char* const key_choices[] = {"k", "k:desc", "p:desc,k", "p,f,k", "f:desc"};
    ChainCase test("k:u16,p:bytes33,a:i32be,b:u8,f:f32,c:i16", key_choices[below(random, 5)]);
    const auto values = static_cast<Values>(below(random, 3));
    for (std::uint64_t run = 1 + below(random, 5); run-- > 0;)
      test.add_run(
          random_records(test.schema(), below(random, 2) * below(random, 4000), values, random));

    Query& query = test.options.query;
    const char* const policies[] = {"keep",
                                    "first",
                                    "last",
                                    "reduce:sum(a),max(c),last(b)",
                                    "reduce:count(a),min(b)",
                                    "reduce:first(a),min(c),sum(b)"};
    query.overflow = Overflow::wrap;
    parse_on_equal(policies[below(random, 6)], query);
    if (query.on_equal != OnEqual::keep && below(random, 3) == 0) {
      const Bytes merged = test.all_merged();
      std::string value = "7";
      if (!merged.empty())
        value =
            std::to_string(integer(test.schema().fields[3],
                                   {merged.begin(), merged.begin() + test.schema().record_bytes}));
      query.tombstone = parse_tombstone("b=" + value);
    }
    const bool filters = below(random, 3) == 0;
    if (filters) query.where = parse_where("not (a < 5 or c >= 100) or b != 3 and k > 9");
    const auto fulfils = [&](const Bytes& record) {
      const auto& fields = test.schema().fields;
      return !filters || !(integer(fields[2], record) < 5 || integer(fields[5], record) >= 100) ||
             (integer(fields[3], record) != 3 && integer(fields[0], record) > 9);
    };
    const bool has_having = below(random, 3) == 0;
    if (has_having) query.having = parse_where("a >= 0 or not b == 3", Setting::having);
    const auto stays = [&](const Bytes& record) {
      const auto& fields = test.schema().fields;
      return !has_having || integer(fields[2], record) >= 0 || integer(fields[3], record) != 3;
    };
    const char* const selections[] = {"c,k", "p,k,f", "b"};
    if (below(random, 3) == 0) query.select = parse_select(selections[below(random, 3)]);
    if (below(random, 3) == 0) query.limit = below(random, 2) * below(random, 3000);

    const Bytes expected =
        shaped(test.schema(), test.options.keys, query, test.all_merged(), fulfils, stays);
    for (const BackendChoice backend : usable_backends()) {
      Options options = test.options;
      options.backend = backend;
      INFO("round " << round << ", backend " << static_cast<int>(backend) << ", runs "
                    << test.runs.size());
      CHECK((test.merged(options) == expected));
      if (!filters && !query.limit)
        CHECK(test.stats.records == test.stats.records_written + test.stats.records_replaced +
                                        test.stats.records_deleted);
      options.memory_bytes = 300 << 10;  // small units, several passes
      options.threads = 1 + static_cast<unsigned>(below(random, 3));
      CHECK((test.merged(options) == expected));
      options.verify = false;
      options.io = Io::direct;
      CHECK((test.merged(options) == expected));
      CHECK((test.merged_in_memory(options) == expected));
      CHECK((test.merged_into_parts(options, 4) == expected));
    }
  }
}

TEST_CASE("a group larger than units and slices is reduced once") {
  ChainCase test("key:u32,n:u64", "key");
  std::uint64_t number = 0;
  for (int run = 0; run < 3; ++run) {
    Bytes records;
    append(records, packed(std::uint32_t{1}, std::uint64_t{5}));
    for (int i = 0; i < 60'000; ++i) append(records, packed(std::uint32_t{2}, ++number));
    append(records, packed(std::uint32_t{3}, std::uint64_t{6}));
    test.add_run(records);
  }
  parse_on_equal("reduce:sum(n)", test.options.query);
  Bytes expected = packed(std::uint32_t{1}, std::uint64_t{15});
  append(expected, packed(std::uint32_t{2}, number * (number + 1) / 2));
  append(expected, packed(std::uint32_t{3}, std::uint64_t{18}));
  test.options.memory_bytes = 400 << 10;
  CHECK((test.merged() == expected));
  CHECK(test.stats.units > 3);
  CHECK((test.merged_into_parts(test.options, 5) == expected));
}

TEST_CASE("sums and counts that do not fit") {
  ChainCase test("key:u8,a:u8,b:i8,c:u16be", "key");
  test.add_run(packed(std::uint8_t{1}, std::uint8_t{200}, std::int8_t{-100}, std::uint16_t{0x0100},
                      std::uint8_t{9}, std::uint8_t{255}, std::int8_t{127}, std::uint16_t{0x0200}));
  test.add_run(packed(std::uint8_t{9}, std::uint8_t{255}, std::int8_t{-128}, std::uint16_t{0x0300},
                      std::uint8_t{9}, std::uint8_t{1}, std::int8_t{-127}, std::uint16_t{0x0400}));
  Query& query = test.options.query;
  const auto reduce = [&](const char* text) {
    query.reductions.clear();
    parse_on_equal(text, query);
  };
  reduce("reduce:sum(a),sum(c)");
  const std::string error = error_of(test);
  CHECK(holds(error, "key=9: the sum of field a over the 3 records with this key is 511"));
  CHECK(holds(error, "Query::overflow = saturate"));
  query.overflow = Overflow::saturate;
  CHECK((test.merged() == packed(std::uint8_t{1}, std::uint8_t{200}, std::int8_t{-100},
                                 std::uint16_t{0x0100}, std::uint8_t{9}, std::uint8_t{255},
                                 std::int8_t{127}, std::uint16_t{0x0900})));
  reduce("reduce:sum(b),count(a)");
  CHECK((test.merged() == packed(std::uint8_t{1}, std::uint8_t{1}, std::int8_t{-100},
                                 std::uint16_t{0x0100}, std::uint8_t{9}, std::uint8_t{3},
                                 std::int8_t{-128}, std::uint16_t{0x0200})));
  query.overflow = Overflow::wrap;
  reduce("reduce:sum(b),sum(a)");
  CHECK((test.merged() == packed(std::uint8_t{1}, std::uint8_t{200}, std::int8_t{-100},
                                 std::uint16_t{0x0100}, std::uint8_t{9}, std::uint8_t{255},
                                 std::int8_t{-128}, std::uint16_t{0x0200})));
  // An overflow past the limit is not an error.
  query.overflow = Overflow::error;
  query.limit = 1;
  CHECK(test.merged().size() == test.schema().record_bytes);
}

TEST_CASE("equal keys are an error where they must not be") {
  ChainCase test("key:u16,v:u8", "key");
  for (const int run : {0, 1, 2}) {
    Bytes records;
    for (std::uint16_t i = 0; i < 1000; ++i)
      append(records,
             packed(static_cast<std::uint16_t>(3 * i + run), static_cast<std::uint8_t>(run)));
    test.add_run(records);
  }
  test.options.query.on_equal = OnEqual::error;
  CHECK((test.merged() == test.all_merged()));
  test.add_run(packed(std::uint16_t{300}, std::uint8_t{7}));
  for (const std::uint64_t memory : {0, 400 << 10}) {
    test.options.memory_bytes = memory;
    const std::string error = error_of(test);
    CHECK(holds(error, test.paths[0].string() + ": record 100 (byte 300) and " +
                           test.paths[3].string() +
                           ": record 0 (byte 0) have the same key, key=300"));
  }
  CHECK_FALSE(std::filesystem::exists(test.folder / ".output.corank"));
  test.options.query.where = parse_where("v != 7");
  CHECK(test.merged().size() == 9000);
  test.options.query.where = {};
  test.options.query.limit = 301;
  CHECK(test.merged().size() == 903);
  test.options.query.limit = 302;
  CHECK(holds(error_of(test), "key=300"));
}

TEST_CASE("floats are summed up exactly") {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    // Integers times a power of two, so that the exact sum fits __int128.
    const int exponent = -static_cast<int>(below(random, 1100)) + 20;
    __int128 exact = 0;
    std::vector<double> values;
    for (std::uint64_t i = 1 + below(random, 100); i-- > 0;) {
      const auto value = static_cast<std::int64_t>(random()) >> below(random, 60) >> 10;
      const double scaled = std::ldexp(static_cast<double>(value), exponent);
      if (std::ldexp(scaled, -exponent) != static_cast<double>(value)) continue;
      exact += value;
      values.push_back(scaled);
    }
    ExactSum forward, backward, both;
    for (std::size_t i = 0; i < values.size(); ++i) {
      forward.add(values[i]);
      (i % 2 == 0 ? backward : both).add(values[values.size() - 1 - i]);
    }
    both.add(backward);
    INFO("round " << round);
    CHECK(forward.as_double() == both.as_double());
    CHECK(forward.as_float() == both.as_float());
    // A long double holds the exact sum, and conversion rounds it once unless it is subnormal.
    const long double sum = std::ldexp(static_cast<long double>(exact), exponent);
    if (exponent > -1000) CHECK(forward.as_double() == static_cast<double>(sum));
    CHECK(forward.as_float() == static_cast<float>(sum));
  }
  const double huge = std::numeric_limits<double>::max();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto sum = [](std::initializer_list<double> values) {
    ExactSum result;
    for (const double value : values) result.add(value);
    return result.as_double();
  };
  CHECK(sum({huge, huge, -huge}) == huge);
  CHECK(sum({huge, huge}) == infinity);
  CHECK(sum({1, 1e100, 1, -1e100}) == 2);
  CHECK(sum({infinity, 1}) == infinity);
  CHECK(std::isnan(sum({infinity, -infinity})));
  CHECK(std::isnan(sum({std::nan(""), 1})));
  CHECK(sum({5e-324, 5e-324}) == 1e-323);
  CHECK(sum({1, std::ldexp(1, -53), std::ldexp(1, -1000)}) == std::nextafter(1, 2));
  CHECK(sum({1, std::ldexp(1, -53)}) == 1);
  CHECK(!std::signbit(sum({-0.0, -0.0})));
}

TEST_CASE("sums of floats do not depend on how the merge is cut") {
  Random random(4);
  ChainCase test("key:u8,x:f32,y:f64be", "key");
  std::map<std::uint8_t, std::pair<ExactSum, ExactSum>> sums;
  for (int run = 0; run < 4; ++run) {
    Bytes records;
    for (int i = 0; i < 30'000; ++i) {
      const auto key = static_cast<std::uint8_t>(below(random, 5));
      const auto x = static_cast<float>(
          std::ldexp(static_cast<double>(random() % 1000), static_cast<int>(below(random, 60))));
      const double y = std::ldexp(static_cast<double>(random() % 1000) - 500,
                                  static_cast<int>(below(random, 900)));
      sums[key].first.add(x);
      sums[key].second.add(y);
      append(records, packed(key, x, __builtin_bswap64(std::bit_cast<std::uint64_t>(y))));
    }
    test.add_run(records);
  }
  Bytes expected;
  for (const auto& [key, sum] : sums)
    append(expected,
           packed(key, sum.first.as_float(),
                  __builtin_bswap64(std::bit_cast<std::uint64_t>(sum.second.as_double()))));
  parse_on_equal("reduce:sum(x),sum(y)", test.options.query);
  CHECK((test.merged() == expected));
  test.options.memory_bytes = 300 << 10;
  CHECK((test.merged() == expected));
}

TEST_CASE("conditions") {
  const Schema schema = Schema::parse("a:i16,b:u8,c:f32,s:bytes3,t:bytes40");
  const auto record = [](std::int16_t a, std::uint8_t b, float c, const char* s) {
    Bytes bytes = packed(a, b, c);
    append(bytes, packed(s[0], s[1], s[2]));
    bytes.resize(bytes.size() + 40, std::byte{'t'});
    return bytes;
  };
  const Bytes one = record(-5, 200, 1.5f, "a\0\0");
  const Bytes two = record(300, 0, std::nanf(""), "xyz");
  const auto format = make_fixed_format(schema, {});
  std::vector<RowFilter::Mask> scratch;
  const auto test = [&](const char* where) {
    Bytes both = one;
    append(both, two);
    Query query;
    query.where = parse_where(where);
    const std::optional<RowFilter> filter = format->filter(query);
    const RowFilter::Mask& mask = filter->test({both.data(), 2}, scratch);
    return 10 * mask[0] + mask[1];
  };
  CHECK(test("a < 0") == 10);
  CHECK(test("a<=-5") == 10);
  CHECK(test("a >= -5") == 11);
  CHECK(test("a != -5") == 1);
  CHECK(test("b == 200") == 10);
  CHECK(test("c > 1e30") == 1);
  CHECK(test("c == nan") == 1);
  CHECK(test("s == 'a'") == 10);
  CHECK(test("s == 'a\\x00'") == 10);
  CHECK(test("s > \"x\"") == 1);
  CHECK(test("t < 'tz'") == 11);
  CHECK(test("t >= 'tz'") == 0);
  CHECK(test("t == 'tttttttttttttttttttttttttttttttttttttttt'") == 11);
  CHECK(test("not a < 0 or b == 200") == 11);
  CHECK(test("not (a < 0 or b == 200)") == 1);
  CHECK(test("a < 0 and b == 200 or c > 0 and s == 'xyz'") == 11);
  CHECK(test("a < 0 and (b == 200 or c > 0) and s == 'xyz'") == 0);
  CHECK(test("'a' < 0 and \"s\" == 'a'") == 10);
  CHECK(parse_where("not 'not' == 1").steps.size() == 2);

  const auto error = [&](const std::string& where) -> std::string {
    try {
      Query query;
      query.where = parse_where(where);
      format->filter(query);
    } catch (const Error& found) {
      return found.what();
    }
    return "";
  };
  CHECK(holds(error("a > 5 and"), "at character 10"));
  CHECK(holds(error("a > 99999"), "\"99999\": is not a value of field a, which is i16"));
  CHECK(holds(error("b > -1"), "which is u8"));
  CHECK(holds(error("z > 1"), "at character 1, \"z\": no such field; the record has: a b c s t"));
  CHECK(holds(error("'z' > 1"), "at character 1, \"z\": no such field"));
  CHECK(holds(error("'a > 1"), "quote"));
  CHECK(holds(error("a = 1"), "allowed: < <= == != >= >"));
  CHECK(holds(error("s == xyz"), "in quotes"));
  CHECK(holds(error("s == 'xyz"), "quoted"));
  CHECK(holds(error("s == 'abcd'"), "has 4 bytes, but field s has 3"));
  CHECK(holds(error("s == '\\q'"), "quoted"));
  CHECK(holds(error("(a > 1"), "parenthesis"));
  CHECK(holds(error("a > 1 b > 2"), "at character 7"));
  CHECK(holds(error(std::string(100'000, '(')), "too deeply"));
}

TEST_CASE("shapes that contradict the schema or one another are refused") {
  const Schema schema = Schema::parse("k:u8,a:u32,s:bytes4,f:f64");
  const std::vector<KeyField> keys = parse_keys("k", schema);
  const auto format = make_fixed_format(schema, keys);
  const auto on_equal = [&](const char* text) -> std::string {
    try {
      Query query;
      parse_on_equal(text, query);
      const OperatorChain chain(*format, schema, query, true, 1);
    } catch (const Error& found) {
      return found.what();
    }
    return "";
  };
  CHECK(on_equal("reduce:first(s),last(f),sum(a)") == "");
  CHECK(holds(on_equal("newest"), "allowed: keep first last error"));
  CHECK(holds(on_equal("reduce:"), "operation(field)"));
  CHECK(holds(on_equal("reduce:sum(a"), "operation(field)"));
  CHECK(holds(on_equal("reduce:avg(a)"), "sum min max count first last"));
  CHECK(holds(on_equal("reduce:sum(b)"), "\"b\": no such field; the record has: k a s f"));
  CHECK(holds(on_equal("reduce:sum(s)"), "bytes4"));
  CHECK(holds(on_equal("reduce:count(f)"), "integer"));
  CHECK(holds(on_equal("reduce:sum(k)"), "is a key"));
  CHECK(holds(on_equal("reduce:sum(a),min(a)"), "twice"));
  CHECK(holds(on_equal("reduce:sum(a:i64)"), "leave it out"));

  const auto refusal = [&](auto change) {
    ChainCase test("k:u8,a:u32,s:bytes4,f:f64", "k");
    test.add_run(random_records(test.schema(), 10, Values::any, *std::make_unique<Random>(1)));
    change(test.options);
    return error_of(test);
  };
  CHECK(holds(refusal([&](Options& options) { options.query.tombstone = parse_tombstone("a=1"); }),
              "Query::on_equal"));
  CHECK(holds(refusal([](Options& options) { options.query.on_equal = OnEqual::reduce; }),
              "reduce:sum(field)"));
  CHECK(holds(refusal([](Options& options) {
                options.copy_only = true;
                options.query.on_equal = OnEqual::first;
              }),
              "Options::copy_only"));
  CHECK(holds(refusal([](Options& options) {
                options.parts = 2;
                options.resume = true;
                options.query.on_equal = OnEqual::first;
                options.query.limit = 3;
              }),
              "Options::parts"));
  CHECK_THROWS_WITH(parse_tombstone("a"), ContainsSubstring("column=value"));
  CHECK(holds(refusal([](Options& options) { options.query.select = parse_select("a,a"); }),
              "twice"));
  CHECK_THROWS_WITH(parse_select("a,k:u64"), ContainsSubstring("without types"));
  CHECK(holds(refusal([](Options& options) { options.query.where = parse_where("a:u64 > 1"); }),
              "the type of the field"));
  CHECK(holds(refusal([](Options& options) {
                options.query.from = parse_bound(Setting::from, "1,2", options);
              }),
              "there are 2 values, and 1 key"));
  CHECK(holds(refusal([](Options& options) { options.query.to = {"256"}; }), "u8"));
}

TEST_CASE("ranges of keys") {
  Random random(9);
  for (const std::string keys : {"k", "k:desc,s", "s,k"}) {
    ChainCase test("k:u8,s:bytes2,v:u32", keys);
    for (int run = 0; run < 3; ++run)
      test.add_run(random_records(test.schema(), 500, Values::any, random));
    const Bytes merged = test.all_merged();
    const auto by = test.options.keys;
    using Bounds = std::vector<std::pair<std::string, std::string>>;
    Bounds bounds{{"90", ""}, {"", "120"}, {"90", "200"}, {"200", "90"}};
    if (keys == "k:desc,s") bounds.emplace_back("250,'q,'", "7,zz");
    if (keys == "s,k") bounds = {{"'0a'", ""}, {"", "zz"}, {"'0a',90", "'zz',7"}};
    for (const auto& [from, to] : bounds) {
      Query& query = test.options.query;
      query.limit.reset();
      query.from.clear();
      query.to.clear();
      if (!from.empty()) query.from = parse_bound(Setting::from, from, test.options);
      if (!to.empty()) query.to = parse_bound(Setting::to, to, test.options);
      const auto precedes = [&](const Bytes& record, const std::vector<std::string>& bound) {
        Bytes other = record;
        for (std::size_t i = 0; i < bound.size(); ++i) {
          const Field& field = test.schema().fields[by[i].field];
          std::ranges::copy(encode_value(field, {{}, bound[i]}, Setting::from),
                            other.begin() + field.offset);
        }
        return reference_less(test.schema(), by, record.data(), other.data());
      };
      Bytes expected;
      for (std::size_t at = 0; at < merged.size(); at += test.schema().record_bytes) {
        const Bytes record(
            merged.begin() + static_cast<std::ptrdiff_t>(at),
            merged.begin() + static_cast<std::ptrdiff_t>(at + test.schema().record_bytes));
        if (!from.empty() && precedes(record, query.from)) continue;
        if (!to.empty() && !precedes(record, query.to)) continue;
        append(expected, record);
      }
      INFO(keys << " from " << from << " to " << to);
      CHECK((test.merged() == expected));
      CHECK(test.stats.bytes_read == expected.size());
      CHECK((test.merged_into_parts(test.options, 3) == expected));
      query.limit = 17;
      expected.resize(std::min<std::size_t>(expected.size(), 17 * test.schema().record_bytes));
      CHECK((test.merged() == expected));
      CHECK((test.merged_into_parts(test.options, 3) == expected));
    }
  }
}

TEST_CASE("the head of huge runs costs as much as it holds") {
  // Sparse files: 16 GiB of zeros each.
  ChainCase test("key:u64,value:u64", "key");
  for (int run = 0; run < 4; ++run) {
    test.paths.push_back(test.folder / ("run" + std::to_string(run)));
    write_file(test.paths.back(), packed(std::uint64_t{0}, static_cast<std::uint64_t>(run)));
    REQUIRE(::truncate(test.paths.back().c_str(), std::int64_t{16} << 30) == 0);
  }
  test.options.query.limit = 1000;
  const Bytes output = test.merged();
  CHECK(output.size() == 16'000);
  CHECK(test.stats.records == 1000);
  CHECK(test.stats.bytes_read == 16'000);

  // Dropped records do not count towards the limit, yet the rest is not read.
  test.options.query.where = parse_where("value == 0");
  CHECK(test.merged().size() == 16'000);
  CHECK(test.stats.bytes_read < 100 << 20);
}
