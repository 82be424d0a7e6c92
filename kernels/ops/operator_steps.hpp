// Steps of an operator chain that a device's thread applies to one record or one group: conditions
// and reductions. They compile for the host, too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "corank/text_key.hpp"

namespace corank {

constexpr std::uint64_t max_test_steps = 64;  // their results fit the bits of a word

// Returns whether a record satisfies a condition; without steps it does. order_of(step) compares
// the record with the step's value: less than 0, 0 or more.
template <class Step, class OrderOf>
CORANK_HOST_DEVICE bool holds(const Step* steps, std::uint32_t count, OrderOf order_of) {
  using enum ConditionOperation;
  std::uint64_t results = 1;
  for (std::uint32_t s = 0; s < count; ++s) {
    const ConditionOperation operation = steps[s].operation;
    if (operation == negate) {
      results ^= 1;
    } else if (operation == both || operation == either) {
      const std::uint64_t topmost = results & 1;
      results >>= 1;
      results = operation == both ? results & ~(topmost ^ 1) : results | topmost;
    } else {
      const int order = order_of(steps[s]);
      const bool fulfils = operation == less            ? order < 0
                           : operation == less_equal    ? order <= 0
                           : operation == equal         ? order == 0
                           : operation == not_equal     ? order != 0
                           : operation == greater_equal ? order >= 0
                                                        : order > 0;
      results = results << 1 | (fulfils ? 1 : 0);
    }
  }
  return results & 1;
}

// A Condition::Step as kernels take it. `Layout` is that of the records: KeyLayout for fixed-size
// ones, else TextLayout.
template <class Layout>
struct TestStep {
  ConditionOperation operation;
  Layout field;            // orders records by the field or column alone
  const std::byte* value;  // a record that holds the value there
  std::uint64_t value_bytes;
};
template <class Layout>
struct Test {
  const TestStep<Layout>* steps;
  std::uint32_t count;  // 0: every record passes
};

CORANK_HOST_DEVICE inline bool is_less(const KeyLayout& layout, const std::byte* a, std::uint64_t,
                                       const std::byte* b, std::uint64_t) {
  return record_less(layout, a, b);
}
CORANK_HOST_DEVICE inline bool is_less(const TextLayout& layout, const std::byte* a,
                                       std::uint64_t a_bytes, const std::byte* b,
                                       std::uint64_t b_bytes) {
  return text_less(layout, a, a_bytes, b, b_bytes);
}

// Returns whether the record satisfies the condition.
template <class Layout>
CORANK_HOST_DEVICE bool passes(const Test<Layout>& test, const std::byte* record,
                               std::uint64_t bytes) {
  return holds(test.steps, test.count, [=](const TestStep<Layout>& step) {
    return is_less(step.field, step.value, step.value_bytes, record, bytes) -
           is_less(step.field, record, bytes, step.value, step.value_bytes);
  });
}

// A field in which the records of a group are reduced to one value.
struct ReducedColumn {
  Reduction::Operation operation;
  std::uint32_t offset, bytes;  // position and size of the field
  bool is_signed, big_endian;
  KeyLayout ordered;  // orders records by the field, for min and max
};

struct Reductions {
  const ReducedColumn* columns;
  std::uint32_t count;
  Overflow overflow;
  bool loops;  // some reduction reads all records of a group
};

// Returns the column's integer, which has up to 8 bytes.
CORANK_HOST_DEVICE inline __int128 load_integer(const ReducedColumn& column,
                                                const std::byte* record) {
  const std::byte* const at = record + column.offset;
  std::uint64_t value = 0;
  for (std::uint32_t i = 0; i < column.bytes; ++i)
    value =
        value << 8 | static_cast<std::uint64_t>(at[column.big_endian ? i : column.bytes - 1 - i]);
  const unsigned unused = 64 - 8 * column.bytes;
  if (column.is_signed) return static_cast<std::int64_t>(value << unused) >> unused;
  return value;
}

// Stores an integer in the column. Returns false if it does not fit and `overflow` is error.
CORANK_HOST_DEVICE inline bool store_integer(const ReducedColumn& column, Overflow overflow,
                                             __int128 value, std::byte* record) {
  const unsigned bits = 8 * column.bytes;
  const __int128 min_value = column.is_signed ? -(static_cast<__int128>(1) << (bits - 1)) : 0;
  const __int128 max_value = (static_cast<__int128>(1) << (column.is_signed ? bits - 1 : bits)) - 1;
  if (value < min_value || value > max_value) {
    if (overflow == Overflow::error) return false;
    if (overflow == Overflow::saturate) value = value < 0 ? min_value : max_value;
  }
  for (std::uint32_t i = 0; i < column.bytes; ++i)
    record[column.offset + (column.big_endian ? column.bytes - 1 - i : i)] =
        static_cast<std::byte>(value >> 8 * i);
  return true;
}

// Reduces a group of `records` records, which record_at(i) returns, to one. `record` holds a copy
// of the first, and then the result. Returns false if a sum does not fit and that is an error.
template <class RecordAt>
CORANK_HOST_DEVICE bool reduce_group(const Reductions& reductions, std::uint64_t records,
                                     RecordAt record_at, std::byte* record) {
  using Operation = Reduction::Operation;
  for (std::uint32_t c = 0; c < reductions.count; ++c) {
    const ReducedColumn& column = reductions.columns[c];
    const Operation operation = column.operation;
    if (operation == Operation::sum || operation == Operation::count) {
      __int128 sum = operation == Operation::count ? records : 0;
      for (std::uint64_t i = 0; operation == Operation::sum && i < records; ++i)
        sum += load_integer(column, record_at(i));
      if (!store_integer(column, reductions.overflow, sum, record)) return false;
      continue;
    }
    const std::byte* chosen = record_at(operation == Operation::last ? records - 1 : 0);
    if (operation == Operation::min || operation == Operation::max)
      for (std::uint64_t i = 1; i < records; ++i) {
        const std::byte* const other = record_at(i);
        if (operation == Operation::min ? record_less(column.ordered, other, chosen)
                                        : record_less(column.ordered, chosen, other))
          chosen = other;
      }
    for (std::uint32_t i = 0; i < column.bytes; ++i)
      record[column.offset + i] = chosen[column.offset + i];
  }
  return true;
}

}  // namespace corank
