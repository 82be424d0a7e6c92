// Compares rows with values, and tests them by conditions, a block at a time. Formats make bounds
// and filters; see RecordFormat. Both are immutable and thread-safe, and can be moved but not
// copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"

namespace corank {

// Contiguous rows of one format; a view. A row is a fixed-size record, or a prefix reference to a
// record of variable length.
struct RowSpan {
  const std::byte* data;
  std::uint64_t count;
};

// Values of some columns, with which rows are compared: a bound of a key range, or the right
// operand of a comparison.
class RowBound {
 public:
  // Compares fixed-size records with `record` by the fields of `encoding`.
  RowBound(KeyEncoding encoding, std::vector<std::byte> record);
  // Compares records of variable length with `record` by the columns of `encoding`.
  RowBound(TextEncoding encoding, std::vector<std::byte> record);
  RowBound(RowBound&&) = default;
  RowBound& operator=(RowBound&&) = default;

  // Returns the layout of the columns that have values.
  KeyLayout layout() const { return encoding_.layout(); }
  // Returns a record with the values in its columns.
  std::span<const std::byte> record() const { return record_; }
  // Returns the first key word of that record.
  std::uint64_t word() const { return word_; }
  // Returns whether the first key word is the whole key.
  bool is_word() const { return !encoding_.has_tail() && encoding_.prefix_words() == 1; }

  // Return a negative number, 0 or a positive number if the row, or the record, sorts before, with
  // or after the bound.
  int compare(const std::byte* row) const;
  int compare_record(std::span<const std::byte> record) const;
  // Sets mask[i] to 1 if row i stands in the relation `operation` to the bound, else to 0.
  // `operation` is one of the six comparisons.
  void test(ConditionOperation operation, RowSpan rows, std::uint8_t* mask) const;

 private:
  std::optional<TextEncoding> text_;  // owns the columns that encoding_ refers to
  KeyEncoding encoding_;
  std::vector<std::byte> record_;
  std::uint64_t word_;
};

// A condition compiled for a format. Every thread has its own scratch.
class RowFilter {
 public:
  static constexpr std::uint64_t max_rows = 256;
  using Mask = std::array<std::uint8_t, max_rows>;

  struct Step {
    ConditionOperation operation;
    std::optional<RowBound> with;  // right operand of a comparison
  };

  // Takes the steps in postfix order; there is at least one.
  explicit RowFilter(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // Returns a mask that is 1 for each row that satisfies the condition and 0 for the others;
  // rows.count is at most max_rows. The mask lies in `scratch`, and is valid until the next call
  // with it.
  const Mask& test(RowSpan rows, std::vector<Mask>& scratch) const;

  std::span<const Step> steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
};

}  // namespace corank
