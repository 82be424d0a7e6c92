#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "format/key_order.hpp"
#include "util/messages.hpp"
#include "util/option_items.hpp"

namespace corank {
namespace {

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

  // Returns the continuation of the error that names the order of `key`, the column; empty if there
  // is none.
  std::string text(const TextKey& key) {
    const std::string name = !key.name.empty() ? quoted_if_needed(key.name)
                             : key.column == 0 ? "line"
                                               : fmt::format("{}", key.column);
    const auto advice = [&](std::string_view order, std::string_view word) {
      return fmt::format("; {} the records are in order: say {}:{}{} in {}", order, name, word,
                         given_.descending ? ":desc" : "", Setting::keys);
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
      return detail::holds_value(field_of(by_, row, column.column), column);
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

}  // namespace

std::string find_other_order(const TextLayout& by, std::span<const TextKey> keys,
                             std::span<const std::byte* const> rows, const std::byte* before,
                             const std::byte* row) {
  const std::uint32_t column = column_of_disorder(by, before, row);
  return OtherOrder(by, column, rows).text(keys.empty() ? TextKey() : keys[column]);
}

}  // namespace corank
