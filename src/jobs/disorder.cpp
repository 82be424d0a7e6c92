#include "jobs/disorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "run/framing_producer.hpp"
#include "util/setting_format.hpp"

namespace corank {
namespace {

// Records before and after the disorder that another order must explain, too.
constexpr std::uint64_t max_examined = 1000;

using Rows = std::vector<const std::byte*>;

Rows rows_around(const RecordFormat& format, const ScannedBlock& block, std::uint64_t index) {
  Rows rows;
  const std::uint64_t first = index - std::min(index, max_examined);
  if (first == 0 && block.before) rows.push_back(block.before);
  const std::uint64_t end = std::min(block.rows.count, index + max_examined);
  for (std::uint64_t i = first; i < end; ++i)
    rows.push_back(block.rows.data + i * format.row_bytes());
  return rows;
}

bool are_sorted(const KeyLayout& layout, std::span<const std::byte* const> rows) {
  return std::ranges::is_sorted(
      rows, [&](const std::byte* a, const std::byte* b) { return record_less(layout, a, b); });
}

bool are_reversed(const KeyLayout& layout, std::span<const std::byte* const> rows) {
  return rows.size() > 2 &&
         std::ranges::is_sorted(rows, [&](const std::byte* a, const std::byte* b) {
           return record_less(layout, b, a);
         });
}

detail::TextField field_of(const TextLayout& by, const std::byte* row, std::uint32_t column) {
  const PrefixRef& ref = *reinterpret_cast<const PrefixRef*>(row);
  return detail::Columns(by, record_of(ref), record_bytes(by, ref))(column);
}

// Returns a field as a locale's first comparison takes it: letters and digits, regardless of case.
std::string letters_of(const detail::TextField& field) {
  std::string letters;
  unsigned byte;
  for (detail::FieldBytes bytes(field); bytes.next(byte);)
    if (std::isalnum(static_cast<int>(byte)) || byte >= 0x80)
      letters += static_cast<char>(std::toupper(static_cast<int>(byte)));
  return letters;
}

// Returns whether the order of bytes alone contradicts that of the two strings.
bool may_be_ordered(const std::string& before, const std::string& after) {
  const auto [a, b] = std::ranges::mismatch(before, after);
  const auto is_ascii = [](char c) { return (c & 0x80) == 0; };
  return before <= after || (a != before.end() && !is_ascii(*a)) ||
         (b != after.end() && !is_ascii(*b));
}

// Finds another order of one key column that the rows have.
class OtherOrder {
 public:
  // `column` is the index of the key column by which the rows are out of order.
  OtherOrder(const TextLayout& by, std::uint32_t column, std::span<const std::byte* const> rows)
      : by_(by),
        columns_(by.columns, by.columns + by.columns_count),
        column_(columns_[column]),
        given_(column_),
        rows_(rows) {
    by_.columns = columns_.data();
    by_.bad_numbers = BadNumbers::last;
  }

  // Returns the continuation of the error that names the order; empty if there is none.
  std::string text() {
    const std::string name = given_.column == 0 ? "line"
                             : by_.finder       ? ""
                                                : fmt::format("{}", given_.column);
    const auto advice = [&](std::string_view order, std::string_view word) {
      return fmt::format("; {} the records are in order: say {}:{} in {}", order, name, word,
                         Setting::keys);
    };
    using enum TextType;
    for (const TextType type : {u64, i64, f64, time, natural, decimal, human, bytes})
      if (type != given_.type && is_explained_by({given_.column, type, given_.descending, false}))
        return advice(type == bytes ? "as text" : "by value", type_name(type));
    if (given_.type != bytes || given_.nocase) return {};
    if (is_explained_by({given_.column, bytes, given_.descending, true}))
      return advice("regardless of case", "nocase") + ", or sort by bytes, as LC_ALL=C does";
    if (!given_.descending && is_explained_by_locale())
      return "; another locale may have this order: sort by bytes, as LC_ALL=C does";
    return {};
  }

 private:
  // The words of the prefix references are of the given order.
  bool is_less(const std::byte* a, const std::byte* b) const {
    const PrefixRef &x = *reinterpret_cast<const PrefixRef*>(a),
                    &y = *reinterpret_cast<const PrefixRef*>(b);
    return text_less(by_, record_of(x), record_bytes(by_, x), record_of(y), record_bytes(by_, y));
  }
  bool is_explained_by(const TextColumn& column) {
    column_ = column;
    const bool has_values = std::ranges::all_of(rows_, [&](const std::byte* row) {
      return detail::holds_value(field_of(by_, row, column.column), column.type);
    });
    const bool is_sorted =
        has_values && std::ranges::is_sorted(rows_, [&](const std::byte* a, const std::byte* b) {
          return is_less(a, b);
        });
    column_ = given_;
    return is_sorted;
  }
  bool is_explained_by_locale() const {
    for (std::size_t i = 1; i < rows_.size(); ++i)
      if (is_less(rows_[i], rows_[i - 1]) &&
          !may_be_ordered(letters_of(field_of(by_, rows_[i - 1], given_.column)),
                          letters_of(field_of(by_, rows_[i], given_.column))))
        return false;
    return true;
  }

  TextLayout by_;
  std::vector<TextColumn> columns_;
  TextColumn& column_;
  const TextColumn given_;
  std::span<const std::byte* const> rows_;
};

// Returns the index of the key column by which `row` sorts before `before`.
std::uint32_t column_of_disorder(TextLayout by, const std::byte* before, const std::byte* row) {
  for (by.columns_count = 1;; ++by.columns_count)
    if (text_less(by, *reinterpret_cast<const PrefixRef*>(row),
                  *reinterpret_cast<const PrefixRef*>(before)))
      return by.columns_count - 1;
}

// Returns the likely cause of the disorder, as a continuation of the error; may be empty.
std::string cause_of(const KeyLayout& layout, std::span<const std::byte* const> rows,
                     std::uint32_t column, bool is_second) {
  const bool has_types = layout.text && layout.text->kind != TextKind::pairs;
  const auto order_of = [&](std::span<const std::byte* const> some) {
    return has_types ? OtherOrder(*layout.text, column, some).text() : std::string();
  };
  if (std::string order = order_of(rows); !order.empty()) return order;
  const auto rest = rows.subspan(1);
  const std::string order_of_rest =
      !is_second || are_sorted(layout, rest) ? std::string() : order_of(rest);
  if (order_of_rest.empty() && are_reversed(layout, rows))
    return fmt::format("; the records are in reverse order: swap asc and desc in {}",
                       Setting::keys);
  if (!has_types || layout.text->finder || !is_second ||
      (order_of_rest.empty() && !are_sorted(layout, rest)))
    return {};
  return fmt::format("; if the file begins with a header, say {}{}", Setting::header,
                     order_of_rest);
}

}  // namespace

void throw_disorder(const Run& run, const RecordFormat& format, const ScannedBlock& block,
                    std::uint64_t index) {
  const KeyLayout layout = format.keys().layout();
  const std::byte* const row = block.rows.data + index * format.row_bytes();
  const std::byte* const before = index == 0 ? block.before : row - format.row_bytes();
  const Rows rows = rows_around(format, block, index);
  const std::uint64_t record = block.first + index, byte = offset_of(format, block, index);
  const std::uint32_t column = layout.text ? column_of_disorder(*layout.text, before, row) : 0;
  throw OutOfOrder(run.path(), record, byte, place_text(place_of(run, layout, record, byte)),
                   fmt::format(": {} after {}{}", format.key_text(row), format.key_text(before),
                               cause_of(layout, rows, column, record == 1)));
}

}  // namespace corank
