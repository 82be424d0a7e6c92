// Reduces fields of fixed-size records.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "corank/error.hpp"
#include "format/field_value.hpp"
#include "ops/group_reducer.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

using Operation = Reduction::Operation;

template <class Number>
void store(Number number, std::byte* at, bool big_endian) {
  std::memcpy(at, &number, sizeof number);
  if (big_endian) std::reverse(at, at + sizeof number);
}

// Returns the sum of a field over `count` records; `at` is the field in the first of them.
template <class Number>
__int128 sum_of(const std::byte* at, std::uint64_t count, std::uint32_t stride, bool big_endian) {
  __int128 sum = 0;
  for (std::uint64_t i = 0; i < count; ++i, at += stride)
    sum += load_number<Number>(at, big_endian);
  return sum;
}

void copy_field(const Field& field, const std::byte* from, std::byte* to) {
  std::memcpy(to + field.offset, from + field.offset, field.bytes);
}

// Returns a floating-point field of a record.
double load_float(const Field& field, const std::byte* record) {
  const std::byte* const at = record + field.offset;
  return field.bytes == 4 ? load_number<float>(at, field.big_endian)
                          : load_number<double>(at, field.big_endian);
}

void check_field(const Field& field, Operation operation, const KeyEncoding& keys) {
  const auto fail = [&](std::string_view why) {
    throw_error(ErrorCode::options, "{}: field {} {}", Setting::on_equal, without_nul(field.name),
                why);
  };
  const auto holds = [&](const KeyPiece& piece) {
    return piece.offset < field.offset + field.bytes && field.offset < piece.offset + piece.bytes;
  };
  if (std::ranges::any_of(keys.pieces(), holds))
    fail("is a key or a part of it, which orders the records and stays as it is");
  const bool any_field = operation == Operation::first || operation == Operation::last;
  if (field.kind == FieldKind::bytes && !any_field)
    fail(fmt::format("is {}, no number; first and last do for it", field_type_name(field)));
  if (field.kind == FieldKind::floating && operation == Operation::count)
    fail(fmt::format("is {}; a count needs an integer", field_type_name(field)));
}

class FieldReducer final : public GroupReducer {
 public:
  FieldReducer(const RecordFormat& format, const Schema& schema, const Query& query);

  bool reduces_single() const override { return has_counts_; }
  std::span<const FieldReduction> fields() const override { return fields_; }

  void start(std::span<const std::byte> record, GroupSums& sums) const override;
  void add(const std::byte* rows, std::uint64_t count, std::byte* result,
           GroupSums& sums) const override;
  void add(const std::byte* next_result, const GroupSums& next, std::byte* result,
           GroupSums& sums) const override;
  void finish(std::uint64_t count, const GroupSums& sums, RowCopy& row) const override;
  void finish_singles(std::byte* rows, std::uint64_t count) const override;

 private:
  void finish(const FieldReduction& column, std::uint64_t count, const GroupSums& sums,
              std::byte* result) const;

  const RecordFormat& format_;  // words the keys of errors
  std::uint32_t record_bytes_;
  std::vector<FieldReduction> fields_;
  std::size_t integers_ = 0, floats_ = 0;  // number of sums in a group
  bool has_counts_ = false;
};

FieldReducer::FieldReducer(const RecordFormat& format, const Schema& schema, const Query& query)
    : format_(format), record_bytes_(schema.record_bytes) {
  std::vector<TextKey> columns;
  for (const Reduction& reduction : query.reductions)
    columns.push_back(reduction.column.value_or(TextKey{}));
  const std::vector<std::uint32_t> indices = find_fields(schema, columns, Setting::on_equal);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const Reduction& reduction = query.reductions[i];
    const Field& field = schema.fields[indices[i]];
    check_field(field, reduction.operation, format.keys());
    std::size_t sum = 0;
    if (reduction.operation == Operation::sum)
      sum = field.kind == FieldKind::floating ? floats_++ : integers_++;
    has_counts_ |= reduction.operation == Operation::count;
    fields_.push_back(
        {reduction.operation, field, sum, KeyEncoding(schema, {{indices[i]}}), query.overflow});
  }
}

void FieldReducer::finish_singles(std::byte* rows, std::uint64_t count) const {
  for (const FieldReduction& column : fields_)
    if (column.operation == Operation::count)
      with_integer(column.field, [&]<class Number>(Number) {
        std::byte* at = rows + column.field.offset;
        for (std::uint64_t i = 0; i < count; ++i, at += record_bytes_)
          store(Number{1}, at, column.field.big_endian);
      });
}

void FieldReducer::start(std::span<const std::byte> record, GroupSums& sums) const {
  sums.integers.assign(integers_, 0);
  sums.floats.assign(floats_, {});
  for (const FieldReduction& column : fields_) {
    if (column.operation != Operation::sum) continue;
    const Field& field = column.field;
    if (field.kind == FieldKind::floating)
      sums.floats[column.sum].add(load_float(field, record.data()));
    else
      sums.integers[column.sum] = with_integer(field, [&]<class Number>(Number) {
        return static_cast<__int128>(
            load_number<Number>(record.data() + field.offset, field.big_endian));
      });
  }
}

void FieldReducer::add(const std::byte* rows, std::uint64_t count, std::byte* result,
                       GroupSums& sums) const {
  for (const FieldReduction& column : fields_) {
    const Field& field = column.field;
    const KeyLayout layout = column.ordered.layout();
    switch (column.operation) {
      case Operation::first:
      case Operation::count:
        break;
      case Operation::last:
        copy_field(field, rows + (count - 1) * record_bytes_, result);
        break;
      case Operation::min:
      case Operation::max:
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::byte* const record = rows + i * record_bytes_;
          if (column.operation == Operation::min ? record_less(layout, record, result)
                                                 : record_less(layout, result, record))
            copy_field(field, record, result);
        }
        break;
      case Operation::sum:
        if (field.kind == FieldKind::floating)
          for (std::uint64_t i = 0; i < count; ++i)
            sums.floats[column.sum].add(load_float(field, rows + i * record_bytes_));
        else
          sums.integers[column.sum] += with_integer(field, [&]<class Number>(Number) {
            return sum_of<Number>(rows + field.offset, count, record_bytes_, field.big_endian);
          });
    }
  }
}

void FieldReducer::add(const std::byte* next_result, const GroupSums& next, std::byte* result,
                       GroupSums& sums) const {
  for (const FieldReduction& column : fields_) {
    const KeyLayout layout = column.ordered.layout();
    if (column.operation == Operation::last ||
        (column.operation == Operation::min && record_less(layout, next_result, result)) ||
        (column.operation == Operation::max && record_less(layout, result, next_result)))
      copy_field(column.field, next_result, result);
  }
  for (std::size_t i = 0; i < integers_; ++i) sums.integers[i] += next.integers[i];
  for (std::size_t i = 0; i < floats_; ++i) sums.floats[i].add(next.floats[i]);
}

void FieldReducer::finish(std::uint64_t count, const GroupSums& sums, RowCopy& row) const {
  for (const FieldReduction& column : fields_)
    if (column.operation == Operation::count || column.operation == Operation::sum)
      finish(column, count, sums, row.record().data());
}

void FieldReducer::finish(const FieldReduction& column, std::uint64_t count, const GroupSums& sums,
                          std::byte* result) const {
  const Field& field = column.field;
  std::byte* const at = result + field.offset;
  const bool counts = column.operation == Operation::count;
  if (field.kind == FieldKind::floating) {
    if (count == 1) return;  // a single value stays the same to the bit
    if (field.bytes == 4)
      store(sums.floats[column.sum].as_float(), at, field.big_endian);
    else
      store(sums.floats[column.sum].as_double(), at, field.big_endian);
    return;
  }
  const __int128 sum = counts ? static_cast<__int128>(count) : sums.integers[column.sum];
  with_integer(field, [&]<class Number>(Number) {
    const auto fail = [&] {
      throw_error(
          "{}: the {} of field {} over the {} records with this key is {}, which the field cannot "
          "hold; give it a wider type, or choose {} or wrap",
          format_.key_text(result), counts ? "count" : "sum", field.name, count, sum,
          setting_is(Setting::overflow, "saturate"));
    };
    store(fit<Number>(sum, column.overflow, fail), at, field.big_endian);
  });
}

}  // namespace

std::unique_ptr<const GroupReducer> make_field_reducer(const RecordFormat& format,
                                                       const Schema& schema, const Query& query) {
  return std::make_unique<FieldReducer>(format, schema, query);
}

}  // namespace corank
