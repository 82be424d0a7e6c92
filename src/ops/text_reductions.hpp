// Reductions of groups of lines or CSV records: each combines one column over the records of a
// group, and puts the result into the group's first record. Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corank/query.hpp"
#include "corank/text_key.hpp"
#include "format/record_format.hpp"
#include "ops/exact_sum.hpp"

namespace corank {

// A decimal number: the mantissa over ten to the power of the scale.
struct ScaledNumber {
  __int128 mantissa = 0;
  unsigned scale = 0;
};

// Value of one column over the records of a group so far.
struct ColumnSum {
  std::string field;       // of min, max, last: the column as it is in its record, with quotes
  bool is_quoted = false;  // whether the field has quotes or escapes
  bool has_value = false;  // whether any record had a value
  ScaledNumber exact;
  ExactSum floating;
};
using TextSums = std::vector<ColumnSum>;

class TextReductions {
 public:
  // Throws Error if the query's reductions do not fit the format, which must have columns.
  TextReductions(const RecordFormat& format, const Query& query);

  // Whether a count becomes a new last column, so that a whole line is no key any more.
  bool adds_column() const { return adds_column_; }

  // Begins a group with a record. Throws Error, as the others do, if a column is not a number.
  void start(std::span<const std::byte> record, TextSums& sums) const;
  void add(std::span<const std::byte> record, TextSums& sums) const;
  // Adds the next part of the same group.
  void add(const TextSums& next, TextSums& sums) const;
  // Returns the first record of a group of `count` records with its reduced columns.
  std::vector<std::byte> finish(std::uint64_t count, const TextSums& sums,
                                std::span<const std::byte> first) const;

 private:
  struct Column {
    Reduction::Operation operation;
    TextColumn column;
  };

  void check_columns(std::span<const TextColumn> keys) const;
  void add(const Column& column, const detail::TextField& field, ColumnSum& sum) const;
  std::string text_of(const Column& column, std::uint64_t count, const ColumnSum& sum) const;

  TextEncoding encoding_;
  std::vector<Column> columns_;
  bool adds_column_ = false;
};

}  // namespace corank
