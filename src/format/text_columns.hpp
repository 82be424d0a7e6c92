// Options on columns of variable-length records: key bounds, conditions and projections.
// Constructors throw Error; later calls do not. Constant objects can be shared by threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "corank/setting.hpp"
#include "corank/text_key.hpp"

namespace corank {

// Returns a record that has `values` in the leading key columns of `layout`, one for each. Throws
// Error if a value cannot be one of its key; `option` names the option in errors.
std::vector<std::byte> record_with(const TextLayout& layout, const std::vector<std::string>& values,
                                   Setting option);

// Throws Error unless the value may be compared with the column; `option` names the option in
// errors.
void require_comparable(const ColumnValue& with, Setting option);

// Bound: values of the leading keys, to compare records with.
class TextBound {
 public:
  // `layout` must outlive the bound. Throws Error if a value cannot be one of its key; `option`
  // names the option in errors.
  TextBound(const TextLayout& layout, const std::vector<std::string>& values, Setting option);

  // Returns the layout of the keys that have values.
  const TextLayout& layout() const { return layout_; }
  std::span<const std::byte> record() const { return record_; }

  bool behind(const PrefixRef& entry) const {
    return text_less(layout_, record_of(entry), record_bytes(layout_, entry), record_.data(),
                     record_.size());
  }
  // Returns a negative number, 0 or a positive number if the record sorts before, with or after the
  // bound.
  int compare(std::span<const std::byte> record) const;

 private:
  TextLayout layout_;
  std::vector<std::byte> record_;
  std::uint64_t word_;  // first word of its key
};

// Filter: tests records by a condition.
class TextFilter {
 public:
  struct Step {
    ConditionOperation operation;
    std::optional<TextEncoding> column;  // column of a comparison
    std::optional<TextBound> value;
  };

  // Throws Error if a column or its value does not fit the format. `header` is as in TextEncoding;
  // `option` names the option in errors.
  TextFilter(const TextFormat& format, std::string_view header, const Condition& condition,
             Setting option);
  // Returns the filter that tells which records `query` drops after groups are resolved.
  static TextFilter dropping(const TextFormat& format, std::string_view header, const Query& query);

  // Returns whether the record fulfils the condition. `scratch` is overwritten; reusing it saves
  // allocations.
  bool test(std::span<const std::byte> record, std::vector<char>& scratch) const;

  // Returns the steps in postfix order.
  const std::vector<Step>& steps() const { return steps_; }

 private:
  TextFilter() = default;
  void add(const TextFormat& format, std::string_view header, const Condition::Step& step,
           Setting option);

  std::vector<Step> steps_;
};

// Calls put(bytes, count) with the parts of the projected record: the columns of `selected`, with
// delimiters between them. A column that the record lacks is empty.
template <class Put>
CORANK_HOST_DEVICE void put_columns(const TextLayout& selected, const std::byte* record,
                                    std::uint64_t bytes, Put put) {
  const auto put_char = [&](char c) {
    const auto byte = static_cast<std::byte>(c);
    put(&byte, 1);
  };
  detail::Columns columns(selected, record, bytes);
  bool is_first = true;
  for (std::uint32_t c = 0; c < selected.columns_count; ++c) {
    const auto field = columns(selected.columns[c].column);
    if (!is_first) put_char(selected.delimiter);
    put(field.at, field.bytes);
    is_first = false;
  }
  // A carriage return before the terminator of CSV belongs to no column.
  if (selected.kind == TextKind::csv && selected.terminator == '\n' && bytes > 1 &&
      detail::is_char(record[bytes - 2], '\r'))
    put_char('\r');
  put_char(selected.terminator);
}

// Projection: the columns of the output, in their order.
class TextSelection {
 public:
  // Throws Error if `columns` do not fit the format. `header` is as in TextEncoding.
  TextSelection(const TextFormat& format, std::string_view header,
                const std::vector<TextKey>& columns);

  // Writes the projected record to `to`, which has room for max_bytes(), and returns its end.
  std::byte* select(std::span<const std::byte> record, std::byte* to) const;
  std::vector<std::byte> select(std::span<const std::byte> record) const;
  // Returns the max size of the projected record. Each column that the record lacks adds a
  // delimiter.
  std::uint64_t max_bytes(std::span<const std::byte> record) const {
    return record.size() + encoding_.columns().size() - 1;
  }
  // Returns the projected header. A byte order mark stays at its start.
  std::string of_header(std::string_view header) const;
  const TextEncoding& encoding() const { return encoding_; }

 private:
  TextEncoding encoding_;
};

}  // namespace corank
