// Reduces columns of lines or CSV records to a group's first record.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstdlib>

#include "corank/error.hpp"
#include "format/encoded_key.hpp"
#include "format/text_columns.hpp"
#include "ops/group_reducer.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

using Operation = Reduction::Operation;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the value of a field, without quotes and the blanks around it.
std::string value_of(const detail::TextField& field) {
  std::string value = detail::decoded(field);
  constexpr const char* blanks = " \t\r";
  value.erase(0, std::min(value.find_first_not_of(blanks), value.size()));
  value.erase(value.find_last_not_of(blanks) + 1);
  return value;
}

detail::TextField field_of(const TextLayout& layout, const ColumnSum& sum) {
  return {reinterpret_cast<const std::byte*>(sum.field.data()), sum.field.size(), sum.is_quoted,
          true, layout.escape};
}

void take(const detail::TextField& field, ColumnSum& sum) {
  sum.field.assign(reinterpret_cast<const char*>(field.at), field.bytes);
  sum.is_quoted = field.quoted;
  sum.has_value = true;
}

bool is_less(const detail::TextField& a, const detail::TextField& b, const TextColumn& column) {
  if (detail::is_number(column.type))
    return detail::number_word(a, column, 0) < detail::number_word(b, column, 0);
  if (detail::is_encoded(column.type)) return detail::compare_encoded(a, b, column) < 0;
  return detail::compare_strings(a, b, column.nocase) < 0;
}

// Thrown for numbers that a ScaledNumber cannot hold.
struct TooLong {};

void scale_up(ScaledNumber& number, unsigned scale) {
  for (; number.scale < scale; ++number.scale)
    if (__builtin_mul_overflow(number.mantissa, __int128{10}, &number.mantissa)) throw TooLong();
}

void add_to(ScaledNumber& sum, ScaledNumber number) {
  constexpr __int128 lowest = static_cast<__int128>(1) << 127;  // cannot be negated
  scale_up(sum, number.scale);
  scale_up(number, sum.scale);
  if (__builtin_add_overflow(sum.mantissa, number.mantissa, &sum.mantissa) ||
      sum.mantissa == lowest)
    throw TooLong();
}

// Returns the number with the scale that its text has.
ScaledNumber scaled(const detail::Decimal& decimal) {
  constexpr std::int64_t max_exponent = 1000;  // a larger one makes too many digits in any case
  ScaledNumber number;
  const auto append = [&](int digit) {
    if (__builtin_mul_overflow(number.mantissa, __int128{10}, &number.mantissa) ||
        __builtin_add_overflow(number.mantissa, digit, &number.mantissa))
      throw TooLong();
  };
  for (const char c : decimal.digits) append(c - '0');
  const std::int64_t exponent = decimal.digits.empty() ? 0 : decimal.exponent;
  if (std::abs(exponent) > max_exponent) throw TooLong();
  std::int64_t scale = decimal.scale - exponent;
  for (; scale < 0; ++scale) append(0);
  number.scale = static_cast<unsigned>(scale);
  if (decimal.is_negative) number.mantissa = -number.mantissa;
  return number;
}

std::string scaled_text(const ScaledNumber& number) {
  std::string digits = fmt::format("{}", number.mantissa < 0 ? -number.mantissa : number.mantissa);
  if (number.scale != 0) {
    if (digits.size() <= number.scale) digits.insert(0, number.scale + 1 - digits.size(), '0');
    digits.insert(digits.size() - number.scale, ".");
  }
  return number.mantissa < 0 ? '-' + digits : digits;
}

TextEncoding encoding_of(const RecordFormat& format, const Query& query) {
  std::vector<TextKey> columns;
  for (const Reduction& reduction : query.reductions)
    if (reduction.column) {
      TextKey& column = columns.emplace_back(*reduction.column);
      column.descending = false;  // as the min is that of the values
      if (reduction.operation == Operation::sum && column.type == TextType::bytes)
        column.type = TextType::decimal;
    }
  return format.columns(columns, Setting::on_equal).value();
}

class ColumnReducer final : public GroupReducer {
 public:
  // Throws Error if the query's reductions do not fit the format, which must have columns.
  ColumnReducer(const RecordFormat& format, const Query& query);

  bool reduces_single() const override { return true; }
  bool adds_column() const override { return adds_column_; }

  void start(std::span<const std::byte> record, GroupSums& sums) const override;
  void add(const std::byte* rows, std::uint64_t count, std::byte* result,
           GroupSums& sums) const override;
  void add(const std::byte* next_result, const GroupSums& next, std::byte* result,
           GroupSums& sums) const override;
  void finish(std::uint64_t count, const GroupSums& sums, RowCopy& row) const override;

 private:
  struct Column {
    Reduction::Operation operation;
    TextColumn column;
  };

  void check_columns(std::span<const TextColumn> keys) const;
  void add(std::span<const std::byte> record, GroupSums& sums) const;
  // `record` is the one that holds the field, for errors.
  void add(const Column& column, const detail::TextField& field, std::string_view record,
           ColumnSum& sum) const;
  void check_width(std::string_view record) const;
  std::string delimited(const Column& column, std::string result) const;
  [[noreturn]] void throw_too_long(const Column& column, std::string_view record) const;
  bool has_result(std::size_t i, std::uint64_t count, const GroupSums& sums) const;
  std::uint32_t min_columns(std::uint64_t count, const GroupSums& sums) const;
  std::string with_results(std::uint64_t count, const GroupSums& sums,
                           std::span<const std::byte> first) const;
  std::string text_of(const Column& column, std::uint64_t count, const ColumnSum& sum,
                      std::string_view record) const;
  template <class Number>
  std::string fitting_text(const Column& column, std::uint64_t count, const ColumnSum& sum,
                           std::string_view record) const;

  KeyLayout rows_;
  TextEncoding encoding_;
  std::vector<Column> columns_;
  Overflow overflow_;
  bool adds_column_ = false;
  std::uint32_t header_columns_ = 0;  // before the column that count() adds; 0 without names
  std::uint32_t min_columns_ = 0;     // before that column: those of the header and of all results
};

ColumnReducer::ColumnReducer(const RecordFormat& format, const Query& query)
    : rows_(format.keys().layout()),
      encoding_(encoding_of(format, query)),
      overflow_(query.overflow) {
  const auto* column = encoding_.columns().data();
  for (const Reduction& reduction : query.reductions)
    if (reduction.column)
      columns_.push_back({reduction.operation, *column++});
    else
      adds_column_ = true;
  const bool has_names = format.header()->has_names();
  if (has_names && adds_column_) header_columns_ = encoding_.header_columns();
  min_columns_ = header_columns_;
  for (const Column& reduced : columns_)
    if (adds_column_) min_columns_ = std::max(min_columns_, reduced.column.column);
  // Names have no numbers if no file has a header, and so no record.
  if (!has_names || encoding_.header_columns() != 0) check_columns(format.keys().columns());
}

void ColumnReducer::check_columns(std::span<const TextColumn> keys) const {
  const auto fail = [](std::uint32_t column, std::string_view why) {
    throw_error(ErrorCode::options, "{}: {} {}", Setting::on_equal,
                column == 0 ? "the whole line" : fmt::format("column {}", column), why);
  };
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const std::uint32_t column = columns_[i].column.column;
    if (column == 0) fail(column, "cannot be reduced; name a column");
    for (std::size_t other = 0; other < i; ++other)
      if (columns_[other].column.column == column) fail(column, "is named twice");
    for (const TextColumn& key : keys)
      if (key.column == column || key.column == 0)
        fail(column, "is a key or a part of it, which orders the records and stays as it is");
  }
}

void ColumnReducer::start(std::span<const std::byte> record, GroupSums& sums) const {
  sums.columns.assign(columns_.size(), {});
  add(record, sums);
}

void ColumnReducer::add(const std::byte* rows, std::uint64_t count, std::byte*,
                        GroupSums& sums) const {
  for (std::uint64_t i = 0; i < count; ++i)
    add(bytes_of(rows_, rows + i * rows_.record_bytes, 1), sums);
}

void ColumnReducer::add(std::span<const std::byte> record, GroupSums& sums) const {
  const TextLayout layout = encoding_.layout();
  detail::Columns columns(layout, record.data(), record.size());
  for (std::size_t i = 0; i < columns_.size(); ++i)
    add(columns_[i], columns.written(columns_[i].column.column), corank::text_of(record),
        sums.columns[i]);
}

void ColumnReducer::add(const Column& column, const detail::TextField& field,
                        std::string_view record, ColumnSum& sum) const {
  const TextType type = column.column.type;
  switch (column.operation) {
    case Operation::first:
    case Operation::count:
      return;
    case Operation::last:
      return take(field, sum);
    default:
      break;
  }
  if (detail::string_bytes(field) == 0) return;  // no value
  const std::string value = value_of(field);
  const bool is_value = detail::holds_value(field, column.column);
  if (value.empty() && !is_value) return;  // blanks
  if (!is_value)
    throw_error(
        "{}: column {} of the record \"{}\" holds \"{}\", which is not a value of type {}; correct "
        "it, or leave such records out by {}",
        Setting::on_equal, column.column.column, shown_record(record), without_nul(value),
        type_name(type), Setting::where);
  if (column.operation != Operation::sum) {
    const detail::TextField best = field_of(encoding_.layout(), sum);
    if (!sum.has_value ||
        (column.operation == Operation::min ? is_less(field, best, column.column)
                                            : is_less(best, field, column.column)))
      take(field, sum);
  } else if (type == TextType::f64) {
    double number = 0;
    const bool has_plus = value.starts_with('+');
    std::from_chars(value.data() + has_plus, value.data() + value.size(), number);
    sum.floating.add(number);
  } else {
    try {
      add_to(sum.exact, scaled(detail::parse_decimal(value).value()));
    } catch (const TooLong&) {
      throw_too_long(column, record);
    }
  }
  sum.has_value = true;
}

void ColumnReducer::throw_too_long(const Column& column, std::string_view record) const {
  throw_error(
      "{}: the sum of column {} over some of the records with the key of \"{}\" has more than 38 "
      "digits; sum it as f64",
      Setting::on_equal, column.column.column, shown_record(record));
}

void ColumnReducer::add(const std::byte*, const GroupSums& next, std::byte* result,
                        GroupSums& sums) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const ColumnSum& more = next.columns[i];
    ColumnSum& sum = sums.columns[i];
    if (!more.has_value) continue;
    if (columns_[i].operation == Operation::sum) {
      try {
        add_to(sum.exact, more.exact);
      } catch (const TooLong&) {
        throw_too_long(columns_[i], corank::text_of(bytes_of(rows_, result, 1)));
      }
      sum.floating.add(more.floating);
      sum.has_value = true;
    } else {
      add(columns_[i], field_of(encoding_.layout(), more), more.field, sum);
    }
  }
}

std::string ColumnReducer::text_of(const Column& column, std::uint64_t count, const ColumnSum& sum,
                                   std::string_view record) const {
  if (column.operation == Operation::count) return std::to_string(count);
  if (column.operation != Operation::sum) return sum.field;
  switch (column.column.type) {
    case TextType::f64:
      return fmt::format("{}", sum.floating.as_double());
    case TextType::u64:
      return fitting_text<std::uint64_t>(column, count, sum, record);
    case TextType::i64:
      return fitting_text<std::int64_t>(column, count, sum, record);
    default:
      return scaled_text(sum.exact);
  }
}

template <class Number>
std::string ColumnReducer::fitting_text(const Column& column, std::uint64_t count,
                                        const ColumnSum& sum, std::string_view record) const {
  assert(sum.exact.scale == 0);
  return fmt::format(
      "{}", fit<Number>(sum.exact.mantissa, overflow_, [&] {
        throw_error(
            "{}: the sum of column {} over the {} records with the key of \"{}\" is {}, which "
            "is not a value of type {}; sum it as decimal, or choose {} or wrap",
            Setting::on_equal, column.column.column, count, shown_record(record),
            sum.exact.mantissa, type_name(column.column.type),
            setting_is(Setting::overflow, "saturate"));
      }));
}

// Returns whether a column of the result differs from the first record's. A single record stays as
// it is, and so does a column without values.
bool ColumnReducer::has_result(std::size_t i, std::uint64_t count, const GroupSums& sums) const {
  const Operation operation = columns_[i].operation;
  return operation == Operation::count ||
         (operation != Operation::first && count != 1 && sums.columns[i].has_value);
}

// Returns how many columns the result has at least, since those that the record lacks are empty.
std::uint32_t ColumnReducer::min_columns(std::uint64_t count, const GroupSums& sums) const {
  std::uint32_t columns = min_columns_;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const auto& [operation, column] = columns_[i];
    const bool is_number = operation == Operation::count || operation == Operation::sum;
    if (has_result(i, count, sums) && (is_number || !sums.columns[i].field.empty()))
      columns = std::max(columns, column.column);
  }
  return columns;
}

// Returns the result as it is written: a number that holds the delimiter needs quotes, and other
// results are copied with theirs.
std::string ColumnReducer::delimited(const Column& column, std::string result) const {
  const TextLayout layout = encoding_.layout();
  if (column.operation != Operation::count && column.operation != Operation::sum) return result;
  if (result.find(layout.delimiter) == std::string::npos) return result;
  if (layout.kind == TextKind::csv) return '"' + result + '"';
  throw_error("{}: column {} becomes {}, which holds the delimiter; take another {}, or CSV",
              Setting::on_equal, column.column.column, result, Setting::delimiter);
}

// Returns the group's first record with the results in their columns.
std::string ColumnReducer::with_results(std::uint64_t count, const GroupSums& sums,
                                        std::span<const std::byte> first) const {
  const TextLayout layout = encoding_.layout();
  const std::uint32_t min_columns = this->min_columns(count, sums);
  detail::Columns columns(layout, first.data(), first.size());
  std::string record;
  for (std::uint32_t number = 1;; ++number) {
    const detail::TextField field = columns.written(number);
    if (!field.there && number > min_columns) break;  // missing columns before are empty
    if (number != 1) record += layout.delimiter;
    const auto found = std::ranges::find(columns_, number,
                                         [](const Column& column) { return column.column.column; });
    const auto i = static_cast<std::size_t>(found - columns_.begin());
    if (found != columns_.end() && has_result(i, count, sums))
      record += delimited(*found, text_of(*found, count, sums.columns[i], corank::text_of(first)));
    else if (field.there)
      record.append(reinterpret_cast<const char*>(field.at), field.bytes);
  }
  const std::string_view end = end_of(layout, corank::text_of(first));
  // A last value that ends with a carriage return keeps it, as in put_columns().
  record += end.back();
  if (end.size() == 2 ||
      detail::has_return(layout, std::as_bytes(std::span(record)).data(), record.size()))
    record.insert(record.size() - 1, 1, '\r');
  return record;
}

// Throws Error if the column that count() adds would not be the one that the header names.
void ColumnReducer::check_width(std::string_view record) const {
  if (header_columns_ == 0) return;
  if (const std::uint32_t columns = count_columns(encoding_.layout(), record);
      columns > header_columns_)
    throw_error(
        "{}: the record \"{}\" has {} columns and the header {}; count() would add a column "
        "without a name; correct the file",
        Setting::on_equal, shown_record(record), columns, header_columns_);
}

void ColumnReducer::finish(std::uint64_t count, const GroupSums& sums, RowCopy& row) const {
  const std::span<const std::byte> first = row.record();
  bool changes = min_columns_ != 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) changes |= has_result(i, count, sums);
  if (!changes && !adds_column_) return;
  std::string record;
  if (changes) record = with_results(count, sums, first);
  if (adds_column_) {
    check_width(corank::text_of(first));
    record = with_last_column(encoding_.layout(), changes ? record : corank::text_of(first),
                              std::to_string(count));
  }
  row.assign_record(rows_, std::as_bytes(std::span(record)));
}

}  // namespace

std::unique_ptr<const GroupReducer> make_column_reducer(const RecordFormat& format,
                                                        const Query& query) {
  return std::make_unique<ColumnReducer>(format, query);
}

}  // namespace corank
