// Fuzzes the parsers of operator options. The input is a letter that selects the option, then the
// option's text. Accepted options must be consistent, and a condition and its negation must
// partition the records.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "corank/query.hpp"
#include "format/field_value.hpp"
#include "format/fixed_format.hpp"
#include "format/record_format.hpp"
#include "format/variable_format.hpp"
#include "fuzz/target.hpp"
#include "ops/operator_chain.hpp"

using namespace corank;

namespace {

const Schema schema = Schema::parse("a:u32,b:i16be,c:f64,d:bytes5,e:u8,f:f32be,g:bytes40,h:i64");
const std::vector<KeyField> keys = parse_keys("a,d:desc", schema);

constexpr std::uint64_t records = 97;

// Returns random records that contain small numbers, zeros and NaNs.
const std::vector<std::byte>& some_records() {
  static const std::vector<std::byte> made = [] {
    std::mt19937_64 random(61);
    std::vector<std::byte> bytes(records * schema.record_bytes);
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(random() % 2 == 0 ? random() % 3 : random());
    return bytes;
  }();
  return made;
}

void check_value(const ColumnValue& value) {
  const Field& field = schema.fields[find_field(schema, value.column, Setting::tombstone)];
  require(encode_value(field, value, Setting::tombstone).size() == field.bytes);
}

void check_condition(std::string_view text) {
  const Condition condition = parse_where(text);
  std::size_t results = 0;
  for (const Condition::Step& step : condition.steps) {
    using enum Condition::Operation;
    const bool joins = step.operation == both || step.operation == either;
    require(results >= (joins ? 2 : step.operation == negate ? 1 : 0));
    if (joins) {
      --results;
    } else if (step.operation != negate) {
      ++results;
      check_value(step.with);
    }
  }
  require(results == 1);

  static const auto format = make_fixed_format(schema, keys);
  Query query, others;
  query.where = condition;
  others.where = parse_where("not (" + std::string(text) + ")");
  std::vector<RowFilter::Mask> scratch, other_scratch;
  const RowSpan rows{some_records().data(), records};
  const auto& kept = format->filter(query)->test(rows, scratch);
  const auto& dropped = format->filter(others)->test(rows, other_scratch);
  for (std::uint64_t i = 0; i < records; ++i) require((kept[i] != 0) != (dropped[i] != 0));
}

void check_reductions(std::string_view text) {
  Query query;
  parse_on_equal(text, query);
  require(query.reductions.empty() == (query.on_equal != OnEqual::reduce));
  static const auto format = make_fixed_format(schema, keys);
  const OperatorChain chain(*format, schema, query, true, 1);
  std::vector<std::string> names;
  for (const FieldReduction& reduction :
       chain.reducer() ? chain.reducer()->fields() : std::span<const FieldReduction>()) {
    const std::string& name = reduction.field.name;
    require(name != "a" && name != "d" && std::ranges::count(names, name) == 0);
    names.push_back(name);
  }
}

void check_bound(std::string_view text) {
  Options options;
  options.record = schema;
  options.keys = keys;
  options.query.from = parse_bound(Setting::from, text, options);
  const auto bound = make_format(options)->bound(options.query, Setting::from);
  require(bound && bound->record().size() == schema.record_bytes);
}

void check_text_value(std::string_view text) {
  require(parse_tombstone(text).value.size() < text.size());
}

const TextFormat& csv() {
  static const TextFormat format = [] {
    TextFormat of;
    of.kind = TextKind::csv;
    of.header = true;
    return of;
  }();
  return format;
}
constexpr std::string_view header = "a,b,\"c d\",e\n";
constexpr std::string_view lines[] = {"\n", ",,,\n", "1,-2,3e1,x\n", "\"q\"\"\",\"1\",,Y,more\r\n"};

std::span<const std::byte> bytes_of(std::string_view line) {
  return std::as_bytes(std::span(line));
}

void check_text_condition(std::string_view text) {
  static const auto format = make_variable_format(csv(), header);
  Query query, others;
  query.where = parse_where(text);
  others.where = parse_where("not (" + std::string(text) + ")");
  const auto filter = format->filter(query), other_filter = format->filter(others);
  std::vector<RowFilter::Mask> scratch, other_scratch;
  for (const std::string_view line : lines) {
    const PrefixRef ref = make_entry(0, bytes_of(line).data(), line.size());
    const RowSpan row{reinterpret_cast<const std::byte*>(&ref), 1};
    require(filter->test(row, scratch)[0] != other_filter->test(row, other_scratch)[0]);
  }
}

void check_text_selection(std::string_view text) {
  static const auto format = make_variable_format(csv(), header);
  Query query;
  query.select = parse_select(text);
  const auto projection = format->projection(query);
  for (const std::string_view line : lines) {
    const PrefixRef ref = make_entry(0, bytes_of(line).data(), line.size());
    const RowSpan row{reinterpret_cast<const std::byte*>(&ref), 1};
    std::vector<std::byte> selected(projection->max_bytes(row));
    const std::byte* const end = projection->project(row, selected.data());
    require(selected.data() < end && end <= selected.data() + selected.size());
    require(end[-1] == std::byte{'\n'});
  }
  require(projection->of_header(header).size() <= header.size());
}

void check_text_bound(std::string_view text) {
  Options options;
  options.text = csv();
  options.text->keys = parse_text_keys("1,2,3");
  options.query.from = parse_bound(Setting::from, text, options);
  const auto bound = make_format(options, header)->bound(options.query, Setting::from);
  require(bound && bound->record().back() == std::byte{'\n'});
}

void check_selection(std::string_view text) {
  const std::vector<TextKey> select = parse_select(text);
  const std::vector<std::uint32_t> fields = find_fields(schema, select, Setting::select);
  std::uint32_t bytes = 0;
  std::vector<bool> named(schema.fields.size());
  for (const std::uint32_t field : fields) {
    require(field < schema.fields.size() && !named[field]);
    named[field] = true;
    bytes += schema.fields[field].bytes;
  }
  require(!fields.empty() && selected(schema, select).record_bytes == bytes);
}

}  // namespace

void corank::fuzz(std::span<const std::uint8_t> input) {
  if (input.empty()) return;
  const std::string_view text(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  try {
    switch (input.front()) {
      case 'w':
        return check_condition(text);
      case 'o':
        return check_reductions(text);
      case 'b':
        return check_bound(text);
      case 's':
        return check_selection(text);
      case 'v':
        return check_text_value(text);
      case 'x':
        return check_text_condition(text);
      case 'c':
        return check_text_selection(text);
      case 'r':
        return check_text_bound(text);
      default:
        check_value(parse_tombstone(text));
    }
  } catch (const Error&) {
  }
}
