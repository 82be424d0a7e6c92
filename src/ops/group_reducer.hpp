// Combines fields of fixed-size records, or columns of lines and CSV, over the records of a group.
// Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "format/record_format.hpp"
#include "format/rows.hpp"
#include "ops/exact_sum.hpp"

namespace corank {

// A field in which the records of a group are reduced to one value.
struct FieldReduction {
  Reduction::Operation operation;
  Field field;
  std::size_t sum;      // index in the sums' integers or floats, for sum
  KeyEncoding ordered;  // orders records by the field, for min and max
  Overflow overflow;
};

// A decimal number: the mantissa over ten to the power of the scale.
struct ScaledNumber {
  __int128 mantissa = 0;
  unsigned scale = 0;
};

// Returns `sum` as a Number. If it does not fit: calls `fail`, which throws, or does as `overflow`
// says.
template <class Number, class Fail>
Number fit(__int128 sum, Overflow overflow, Fail fail) {
  using Limits = std::numeric_limits<Number>;
  const auto fitting = static_cast<Number>(sum);
  if (fitting == sum || overflow == Overflow::wrap) return fitting;
  if (overflow == Overflow::error) fail();
  return sum < 0 ? Limits::min() : Limits::max();
}

// Value of one column over the records of a group so far.
struct ColumnSum {
  std::string field;       // of min, max, last: the column as it is in its record, with quotes
  bool is_quoted = false;  // whether the field has quotes or escapes
  bool has_value = false;  // whether any record had a value
  ScaledNumber exact;
  ExactSum floating;
};

// Reduced values of a group so far, without the fields that are in its resulting record.
struct GroupSums {
  std::vector<__int128> integers;
  std::vector<ExactSum> floats;
  std::vector<ColumnSum> columns;
};

class GroupReducer {
 public:
  virtual ~GroupReducer() = default;

  // Returns whether groups of one record are reduced, too.
  virtual bool reduces_single() const = 0;
  // Returns whether a count becomes a new last column, so that a whole line is not a key any more.
  virtual bool adds_column() const { return false; }
  // Returns the reduced fields, for devices; empty if columns are reduced.
  virtual std::span<const FieldReduction> fields() const { return {}; }

  // Begins a group with a record. Throws Error, as the others do, if a column is not a number.
  virtual void start(std::span<const std::byte> record, GroupSums& sums) const = 0;
  // Adds contiguous rows to the group, whose other values are in its record `result`.
  virtual void add(const std::byte* rows, std::uint64_t count, std::byte* result,
                   GroupSums& sums) const = 0;
  // Adds the next part of the same group.
  virtual void add(const std::byte* next_result, const GroupSums& next, std::byte* result,
                   GroupSums& sums) const = 0;
  // Puts the reduced values of a group of `count` records into its first row. Throws Error if a
  // field cannot hold its value.
  virtual void finish(std::uint64_t count, const GroupSums& sums, RowCopy& row) const = 0;
  // Reduces rows that are groups of one, where they are. Only for fields.
  virtual void finish_singles(std::byte* /*rows*/, std::uint64_t /*count*/) const {}
};

// Return the reducer of fields, which `schema` describes, or of columns. `format` must outlive it.
// Throw Error if the query does not fit the format.
std::unique_ptr<const GroupReducer> make_field_reducer(const RecordFormat& format,
                                                       const Schema& schema, const Query& query);
std::unique_ptr<const GroupReducer> make_column_reducer(const RecordFormat& format,
                                                        const Query& query);

}  // namespace corank
