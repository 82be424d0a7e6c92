// Options on columns of variable-length records: key bounds, conditions and projections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "corank/setting.hpp"
#include "corank/text_field.hpp"

namespace corank {

// Returns a record that has `values` in the leading key columns of `layout`, one for each. Throws
// Error if a value cannot be one of its key; `option` names the option in errors.
std::vector<std::byte> record_with(const TextLayout& layout, const std::vector<std::string>& values,
                                   Setting option);

// Throws Error unless the value may be compared with the column; `option` names the option in
// errors.
void require_comparable(const ColumnValue& with, Setting option);

// Returns the end of a line or CSV record, which belongs to no column: the terminator, and in CSV a
// carriage return before it.
std::string_view end_of(const TextLayout& layout, std::string_view record);

// Returns a line or CSV record with another last column. Throws Error if it cannot hold `value`.
std::string with_last_column(const TextLayout& layout, std::string_view record,
                             std::string_view value);
// Returns the start of a record for messages, without its terminator.
std::string shown_record(std::string_view record);

// Calls put(bytes, count) with the parts of the projected record: the columns of `selected`, with
// delimiters between them. A column that the record lacks is empty. If the last one ends with a
// carriage return, another follows, since readers of CSV drop the one before the terminator.
template <class Put>
CORANK_HOST_DEVICE void put_columns(const TextLayout& selected, const std::byte* record,
                                    std::uint64_t bytes, Put put) {
  const auto put_char = [&](char c) {
    const auto byte = static_cast<std::byte>(c);
    put(&byte, 1);
  };
  detail::Columns columns(selected, record, bytes);
  bool is_first = true;
  detail::TextField last{};
  for (std::uint32_t c = 0; c < selected.columns_count; ++c) {
    const auto field = columns.written(selected.columns[c].column);
    if (!is_first) put_char(selected.delimiter);
    put(field.at, field.bytes);
    last = field;
    is_first = false;
  }
  if (detail::has_return(selected, record, bytes) ||
      detail::has_return(selected, last.at, last.bytes + 1))
    put_char('\r');
  put_char(selected.terminator);
}

}  // namespace corank
