// What a device's thread does to one record, or to one group, of a unit that is shaped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corank/key.hpp"
#include "corank/shaping.hpp"

namespace corank {

// A Condition::Step that a device can take.
struct TestStep {
  Condition::Operation operation;
  KeyLayout field;         // orders records by the field alone
  const std::byte* value;  // a record that has the value there
};
struct Test {
  static constexpr std::uint64_t most_steps = 64;  // their results are the bits of a word
  const TestStep* steps;
  std::uint32_t count;  // 0: every record passes
};

// Whether the record fulfils the condition.
CORANK_HOST_DEVICE inline bool passes(const Test& test, const std::byte* record) {
  using enum Condition::Operation;
  std::uint64_t results = 1;
  for (std::uint32_t s = 0; s < test.count; ++s) {
    const TestStep& step = test.steps[s];
    if (step.operation == negate) {
      results ^= 1;
    } else if (step.operation == both || step.operation == either) {
      const std::uint64_t topmost = results & 1;
      results >>= 1;
      results = step.operation == both ? results & ~(topmost ^ 1) : results | topmost;
    } else {
      const bool below = record_less(step.field, record, step.value);
      const bool above = record_less(step.field, step.value, record);
      const bool fulfils = step.operation == less            ? below
                           : step.operation == less_equal    ? !above
                           : step.operation == equal         ? !below && !above
                           : step.operation == not_equal     ? below || above
                           : step.operation == greater_equal ? !below
                                                             : above;
      results = results << 1 | (fulfils ? 1 : 0);
    }
  }
  return results & 1;
}

// A field that the records of a group are reduced in.
struct ReducedColumn {
  Reduction::Operation operation;
  std::uint32_t offset, bytes;  // of the field
  bool is_signed, big_endian;
  KeyLayout ordered;  // by the field, for min and max
};

struct Reductions {
  const ReducedColumn* columns;
  std::uint32_t count;
  Overflow overflow;
  bool loops;  // over all records of a group
};

// An integer of up to 8 bytes.
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

// False if it does not fit and that is an error.
CORANK_HOST_DEVICE inline bool store_integer(const ReducedColumn& column, Overflow overflow,
                                             __int128 value, std::byte* record) {
  const unsigned bits = 8 * column.bytes;
  const __int128 least = column.is_signed ? -(static_cast<__int128>(1) << (bits - 1)) : 0;
  const __int128 greatest = (static_cast<__int128>(1) << (column.is_signed ? bits - 1 : bits)) - 1;
  if (value < least || value > greatest) {
    if (overflow == Overflow::error) return false;
    if (overflow == Overflow::saturate) value = value < 0 ? least : greatest;
  }
  for (std::uint32_t i = 0; i < column.bytes; ++i)
    record[column.offset + (column.big_endian ? column.bytes - 1 - i : i)] =
        static_cast<std::byte>(value >> 8 * i);
  return true;
}

// Turns `record`, a copy of the group's first, into what goes out of the group, whose records
// record_at(i) says, for i < `records`. False if a sum does not fit and that is an error.
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
