// Every format answers the same questions about the same table of records.
#include "format/record_format.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "format/json_lines.hpp"
#include "plan/option_checks.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

struct Pair {
  char key, value;
};
constexpr Pair table[] = {{'a', '3'}, {'b', '1'}, {'b', '2'}, {'d', '3'}};

// A format, its records, and how the two columns of the table are called.
struct Named {
  const char* name;
  Options options;
  std::string key, value;
  std::string bytes = {};
};

Named fixed_records() {
  Named format{"fixed", {}, "k", "v"};
  format.options.record = Schema::parse("k:bytes1,v:bytes1");
  for (const Pair& pair : table) format.bytes += {pair.key, pair.value};
  return format;
}

Named delimited(TextKind kind, const char* name) {
  Named format{name, {}, "1", "2"};
  format.options.text.emplace();
  format.options.text->kind = kind;
  format.options.text->delimiter = ',';
  format.options.text->keys = parse_text_keys("1");
  for (const Pair& pair : table) format.bytes += fmt::format("{},{}\n", pair.key, pair.value);
  return format;
}

Named pairs() {
  Named format{"pairs", {}, "key", "value"};
  format.options.text.emplace();
  format.options.text->kind = TextKind::pairs;
  for (const Pair& pair : table)
    format.bytes += std::string("\1\0\0\0\1\0\0\0", 8) + pair.key + pair.value;
  return format;
}

Named json_lines() {
  Named format{"JSON Lines", {}, "k", "v"};
  format.options.text.emplace();
  format.options.text->kind = TextKind::json_lines;
  format.options.text->keys = parse_text_keys("k");
  for (const Pair& pair : table)
    format.bytes += fmt::format("{{\"k\": \"{}\", \"v\": {}}}\n", pair.key, pair.value);
  return format;
}

std::vector<Named> all_formats() {
  std::vector<Named> formats{fixed_records(), delimited(TextKind::lines, "lines"),
                             delimited(TextKind::csv, "csv"), pairs()};
  if (reads_json_lines()) formats.push_back(json_lines());
  return formats;
}

// The rows of a format's records.
struct Rows {
  Rows(const RecordFormat& format, const std::string& bytes) {
    const Indexed found =
        format.frame(std::as_bytes(std::span(bytes)), true, refs.size(), refs.data());
    CHECK(found.bytes == bytes.size());
    CHECK(!found.bad);
    rows = {found.rows, found.records};
  }
  std::array<PrefixRef, 16> refs;
  RowSpan rows{};
};

std::string passing(const std::optional<RowFilter>& filter, RowSpan rows) {
  REQUIRE(filter);
  std::vector<RowFilter::Mask> scratch;
  const RowFilter::Mask& mask = filter->test(rows, scratch);
  std::string text;
  for (std::uint64_t i = 0; i < rows.count; ++i) text += mask[i] != 0 ? '1' : '0';
  return text;
}

std::string refusal(const Options& options) {
  try {
    check_options(options, make_format(options)->traits(), 1);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("every format finds, orders, tests and names its rows", "[format]") {
  for (const Named& named : all_formats()) {
    INFO(named.name);
    Query query;
    query.from = {"b"};
    query.where = parse_where(fmt::format("{} >= 'b' and not {} == '2'", named.key, named.value));
    query.having = parse_where(fmt::format("{} != 'a'", named.key));
    query.tombstone = parse_tombstone(fmt::format("{}=3", named.value));
    const auto format = make_format(named.options);
    const Rows table_rows(*format, named.bytes);
    const RowSpan rows = table_rows.rows;
    REQUIRE(rows.count == std::size(table));
    CHECK(format->bytes_of(rows).size() == named.bytes.size());
    CHECK(passing(format->filter(query), rows) == "0101");
    CHECK(passing(format->dropped(query), rows) == "1001");
    const auto bound = format->bound(query, Setting::from);
    REQUIRE(bound);
    CHECK(!format->bound(query, Setting::to));
    const auto row = [&](std::uint64_t i) { return rows.data + i * format->row_bytes(); };
    CHECK(bound->compare(row(0)) < 0);
    CHECK(bound->compare(row(1)) == 0);
    CHECK(bound->compare(row(3)) > 0);
    CHECK(format->key_of(format->bytes_of({row(2), 1})).compare(row(1)) == 0);
    CHECK_THAT(format->key_text(row(3)), ContainsSubstring("=") && ContainsSubstring("d"));
  }
}

TEST_CASE("formats with columns project them", "[format]") {
  for (const Named& named : all_formats()) {
    INFO(named.name);
    Query query;
    query.select = parse_select(named.value + ',' + named.key);
    const auto format = make_format(named.options);
    const Rows table_rows(*format, named.bytes);
    const auto projection = format->projection(query);
    CHECK(!format->projection({}));
    REQUIRE(!!projection == format->traits().has_columns);
    if (!projection) continue;
    std::vector<std::byte> out(projection->max_bytes(table_rows.rows));
    out.resize(
        static_cast<std::size_t>(projection->project(table_rows.rows, out.data()) - out.data()));
    const bool is_text = !format->traits().has_fixed_size;
    std::string expected;
    for (const Pair& pair : table)
      expected += is_text ? fmt::format("{},{}\n", pair.value, pair.key)
                          : std::string{pair.value, pair.key};
    CHECK((out == bytes_of_text(expected)));
    CHECK(projection->num_keys() == (is_text ? 0 : 1));
  }
}

TEST_CASE("what a format cannot do is refused", "[format]") {
  for (const Named& named : all_formats()) {
    INFO(named.name);
    const FormatTraits traits = make_format(named.options)->traits();
    const auto is_refused = [&](auto change) {
      Options options = named.options;
      change(options);
      return !refusal(options).empty();
    };
    CHECK(refusal(named.options).empty());
    CHECK(!is_refused([](Options& by) { by.parts = 2; }));
    CHECK(is_refused([](Options& by) { by.parts = 100'000; }));
    CHECK(is_refused([](Options& by) { by.resume = true; }) == !traits.can_search);
    CHECK(is_refused([](Options& by) { by.resume = by.copy_only = true; }) ==
          !traits.has_fixed_size);
    CHECK(is_refused([&](Options& by) { by.query.select = parse_select(named.key); }) ==
          !traits.has_columns);
    CHECK(is_refused([](Options& by) {
            by.query.on_equal = OnEqual::reduce;
            by.query.reductions = {{Reduction::Operation::first, parse_text_keys("2").front()}};
          }) == !traits.has_columns);
    CHECK(is_refused([](Options& by) { by.drop_header = true; }));
    const bool is_json = named.options.text && named.options.text->kind == TextKind::json_lines;
    CHECK(traits.cpu_only == (is_json ? "JSON Lines" : ""));
  }
}

TEST_CASE("conditions that are not in postfix order are refused", "[format]") {
  using enum ConditionOperation;
  const ColumnValue one = parse_where("k > 1").steps.front().with;
  Options options;
  options.record = Schema::parse("k:u64");
  const auto format = make_format(options);
  const auto query = [&](const std::vector<ConditionOperation>& operations) {
    Query of;
    for (const ConditionOperation operation : operations)
      of.where.steps.push_back({operation, one});
    of.having = of.where;
    return of;
  };
  CHECK(format->filter(query({less, negate, greater, both})));
  CHECK(format->dropped(query({less, negate, greater, both})));
  for (const std::vector<ConditionOperation>& operations : {std::vector{negate},
                                                            {both},
                                                            {less, either},
                                                            {less, greater},
                                                            {less, greater, both, both}}) {
    CHECK_THROWS_AS(format->filter(query(operations)), Error);
    CHECK_THROWS_AS(format->dropped(query(operations)), Error);
  }
}

TEST_CASE("traits tell what the options say about the records", "[format]") {
  Options options;
  options.text.emplace();
  options.text->kind = TextKind::csv;
  options.text->comment = "#";
  options.text->escape = '\\';
  options.text->bad_numbers = BadNumbers::skip;
  const FormatTraits csv = make_format(options)->traits();
  CHECK(csv.has_header);
  CHECK(csv.may_skip);
  CHECK(csv.cpu_only == "escape characters");
  options.text->escape.reset();
  options.text->keys = parse_text_keys("1:time");
  CHECK(make_format(options)->traits().cpu_only == "keys of type time");
  Options fixed;
  CHECK_THROWS_WITH(make_format(fixed), ContainsSubstring("Schema::parse"));
  fixed.record = Schema::parse("k:u8");
  fixed.record.header_bytes = 16;
  CHECK(make_format(fixed)->traits().has_header);
  fixed.keys = {{1}};
  CHECK_THROWS_WITH(make_format(fixed), ContainsSubstring("no field 1"));
}
