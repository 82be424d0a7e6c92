#include "ops/filter.hpp"

#include <algorithm>

#include "format/field_value.hpp"

namespace corank {

Filter::Filter(const Schema& schema, const Condition& condition, Setting option) {
  for (const Condition::Step& step : condition.steps) {
    const bool compares = step.operation < ConditionOperation::negate;
    const std::uint32_t index = compares ? find_field(schema, step.with.column, option) : 0;
    KeyEncoding field(schema, {{index}});
    std::vector<std::byte> record(schema.record_bytes);
    if (compares)
      std::ranges::copy(encode_value(schema.fields[index], step.with, option),
                        record.begin() + schema.fields[index].offset);
    const std::uint64_t word = encode<1>(field.layout(), record.data()).word[0];
    steps_.push_back({step.operation, std::move(field), word, std::move(record)});
  }
}

const Filter::Mask& Filter::test(const std::byte* records, std::uint64_t count,
                                 std::vector<Mask>& scratch) const {
  scratch.resize(steps_.size());
  std::size_t depth = 0;
  for (const Step& step : steps_) {
    switch (step.operation) {
      case Condition::Operation::negate:
        for (std::uint64_t i = 0; i < count; ++i) scratch[depth - 1][i] ^= 1;
        break;
      case Condition::Operation::both:
        --depth;
        for (std::uint64_t i = 0; i < count; ++i) scratch[depth - 1][i] &= scratch[depth][i];
        break;
      case Condition::Operation::either:
        --depth;
        for (std::uint64_t i = 0; i < count; ++i) scratch[depth - 1][i] |= scratch[depth][i];
        break;
      default:
        compare(step, records, count, scratch[depth++]);
    }
  }
  return scratch.front();
}

void Filter::compare(const Step& step, const std::byte* records, std::uint64_t count, Mask& mask) {
  using enum Condition::Operation;
  const KeyLayout layout = step.field.layout();
  // Only less, greater and equal are computed; the other three comparisons are their opposites.
  const bool opposite = step.operation == greater_equal || step.operation == not_equal ||
                        step.operation == less_equal;
  const auto compare_by = [&](auto fulfils) {
    for (std::uint64_t i = 0; i < count; ++i)
      mask[i] = static_cast<std::uint8_t>(fulfils(i) != opposite);
  };
  if (!layout.has_tail() && step.field.prefix_words() == 1) {
    Key<1> keys[max_records];
    encode_keys(layout, records, count, keys);
    const std::uint64_t word = step.word;
    if (step.operation == less || step.operation == greater_equal)
      compare_by([&](std::uint64_t i) { return keys[i].word[0] < word; });
    else if (step.operation == greater || step.operation == less_equal)
      compare_by([&](std::uint64_t i) { return keys[i].word[0] > word; });
    else
      compare_by([&](std::uint64_t i) { return keys[i].word[0] == word; });
    return;
  }
  const std::byte* const value = step.of_record.data();
  const auto record = [&](std::uint64_t i) { return records + i * layout.record_bytes; };
  if (step.operation == less || step.operation == greater_equal)
    compare_by([&](std::uint64_t i) { return record_less(layout, record(i), value); });
  else if (step.operation == greater || step.operation == less_equal)
    compare_by([&](std::uint64_t i) { return record_less(layout, value, record(i)); });
  else
    compare_by([&](std::uint64_t i) {
      return !record_less(layout, record(i), value) && !record_less(layout, value, record(i));
    });
}

}  // namespace corank
