// Tests of the device code of the operators, run on the host, against the CPU's operators.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corank/error.hpp"
#include "format/fixed_format.hpp"
#include "format/variable_format.hpp"
#include "kernels/ops/operator_steps.hpp"
#include "ops/carry.hpp"
#include "ops/operator_chain.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Returns the steps of a filter; layout_of(bound) returns the layout of its comparisons.
template <class Layout, class LayoutOf>
std::vector<TestStep<Layout>> steps_of(const RowFilter& filter, LayoutOf layout_of) {
  std::vector<TestStep<Layout>> steps;
  for (const RowFilter::Step& step : filter.steps()) {
    if (!step.with) {
      steps.push_back({step.operation, {}, nullptr, 0});
      continue;
    }
    const auto value = step.with->record();
    steps.push_back({step.operation, layout_of(*step.with), value.data(), value.size()});
  }
  return steps;
}

}  // namespace

TEST_CASE("a thread finds the records that fulfil a condition", "[device]") {
  const Schema schema = Schema::parse("a:u8,b:i16be,c:f32,d:bytes3");
  Random random(71);
  const Bytes records = random_records(schema, RowFilter::max_rows, Values::few, random);
  for (const char* text :
       {"a < 128", "b >= 0", "not b <= 100", "c != 1.5", "d == 'abc'", "d > '\\x80'",
        "a == 255 and b < 0 or c > 0", "not (a > 1 or (b == 0 and not d < '\\xff'))",
        "a != 0 and (b > 1 or b < -1) and not (c >= 0 or d <= '\\x7f')"}) {
    Query query;
    query.where = parse_where(text);
    const std::optional<RowFilter> filter = make_fixed_format(schema, {})->filter(query);
    const auto steps =
        steps_of<KeyLayout>(*filter, [](const RowBound& bound) { return bound.layout(); });
    const Test<KeyLayout> test{steps.data(), static_cast<std::uint32_t>(steps.size())};
    std::vector<RowFilter::Mask> scratch;
    const RowFilter::Mask& expected = filter->test({records.data(), RowFilter::max_rows}, scratch);
    std::uint64_t differing = 0;
    for (std::uint64_t i = 0; i < RowFilter::max_rows; ++i)
      differing += passes(test, records.data() + i * schema.record_bytes, schema.record_bytes) !=
                   (expected[i] != 0);
    CAPTURE(text);
    CHECK(differing == 0);
  }
}

TEST_CASE("a thread finds the lines that fulfil a condition", "[device]") {
  Random random(73);
  for (const TextKind kind : {TextKind::lines, TextKind::csv}) {
    TextFormat format;
    format.kind = kind;
    format.delimiter = ',';
    std::uint64_t passed = 0, failed = 0;
    for (const char* text :
         {"1 < 'b'", "2:i64 >= 0", "not 2:u64 <= 50", "1:nocase != 'AB'", "3 == ''",
          "1 == 'a' and 2:i64 < 0 or 3 > 'c'", "not (2:i64 > 9 or (1 == 'b' and not 3 < 'd'))",
          "1 != 'a' and (2:i64 > 7 or 2:i64 < -7) and not (3 >= 'd' or 1:nocase <= 'A')"}) {
      Query query;
      query.where = parse_where(text);
      const std::optional<RowFilter> filter = make_variable_format(format, "")->filter(query);
      const auto steps =
          steps_of<TextLayout>(*filter, [](const RowBound& bound) { return *bound.layout().text; });
      const Test<TextLayout> test{steps.data(), static_cast<std::uint32_t>(steps.size())};
      std::vector<RowFilter::Mask> scratch;
      for (int i = 0; i < 1'000; ++i) {
        const auto word = [&](std::string_view alphabet) {
          std::string letters(below(random, 3), ' ');
          for (char& c : letters) c = alphabet[below(random, alphabet.size())];
          return kind == TextKind::csv && below(random, 3) == 0 ? '"' + letters + "\"\"\""
                                                                : letters;
        };
        std::string line = word("abAB") + ',';
        line += below(random, 4) == 0
                    ? word("x1")
                    : std::to_string(static_cast<std::int64_t>(below(random, 200)) - 100);
        line += (below(random, 9) == 0 ? "" : ',' + word("cde")) + '\n';
        const auto record = std::as_bytes(std::span(line));
        const PrefixRef ref = make_entry(0, record.data(), record.size());
        const bool expected =
            filter->test({reinterpret_cast<const std::byte*>(&ref), 1}, scratch)[0] != 0;
        CAPTURE(text, line);
        CHECK(passes(test, record.data(), record.size()) == expected);
        ++(expected ? passed : failed);
      }
    }
    CHECK(passed > 1'000);
    CHECK(failed > 1'000);
  }
}

TEST_CASE("a thread reduces a group as the CPU does", "[device]") {
  const Schema schema =
      Schema::parse("k:u8,a:u8,b:i8,c:u16be,d:i32,e:u64,f:i64be,g:f64,h:bytes3,n:u32");
  const std::vector<KeyField> keys = parse_keys("k", schema);
  const auto format = make_fixed_format(schema, keys);
  Random random(72);
  std::uint64_t refused = 0, accepted = 0;
  for (const Overflow overflow : {Overflow::error, Overflow::saturate, Overflow::wrap})
    for (const char* text :
         {"reduce:sum(a),min(b),max(c),count(d),last(e),first(f),min(g),last(h)",
          "reduce:max(a),sum(b),sum(c),min(d),sum(e),sum(f),max(g),first(h),count(n)",
          "reduce:count(a),count(b),sum(d),max(e),min(f),sum(n)"}) {
      Query query;
      query.overflow = overflow;
      parse_on_equal(text, query);
      const OperatorChain chain(*format, schema, query, true, 1);
      std::vector<ReducedColumn> columns;
      for (const FieldReduction& column : chain.reducer()->fields())
        columns.push_back({column.operation, column.field.offset, column.field.bytes,
                           column.field.kind == FieldKind::signed_integer, column.field.big_endian,
                           column.ordered.layout()});
      const Reductions reductions{columns.data(), static_cast<std::uint32_t>(columns.size()),
                                  overflow, true};
      for (const std::uint64_t count : {1u, 2u, 3u, 17u, 300u})
        for (const Values values : {Values::any, Values::few}) {
          const Bytes records = random_records(schema, count, values, random);
          Bytes mine(records.begin(), records.begin() + schema.record_bytes);
          const bool fits = reduce_group(
              reductions, count,
              [&](std::uint64_t i) { return records.data() + i * schema.record_bytes; },
              mine.data());
          Carry group;
          Bytes expected(schema.record_bytes);
          bool fitted = true;
          try {
            group.start(chain, records.data(), count);
            ResolvedCounts counts;
            std::copy_n(group.resolve(chain, counts), schema.record_bytes, expected.begin());
          } catch (const Error&) {
            fitted = false;
          }
          CAPTURE(text, count, static_cast<int>(overflow));
          CHECK(fits == fitted);
          if (fits && fitted) CHECK((mine == expected));
          ++(fits ? accepted : refused);
        }
    }
  CHECK(refused > 0);
  CHECK(accepted > 0);
}
