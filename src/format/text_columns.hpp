// What options say of the columns of lines and CSV: bounds of keys, conditions, selections.
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
#include "corank/text_key.hpp"

namespace corank {

// The values of the first keys, to compare records with.
class TextBound {
 public:
  // `layout` must outlive it. Throws Error where a value cannot be one of its key; `option` is what
  // it was given as.
  TextBound(const TextLayout& layout, const std::vector<std::string>& values,
            std::string_view option);

  // By the keys that have values, and a record, its framing included, that has them.
  const TextLayout& layout() const { return layout_; }
  std::span<const std::byte> record() const { return record_; }

  bool behind(const PrefixRef& entry) const {
    return text_less(layout_, record_of(entry), record_bytes(layout_, entry), record_.data(),
                     record_.size());
  }
  // Less than 0, 0 or more, as the record sorts before it, with it or behind it.
  int compare(std::span<const std::byte> record) const;

 private:
  TextLayout layout_;
  std::vector<std::byte> record_;
  std::uint64_t word_;  // of its key, the first
};

// Which records fulfil a condition.
class TextFilter {
 public:
  struct Step {
    ConditionOperation operation;
    std::optional<TextEncoding> column;  // of a comparison
    std::optional<TextBound> value;
  };

  // Throws Error where a column or its value cannot be one of the format's; `header` is as in
  // TextEncoding, and `option` is what the condition was given as.
  TextFilter(const TextFormat& format, std::string_view header, const TextCondition& condition,
             std::string_view option);
  // Makes the filter of the records that the shaping drops after equal keys are resolved.
  static TextFilter dropping(const TextFormat& format, std::string_view header, const Query& query);

  // `scratch` may be any; it is for the next call.
  bool test(std::span<const std::byte> record, std::vector<char>& scratch) const;

  // In postfix order.
  const std::vector<Step>& steps() const { return steps_; }

 private:
  TextFilter() = default;
  void add(const TextFormat& format, std::string_view header, const TextCondition::Step& step,
           std::string_view option);

  std::vector<Step> steps_;
};

// Calls put(bytes, count) with the parts of the record that goes out: the columns that `selected`
// has, with delimiters between them. A column that the record lacks is empty.
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
  // Of CSV that ends before the terminator, and belongs to no column.
  if (selected.kind == TextKind::csv && selected.terminator == '\n' && bytes > 1 &&
      detail::is_char(record[bytes - 2], '\r'))
    put_char('\r');
  put_char(selected.terminator);
}

// The columns that go out of records, in their new order.
class TextSelection {
 public:
  // The same.
  TextSelection(const TextFormat& format, std::string_view header,
                const std::vector<TextKey>& columns);

  // Writes the record that goes out of this one to `to`, which has room for max_bytes(), and
  // returns where it ends.
  std::byte* select(std::span<const std::byte> record, std::byte* to) const;
  std::vector<std::byte> select(std::span<const std::byte> record) const;
  // Each column that the record lacks adds a delimiter.
  std::uint64_t max_bytes(std::span<const std::byte> record) const {
    return record.size() + encoding_.columns().size() - 1;
  }
  // A mark of the byte order stays in front.
  std::string of_header(std::string_view header) const;
  const TextEncoding& encoding() const { return encoding_; }

 private:
  TextEncoding encoding_;
};

}  // namespace corank
