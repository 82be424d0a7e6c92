#include "corank/query.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstring>
#include <optional>
#include <utility>

#include "corank/error.hpp"
#include "format/field_value.hpp"
#include "util/option_items.hpp"

namespace corank {
namespace {

template <class Number>
bool put_number(std::string_view text, std::byte* to) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::memcpy(to, &number, sizeof number);
  return error == std::errc{} && end == text.data() + text.size();
}

bool put_number(const Field& field, std::string_view text, std::byte* to) {
  const bool is_signed = field.kind == FieldKind::signed_integer;
  switch (field.bytes) {
    case 1:
      return is_signed ? put_number<std::int8_t>(text, to) : put_number<std::uint8_t>(text, to);
    case 2:
      return is_signed ? put_number<std::int16_t>(text, to) : put_number<std::uint16_t>(text, to);
    case 4:
      if (field.kind == FieldKind::floating) return put_number<float>(text, to);
      return is_signed ? put_number<std::int32_t>(text, to) : put_number<std::uint32_t>(text, to);
    default:
      if (field.kind == FieldKind::floating) return put_number<double>(text, to);
      return is_signed ? put_number<std::int64_t>(text, to) : put_number<std::uint64_t>(text, to);
  }
}

std::string type_name(const Field& field) {
  if (field.kind == FieldKind::bytes) return fmt::format("bytes{}", field.bytes);
  return fmt::format("{}{}{}",
                     field.kind == FieldKind::floating         ? 'f'
                     : field.kind == FieldKind::signed_integer ? 'i'
                                                               : 'u',
                     8 * field.bytes, field.big_endian ? "be" : "");
}

}  // namespace

std::vector<std::byte> parse_value(Setting option, std::string_view whole, const Item& item,
                                   const Field& field) {
  std::vector<std::byte> value(field.bytes);
  const bool quoted = !item.text.empty() && is_quote(item.text.front());
  if (field.kind == FieldKind::bytes) {
    std::optional<std::string> bytes(item.text);
    if (quoted) bytes = unquoted(item.text);
    if (!bytes)
      reject(option, whole, item,
             "is not quoted to its end; in quotes, write \\\\ \\' \\\" or \\xNN after a backslash");
    if (bytes->size() > field.bytes)
      reject(
          option, whole, item,
          fmt::format("has {} bytes, but field {} has {}", bytes->size(), field.name, field.bytes));
    std::memcpy(value.data(), bytes->data(), bytes->size());
  } else {
    if (!put_number(field, item.text, value.data()))
      reject(option, whole, item,
             fmt::format("is no value of field {}, which is {}", field.name, type_name(field)));
    if (field.big_endian) std::ranges::reverse(value);
  }
  return value;
}

std::string value_text(const Field& field, const std::byte* record) {
  const std::byte* const at = record + field.offset;
  if (field.kind == FieldKind::bytes) {
    std::string text = "'";
    for (std::uint32_t i = 0; i < field.bytes; ++i) {
      const auto byte = static_cast<unsigned char>(at[i]);
      if (byte >= 0x20 && byte < 0x7f && byte != '\'' && byte != '\\')
        text += static_cast<char>(byte);
      else
        text += fmt::format("\\x{:02x}", byte);
    }
    return text + '\'';
  }
  std::byte raw[8]{};
  std::memcpy(raw, at, field.bytes);
  if (field.big_endian) std::reverse(raw, raw + field.bytes);
  const auto as = [&]<class Number>(Number number) {
    std::memcpy(&number, raw, sizeof number);
    return fmt::format("{}", number);
  };
  if (field.kind == FieldKind::floating) return field.bytes == 4 ? as(float{}) : as(double{});
  if (field.kind == FieldKind::unsigned_integer) return as(std::uint64_t{});
  switch (field.bytes) {
    case 1:
      return fmt::format("{}", static_cast<int>(static_cast<std::int8_t>(raw[0])));
    case 2:
      return as(std::int16_t{});
    case 4:
      return as(std::int32_t{});
    default:
      return as(std::int64_t{});
  }
}

namespace {

// Splits a value for each of the first of `keys` keys; a comma in quotes does not separate.
std::vector<Item> split_values(Setting option, std::string_view text, std::size_t keys) {
  std::vector<Item> values = split_quoted(text);
  if (values.size() > keys)
    reject(option, text, values[keys],
           keys == 1 ? "there is 1 key field" : fmt::format("there are {} key fields", keys));
  return values;
}

constexpr std::pair<std::string_view, Reduction::Operation> reductions[] = {
    {"sum", Reduction::Operation::sum},     {"min", Reduction::Operation::min},
    {"max", Reduction::Operation::max},     {"count", Reduction::Operation::count},
    {"first", Reduction::Operation::first}, {"last", Reduction::Operation::last},
};

void check_reduction(std::string_view text, const Item& name, const Reduction& reduction,
                     const Schema& schema, const std::vector<KeyField>& keys,
                     const std::vector<Reduction>& before) {
  using enum Reduction::Operation;
  const Field& field = schema.fields[reduction.field];
  const auto fail = [&](std::string_view why) { reject(Setting::on_equal, text, name, why); };
  const auto is_key = [&](const KeyField& key) { return key.field == reduction.field; };
  if (keys.empty() ? reduction.field == 0 : std::ranges::any_of(keys, is_key))
    fail("the field is a key, which orders the records and stays as it is");
  if (std::ranges::any_of(before, [&](const Reduction& r) { return r.field == reduction.field; }))
    fail("the field is named twice");
  const bool any_field = reduction.operation == first || reduction.operation == last;
  if (field.kind == FieldKind::bytes && !any_field)
    fail(fmt::format("the field is {}, no number; first and last do for it", type_name(field)));
  if (field.kind == FieldKind::floating && reduction.operation == count)
    fail(fmt::format("the field is {}; a count needs an integer", type_name(field)));
}

// Returns the text that `quoted`, a part of the option's `text`, stands for.
std::string unescape(Setting option, std::string_view text, const Item& quoted) {
  auto unescaped = unquoted(quoted.text);
  if (!unescaped) reject(option, text, quoted, "what is quoted ends with its quote");
  return *std::move(unescaped);
}

// Operands of a condition on fixed-size records: fields of a schema, whose names may be quoted.
struct Fields {
  using Value = FieldValue;
  Setting option;
  std::string_view text;
  const Schema& schema;

  Value named(const Item& name) const {
    const std::string whole =
        is_quote(name.text.front()) ? unescape(option, text, name) : std::string(name.text);
    return {find_field(option, text, {whole, name.position}, schema.fields), {}};
  }
  void set(Value& with, const Item& value) const {
    const Field& field = schema.fields[with.field];
    if (field.kind == FieldKind::bytes && (value.text.empty() || !is_quote(value.text.front())))
      reject(option, text, value,
             fmt::format("field {} compares with bytes in quotes", field.name));
    with.value = parse_value(option, text, value, field);
  }
};

// Operands of a condition on variable-length records: columns. Whether a value is a number is
// checked once the columns are known.
struct Columns {
  using Value = TextValue;
  Setting option;
  std::string_view text;

  Value named(const Item& name) const {
    const std::vector<TextKey> columns = parse_text_keys(name.text, option);
    if (columns.size() != 1 || columns.front().descending)
      reject(option, text, name, "a comparison is of one column, which has no direction");
    return {columns.front(), {}};
  }
  void set(Value& with, const Item& value) const {
    const bool quoted = !value.text.empty() && is_quote(value.text.front());
    if (value.text.empty()) reject(option, text, value, "a value is missing");
    if (!quoted && with.column.type == TextType::bytes)
      reject(option, text, value,
             "the column compares with text in quotes; for numbers, add their type to the column: "
             "2:u64, 2:i64, 2:f64 or 2:decimal");
    with.value = quoted ? unescape(option, text, value) : std::string(value.text);
  }
};

// Parses a condition by recursive descent.
template <class Operands>
class ConditionParser {
 public:
  explicit ConditionParser(Operands operands) : text_(operands.text), operands_(operands) {}

  ConditionOf<typename Operands::Value> parse() {
    either();
    if (!peek().text.empty()) fail(peek(), "the condition should end here, or go on by and, or");
    return std::move(condition_);
  }

 private:
  using Operation = ConditionOperation;

  [[noreturn]] void fail(const Item& item, std::string_view why) const {
    reject(operands_.option, text_, item, why);
  }

  void either() {
    both();
    while (take("or")) {
      both();
      condition_.steps.push_back({Operation::either, {}});
    }
  }
  void both() {
    term();
    while (take("and")) {
      term();
      condition_.steps.push_back({Operation::both, {}});
    }
  }
  void term() {
    if (take("not")) {
      nested([this] { term(); });
      condition_.steps.push_back({Operation::negate, {}});
    } else if (take("(")) {
      nested([this] { either(); });
      if (!take(")")) fail(peek(), "a parenthesis should be closed here");
    } else {
      comparison();
    }
  }

  // Limits the nesting to a depth that nobody writes and the stack easily holds.
  template <class Parse>
  void nested(Parse parse) {
    if (++depth_ > 1000) fail(peek(), "is nested too deeply");
    parse();
    --depth_;
  }

  void comparison() {
    static constexpr std::pair<std::string_view, Operation> operations[] = {
        {"<", Operation::less},       {"<=", Operation::less_equal},    {"==", Operation::equal},
        {"!=", Operation::not_equal}, {">=", Operation::greater_equal}, {">", Operation::greater},
    };
    const Item name = next();
    if (name.text.empty()) fail(name, "a comparison is missing, such as field > 5");
    auto with = operands_.named(name);
    const Item sign = next();
    const auto operation =
        std::ranges::find(operations, sign.text, &std::pair<std::string_view, Operation>::first);
    if (operation == std::end(operations)) fail(sign, "is no comparison; allowed: < <= == != >= >");
    operands_.set(with, next());
    condition_.steps.push_back({operation->second, std::move(with)});
  }

  bool take(std::string_view wanted) {
    if (peek().text != wanted) return false;
    next();
    return true;
  }

  Item peek() const {
    const std::size_t from = std::min(text_.find_first_not_of(" \t\n", at_), text_.size());
    std::size_t end = from;
    if (from == text_.size()) return {{}, from};
    constexpr std::string_view signs = "<=!>";
    constexpr std::string_view ends_word = " \t\n()<=!>'\"";
    if (text_[from] == '(' || text_[from] == ')') {
      end = from + 1;
    } else if (is_quote(text_[from])) {
      for (end = from + 1; end < text_.size() && text_[end] != text_[from]; ++end)
        if (text_[end] == '\\') ++end;
      ++end;
      // A quoted name may be followed by its type.
      if (end < text_.size() && text_[end] == ':') end = text_.find_first_of(ends_word, end);
    } else if (signs.find(text_[from]) != signs.npos) {
      end = text_.find_first_not_of(signs, from);
    } else {
      end = text_.find_first_of(ends_word, from);
    }
    end = std::min(end, text_.size());
    return {text_.substr(from, end - from), from};
  }
  Item next() {
    const Item item = peek();
    at_ = item.position + item.text.size();
    return item;
  }

  std::string_view text_;
  Operands operands_;
  std::size_t at_ = 0;
  int depth_ = 0;
  ConditionOf<typename Operands::Value> condition_;
};

}  // namespace

void parse_on_equal(std::string_view text, const Schema& schema, const std::vector<KeyField>& keys,
                    Query& query) {
  constexpr std::string_view reduce = "reduce:";
  constexpr std::array<std::pair<std::string_view, OnEqual>, 4> names{{{"keep", OnEqual::keep},
                                                                       {"first", OnEqual::first},
                                                                       {"last", OnEqual::last},
                                                                       {"error", OnEqual::error}}};
  const auto named = std::ranges::find(names, text, &std::pair<std::string_view, OnEqual>::first);
  if (named != names.end()) {
    query.on_equal = named->second;
    return;
  }
  if (!text.starts_with(reduce))
    reject(Setting::on_equal, text, {text, 0},
           "allowed: keep first last error reduce:sum(field),min(field),…");
  query.on_equal = OnEqual::reduce;
  for (Item item : split(text.substr(reduce.size()))) {
    item.position += reduce.size();
    const std::size_t open = std::min(item.text.find('('), item.text.size());
    const auto operation = std::ranges::find(reductions, item.text.substr(0, open),
                                             [](const auto& known) { return known.first; });
    if (operation == std::end(reductions) || open == item.text.size() || item.text.back() != ')')
      reject(Setting::on_equal, text, item,
             "a reduction is operation(field); the operations: sum min max count first last");
    const Item name = item.part(open + 1, item.text.size() - open - 2);
    const Reduction reduction{operation->second,
                              find_field(Setting::on_equal, text, name, schema.fields)};
    check_reduction(text, name, reduction, schema, keys, query.reductions);
    query.reductions.push_back(reduction);
  }
}

Condition parse_where(std::string_view text, const Schema& schema, Setting option) {
  return ConditionParser(Fields{option, text, schema}).parse();
}

TextCondition parse_text_where(std::string_view text, Setting option) {
  return ConditionParser(Columns{option, text}).parse();
}

namespace {

// Returns the position of the "=" of a tombstone, whose field may be quoted. `form` is the expected
// syntax, for errors.
std::size_t find_tombstone_sign(std::string_view text, std::string_view form) {
  constexpr Setting option = Setting::tombstone;
  constexpr std::string_view signs = "<=!>";
  const std::size_t sign = split_quoted(text, '=').front().text.size();
  const bool compares = sign + 1 < text.size() && text[sign + 1] == '=';
  if (sign >= text.size() || compares || (sign > 0 && signs.find(text[sign - 1]) != signs.npos))
    reject(option, text, {text, 0},
           fmt::format("a tombstone is {}, such as op=D, and not a condition; conditions are for "
                       "{}, and a value that begins with = stands in quotes",
                       form, Setting::having));
  return sign;
}

}  // namespace

FieldValue parse_tombstone(std::string_view text, const Schema& schema) {
  constexpr Setting option = Setting::tombstone;
  const std::size_t sign = find_tombstone_sign(text, "field=value");
  const Item whole{text, 0};
  const Item name = whole.part(0, sign);
  const std::string unquoted_name = !name.text.empty() && is_quote(name.text[0])
                                        ? unescape(option, text, name)
                                        : std::string(name.text);
  const std::uint32_t field = find_field(option, text, {unquoted_name, 0}, schema.fields);
  return {field, parse_value(option, text, whole.part(sign + 1), schema.fields[field])};
}

TextValue parse_text_tombstone(std::string_view text) {
  constexpr Setting option = Setting::tombstone;
  const std::size_t sign = find_tombstone_sign(text, "column=value");
  const std::vector<TextKey> columns = parse_text_keys(text.substr(0, sign), option);
  if (columns.size() != 1)
    reject(option, text, {text.substr(0, sign), 0}, "a tombstone is of one column");
  const Item value = Item{text, 0}.part(sign + 1);
  const bool quoted = !value.text.empty() && is_quote(value.text[0]);
  return {columns.front(), quoted ? unescape(option, text, value) : std::string(value.text)};
}

std::vector<FieldValue> parse_bound(Setting option, std::string_view text, const Schema& schema,
                                    const std::vector<KeyField>& keys) {
  const std::vector<KeyField> by = keys.empty() ? std::vector<KeyField>{{0}} : keys;
  std::vector<FieldValue> bound;
  for (const Item& item : split_values(option, text, by.size())) {
    const std::uint32_t field = by[bound.size()].field;
    bound.push_back({field, parse_value(option, text, item, schema.fields[field])});
  }
  return bound;
}

std::vector<std::string> parse_text_bound(Setting option, std::string_view text,
                                          const std::vector<TextKey>& keys) {
  if (keys.size() <= 1) return {std::string(text)};
  std::vector<std::string> bound;
  for (const Item& item : split_values(option, text, keys.size())) {
    const bool quoted = !item.text.empty() && is_quote(item.text[0]);
    auto value = quoted ? unquoted(item.text) : std::string(item.text);
    if (!value) reject(option, text, item, "what is quoted ends with its quote");
    bound.push_back(*std::move(value));
  }
  return bound;
}

std::vector<std::uint32_t> parse_select(std::string_view text, const Schema& schema) {
  std::vector<std::uint32_t> fields;
  for (const Item& item : split(text)) {
    const std::uint32_t field = find_field(Setting::select, text, item, schema.fields);
    if (std::ranges::find(fields, field) != fields.end())
      reject(Setting::select, text, item, "the field is named twice");
    fields.push_back(field);
  }
  return fields;
}

std::vector<TextKey> parse_text_select(std::string_view text) {
  std::vector<TextKey> columns;
  for (const Item& item : split_quoted(text)) {
    const std::vector<TextKey> column = parse_text_keys(item.text, Setting::select);
    if (column.size() != 1 || split_quoted(item.text, ':').size() != 1)
      reject(Setting::select, text, item, "a selection is of columns, without types and orders");
    columns.push_back(column.front());
  }
  return columns;
}

Schema selected(const Schema& schema, const std::vector<std::uint32_t>& select) {
  if (select.empty()) return schema;
  Schema result;
  for (const std::uint32_t index : select) {
    Field field = schema.fields[index];
    field.offset = result.record_bytes;
    result.record_bytes += field.bytes;
    result.fields.push_back(std::move(field));
  }
  return result;
}

}  // namespace corank
