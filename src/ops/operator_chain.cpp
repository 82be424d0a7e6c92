#include "ops/operator_chain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "corank/error.hpp"
#include "format/field_value.hpp"
#include "util/setting_format.hpp"

namespace corank {
namespace {

using Operation = Reduction::Operation;

template <class Number>
Number load(const std::byte* at, bool big_endian) {
  std::byte raw[sizeof(Number)];
  std::memcpy(raw, at, sizeof raw);
  if (big_endian) std::reverse(raw, raw + sizeof raw);
  Number number;
  std::memcpy(&number, raw, sizeof number);
  return number;
}

template <class Number>
void store(Number number, std::byte* at, bool big_endian) {
  std::memcpy(at, &number, sizeof number);
  if (big_endian) std::reverse(at, at + sizeof number);
}

// Calls `use` with a value of the field's type.
template <class Use>
auto with_number(const Field& field, Use use) {
  const bool is_signed = field.kind == FieldKind::signed_integer;
  switch (field.bytes) {
    case 1:
      return is_signed ? use(std::int8_t{}) : use(std::uint8_t{});
    case 2:
      return is_signed ? use(std::int16_t{}) : use(std::uint16_t{});
    case 4:
      return is_signed ? use(std::int32_t{}) : use(std::uint32_t{});
    default:
      return is_signed ? use(std::int64_t{}) : use(std::uint64_t{});
  }
}

// Returns the sum of a field over `count` records; `at` is the field in the first of them.
template <class Number>
__int128 sum_of(const std::byte* at, std::uint64_t count, std::uint32_t stride, bool big_endian) {
  __int128 sum = 0;
  for (std::uint64_t i = 0; i < count; ++i, at += stride) sum += load<Number>(at, big_endian);
  return sum;
}

void copy_field(const Field& field, const std::byte* from, std::byte* to) {
  std::memcpy(to + field.offset, from + field.offset, field.bytes);
}

}  // namespace

OperatorChain::OperatorChain(const Schema& schema, const std::vector<KeyField>& keys,
                             const KeyEncoding& encoding, const Query& query, std::size_t runs)
    : schema_(schema),
      keys_(keys.empty() ? std::vector<KeyField>{{0}} : keys),
      encoding_(encoding),
      filter_(schema, query.where),
      filters_(!query.where.steps.empty()),
      on_equal_(query.on_equal),
      overflow_(query.overflow),
      dropped_(schema, dropped_by(query.tombstone, query.having),
               query.tombstone ? Setting::tombstone : Setting::having),
      drops_(!dropped_.steps().empty()),
      output_(corank::selected(schema, query.select)) {
  if (is_set_operation(on_equal_)) set_operation_ = {on_equal_, static_cast<std::uint32_t>(runs)};
  for (const Reduction& reduction : query.reductions) {
    const Field& field = schema.fields[reduction.field];
    std::size_t sum = 0;
    if (reduction.operation == Operation::sum)
      sum = field.kind == FieldKind::floating ? floats_++ : integers_++;
    counts_ |= reduction.operation == Operation::count;
    columns_.push_back({reduction.operation, field, sum, KeyEncoding(schema, {{reduction.field}})});
  }
  for (const std::uint32_t index : find_fields(schema, query.select, Setting::select)) {
    const Field& field = schema.fields[index];
    if (!selected_.empty() && selected_.back().from + selected_.back().bytes == field.offset)
      selected_.back().bytes += field.bytes;
    else
      selected_.push_back({field.offset, field.bytes});
  }
  if (selected_.size() == 1 && selected_.front().bytes == schema.record_bytes) selected_.clear();
}

bool OperatorChain::equal(const std::byte* a, const std::byte* b) const {
  const KeyLayout layout = encoding_.layout();
  return !record_less(layout, a, b) && !record_less(layout, b, a);
}

std::string OperatorChain::key_text(const std::byte* record) const {
  std::string text;
  for (const KeyField& key : keys_) {
    const Field& field = schema_.fields[key.field];
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", field.name, value_text(field, record));
  }
  return text;
}

std::span<const std::byte> OperatorChain::emit(std::span<std::byte> records,
                                               ResolvedCounts& counts) const {
  if (selected_.empty() && !drops_) return records;
  std::vector<Filter::Mask> scratch;
  std::vector<std::byte> outgoing(output_bytes());
  std::byte* end = records.data();
  for (std::size_t at = 0; at < records.size(); at += record_bytes()) {
    const std::byte* const record = &records[at];
    if (drops_ && dropped_.test(record, 1, scratch)[0] != 0) {
      ++counts.deleted;
      continue;
    }
    if (selected_.empty()) std::copy_n(record, record_bytes(), outgoing.begin());
    select(record, outgoing.data());
    end = std::ranges::copy(outgoing, end).out;
  }
  return {records.data(), end};
}

void OperatorChain::select(const std::byte* record, std::byte* to) const {
  for (const Stretch& stretch : selected_) {
    std::memcpy(to, record + stretch.from, stretch.bytes);
    to += stretch.bytes;
  }
}

// Sets the count fields of records that are groups of one.
void OperatorChain::count_one(std::byte* records, std::uint64_t count) const {
  const std::uint32_t record_bytes = encoding_.record_bytes();
  for (const Column& column : columns_)
    if (column.operation == Operation::count)
      with_number(column.field, [&]<class Number>(Number) {
        std::byte* at = records + column.field.offset;
        for (std::uint64_t i = 0; i < count; ++i, at += record_bytes)
          store(Number{1}, at, column.field.big_endian);
      });
}

void Group::start(const OperatorChain& shape, const std::byte* records, std::uint64_t count) {
  count_ = 1;
  record_.assign(records, records + shape.record_bytes());
  integers_.assign(shape.integers_, 0);
  floats_.assign(shape.floats_, {});
  for (const OperatorChain::Column& column : shape.columns_) {
    if (column.operation != Operation::sum) continue;
    const std::byte* const at = records + column.field.offset;
    const bool big_endian = column.field.big_endian;
    if (column.field.kind == FieldKind::floating)
      floats_[column.sum].add(column.field.bytes == 4 ? load<float>(at, big_endian)
                                                      : load<double>(at, big_endian));
    else
      integers_[column.sum] = with_number(column.field, [&]<class Number>(Number) {
        return static_cast<__int128>(load<Number>(at, big_endian));
      });
  }
  if (count > 1) add(shape, records + shape.record_bytes(), count - 1);
}

void Group::add(const OperatorChain& shape, const std::byte* records, std::uint64_t count) {
  const std::uint32_t record_bytes = shape.record_bytes();
  const std::byte* const last = records + (count - 1) * record_bytes;
  count_ += count;
  if (shape.on_equal() == OnEqual::last) record_.assign(last, last + record_bytes);
  for (const OperatorChain::Column& column : shape.columns_) {
    const Field& field = column.field;
    const std::byte* const at = records + field.offset;
    switch (column.operation) {
      case Operation::first:
      case Operation::count:
        break;
      case Operation::last:
        copy_field(field, last, record_.data());
        break;
      case Operation::min:
      case Operation::max:
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::byte* const record = records + i * record_bytes;
          const KeyLayout layout = column.ordered.layout();
          if (column.operation == Operation::min ? record_less(layout, record, record_.data())
                                                 : record_less(layout, record_.data(), record))
            copy_field(field, record, record_.data());
        }
        break;
      case Operation::sum:
        if (field.kind == FieldKind::floating)
          for (std::uint64_t i = 0; i < count; ++i)
            floats_[column.sum].add(field.bytes == 4
                                        ? load<float>(at + i * record_bytes, field.big_endian)
                                        : load<double>(at + i * record_bytes, field.big_endian));
        else
          integers_[column.sum] += with_number(field, [&]<class Number>(Number) {
            return sum_of<Number>(at, count, record_bytes, field.big_endian);
          });
    }
  }
}

void Group::add(const OperatorChain& shape, const Group& next) {
  count_ += next.count_;
  if (shape.on_equal() == OnEqual::last) record_ = next.record_;
  for (const OperatorChain::Column& column : shape.columns_) {
    const KeyLayout layout = column.ordered.layout();
    const bool takes = column.operation == Operation::last ||
                       (column.operation == Operation::min &&
                        record_less(layout, next.record_.data(), record_.data())) ||
                       (column.operation == Operation::max &&
                        record_less(layout, record_.data(), next.record_.data()));
    if (takes) copy_field(column.field, next.record_.data(), record_.data());
  }
  for (std::size_t i = 0; i < integers_.size(); ++i) integers_[i] += next.integers_[i];
  for (std::size_t i = 0; i < floats_.size(); ++i) floats_[i].add(next.floats_[i]);
}

bool Group::finish(const OperatorChain& shape, std::byte* out, ResolvedCounts& counts) {
  put_sums(shape);
  counts.replaced += std::exchange(count_, 0) - 1;
  if (shape.drops_) {
    std::vector<Filter::Mask> scratch;
    if (shape.dropped_.test(record_.data(), 1, scratch)[0] != 0) {
      ++counts.deleted;
      return false;
    }
  }
  if (shape.selected_.empty()) std::ranges::copy(record_, out);
  shape.select(record_.data(), out);
  return true;
}

void Group::put_sums(const OperatorChain& shape) {
  for (const OperatorChain::Column& column : shape.columns_) {
    const Field& field = column.field;
    const bool counts = column.operation == Operation::count;
    if (!counts && column.operation != Operation::sum) continue;
    std::byte* const at = record_.data() + field.offset;
    if (field.kind == FieldKind::floating) {
      if (count_ == 1) continue;  // a single value stays the same to the bit
      if (field.bytes == 4)
        store(floats_[column.sum].as_float(), at, field.big_endian);
      else
        store(floats_[column.sum].as_double(), at, field.big_endian);
      continue;
    }
    const __int128 sum = counts ? static_cast<__int128>(count_) : integers_[column.sum];
    with_number(field, [&]<class Number>(Number) {
      using Limits = std::numeric_limits<Number>;
      auto fitting = static_cast<Number>(sum);
      if (fitting != sum && shape.overflow_ == Overflow::error)
        throw Error(fmt::format(
            "{}: the {} of field {} over the {} records with this key is {}, which the field "
            "cannot hold; give it a wider type, or choose {} or wrap",
            shape.key_text(record_.data()), counts ? "count" : "sum", field.name, count_, sum,
            setting_is(Setting::overflow, "saturate")));
      if (fitting != sum && shape.overflow_ == Overflow::saturate)
        fitting = sum < 0 ? Limits::min() : Limits::max();
      store(fitting, at, field.big_endian);
    });
  }
}

}  // namespace corank
