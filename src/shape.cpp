#include "shape.hpp"

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <ranges>
#include <utility>

#include "corank/error.hpp"
#include "field_value.hpp"
#include "for_all.hpp"
#include "order.hpp"

namespace corank {
namespace {

using Operation = Reduction::Operation;

constexpr std::uint64_t most_block_records = Filter::most_records;

// Enough that a task outweighs its start.
constexpr std::uint64_t task_bytes = std::uint64_t{1} << 20;

Condition equality(const std::optional<FieldValue>& value) {
  Condition condition;
  if (value) condition.steps.push_back({Condition::Operation::equal, *value});
  return condition;
}

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

// Calls `use` with a number of the field's type.
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

// Of the field in `count` records from `at` on.
template <class Number>
__int128 sum_of(const std::byte* at, std::uint64_t count, std::uint32_t stride, bool big_endian) {
  __int128 sum = 0;
  for (std::uint64_t i = 0; i < count; ++i, at += stride) sum += load<Number>(at, big_endian);
  return sum;
}

void copy_field(const Field& field, const std::byte* from, std::byte* to) {
  std::memcpy(to + field.offset, from + field.offset, field.bytes);
}

// Moves those of the records that `which`, which ascend, name to `to`, which is not behind them.
template <std::uint32_t bytes>
std::byte* move_small(std::byte* to, const std::byte* records,
                      std::span<const std::uint16_t> which) {
  for (const std::uint16_t i : which) {
    std::byte record[bytes];
    std::memcpy(record, records + i * bytes, bytes);
    std::memcpy(to, record, bytes);
    to += bytes;
  }
  return to;
}

// Appends what goes out, together with what lies just before it.
void put_piece(std::vector<std::span<const std::byte>>& pieces, std::span<const std::byte> piece) {
  if (piece.empty()) return;
  if (!pieces.empty() && pieces.back().data() + pieces.back().size() == piece.data())
    pieces.back() = {pieces.back().data(), pieces.back().size() + piece.size()};
  else
    pieces.push_back(piece);
}

// Appends what goes out of the group's next records.
void put_set(const Shape& shape, SetGroup& group, std::span<const HeadPiece> head,
             std::vector<std::span<const std::byte>>& pieces) {
  const std::uint64_t record_bytes = shape.record_bytes();
  for (const auto& [run, records] : head) {
    const auto range = group.take(*shape.set_operation(), {run, records.size() / record_bytes});
    put_piece(pieces, shape.select(records.subspan(range.first * record_bytes,
                                                   (range.end - range.first) * record_bytes)));
  }
}

// How many merged records before record `at` have its key.
std::uint64_t equal_before(const Shape& shape, std::span<const std::byte> merged,
                           std::uint64_t at) {
  const KeyLayout layout = shape.encoding().layout();
  const std::byte* const record = merged.data() + at * layout.record_bytes;
  const auto before = std::views::iota(std::uint64_t{0}, at);
  return at - static_cast<std::uint64_t>(
                  std::ranges::partition_point(
                      before,
                      [&](std::uint64_t i) {
                        return record_less(layout, merged.data() + i * layout.record_bytes, record);
                      }) -
                  before.begin());
}

std::byte* move_records(std::byte* to, const std::byte* records,
                        std::span<const std::uint16_t> which, std::uint32_t record_bytes) {
  if (which.empty()) return to;
  const auto move = [&](std::uint64_t first, std::uint64_t count) {
    const std::byte* const from = records + first * record_bytes;
    if (from != to) std::memmove(to, from, count * record_bytes);
    to += count * record_bytes;
  };
  if (which.back() - which.front() + 1u == which.size()) {
    move(which.front(), which.size());
    return to;
  }
  if (record_bytes == 8) return move_small<8>(to, records, which);
  if (record_bytes == 16) return move_small<16>(to, records, which);
  for (std::size_t i = 0, end; i < which.size(); i = end) {
    for (end = i + 1; end < which.size() && which[end] == which[end - 1] + 1; ++end)
      ;
    move(which[i], end - i);
  }
  return to;
}

}  // namespace

Shape::Shape(const Schema& schema, const std::vector<KeyField>& keys, const KeyEncoding& encoding,
             const Shaping& shaping, std::size_t runs)
    : schema_(schema),
      keys_(keys.empty() ? std::vector<KeyField>{{0}} : keys),
      encoding_(encoding),
      filter_(schema, shaping.where),
      filters_(!shaping.where.steps.empty()),
      on_equal_(shaping.on_equal),
      overflow_(shaping.overflow),
      tombstone_(schema, equality(shaping.tombstone)),
      buries_(shaping.tombstone.has_value()),
      output_(corank::selected(schema, shaping.select)) {
  if (is_set_operation(on_equal_)) set_operation_ = {on_equal_, static_cast<std::uint32_t>(runs)};
  for (const Reduction& reduction : shaping.reductions) {
    const Field& field = schema.fields[reduction.field];
    std::size_t sum = 0;
    if (reduction.operation == Operation::sum)
      sum = field.kind == FieldKind::floating ? floats_++ : integers_++;
    counts_ |= reduction.operation == Operation::count;
    columns_.push_back({reduction.operation, field, sum, KeyEncoding(schema, {{reduction.field}})});
  }
  for (const std::uint32_t index : shaping.select) {
    const Field& field = schema.fields[index];
    if (!selected_.empty() && selected_.back().from + selected_.back().bytes == field.offset)
      selected_.back().bytes += field.bytes;
    else
      selected_.push_back({field.offset, field.bytes});
  }
  if (selected_.size() == 1 && selected_.front().bytes == schema.record_bytes) selected_.clear();
}

bool Shape::equal(const std::byte* a, const std::byte* b) const {
  const KeyLayout layout = encoding_.layout();
  return !record_less(layout, a, b) && !record_less(layout, b, a);
}

std::string Shape::key_text(const std::byte* record) const {
  std::string text;
  for (const KeyField& key : keys_) {
    const Field& field = schema_.fields[key.field];
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", field.name, value_text(field, record));
  }
  return text;
}

std::span<const std::byte> Shape::select(std::span<std::byte> records) const {
  if (selected_.empty()) return records;
  std::vector<std::byte> selected(output_bytes());
  std::byte* end = records.data();
  for (std::size_t at = 0; at < records.size(); at += record_bytes()) {
    select(&records[at], selected.data());
    end = std::ranges::copy(selected, end).out;
  }
  return {records.data(), end};
}

void Shape::select(const std::byte* record, std::byte* to) const {
  for (const Stretch& stretch : selected_) {
    std::memcpy(to, record + stretch.from, stretch.bytes);
    to += stretch.bytes;
  }
}

void Group::start(const Shape& shape, const std::byte* records, std::uint64_t count) {
  count_ = 1;
  record_.assign(records, records + shape.record_bytes());
  integers_.assign(shape.integers_, 0);
  floats_.assign(shape.floats_, {});
  for (const Shape::Column& column : shape.columns_) {
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

void Group::add(const Shape& shape, const std::byte* records, std::uint64_t count) {
  const std::uint32_t record_bytes = shape.record_bytes();
  const std::byte* const last = records + (count - 1) * record_bytes;
  count_ += count;
  if (shape.on_equal() == OnEqual::last) record_.assign(last, last + record_bytes);
  for (const Shape::Column& column : shape.columns_) {
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

void Group::add(const Shape& shape, const Group& next) {
  count_ += next.count_;
  if (shape.on_equal() == OnEqual::last) record_ = next.record_;
  for (const Shape::Column& column : shape.columns_) {
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

bool Group::finish(const Shape& shape, std::byte* out) {
  put_sums(shape);
  count_ = 0;
  if (shape.buries_) {
    std::vector<Filter::Mask> scratch;
    if (shape.tombstone_.test(record_.data(), 1, scratch)[0] != 0) return false;
  }
  if (shape.selected_.empty()) std::ranges::copy(record_, out);
  shape.select(record_.data(), out);
  return true;
}

void Group::put_sums(const Shape& shape) {
  for (const Shape::Column& column : shape.columns_) {
    const Field& field = column.field;
    const bool counts = column.operation == Operation::count;
    if (!counts && column.operation != Operation::sum) continue;
    std::byte* const at = record_.data() + field.offset;
    if (field.kind == FieldKind::floating) {
      if (count_ == 1) continue;  // what it is, to the bit
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
            "cannot hold; give it a wider type, or choose --overflow saturate or wrap",
            shape.key_text(record_.data()), counts ? "count" : "sum", field.name, count_, sum));
      if (fitting != sum && shape.overflow_ == Overflow::saturate)
        fitting = sum < 0 ? Limits::min() : Limits::max();
      store(fitting, at, field.big_endian);
    });
  }
}

TileShaper::TileShaper(const Shape& shape, std::byte* place, FingerprintSum sum)
    : shape_(&shape),
      place_(place),
      begin_(place + (shape.groups() && !shape.set_operation() ? shape.output_bytes() : 0)),
      end_(begin_),
      sum_(sum),
      summed_(begin_),
      runs_(shape.encoding().layout()),
      selected_(shape.output_bytes()) {}

void TileShaper::add_run(std::uint32_t run, const std::byte* records, std::uint64_t count) {
  if (shape_->set_operation()) runs_.add(run, records, count);
}

std::byte* TileShaper::take(std::byte* records, std::uint64_t count) {
  const std::uint32_t record_bytes = shape_->record_bytes();
  for (std::uint64_t first = 0; first < count; first += most_block_records)
    take_block(records + first * record_bytes, std::min(most_block_records, count - first));
  sum_put();
  const auto used = static_cast<std::uint64_t>(end_ - place_) +
                    (open_.empty() || in_head_ ? 0 : shape_->output_bytes());
  return place_ + (used + record_bytes - 1) / record_bytes * record_bytes;
}

// While it is in cache.
void TileShaper::sum_put() {
  // What set operations keep of the head has yet to be decided about.
  if (!sum_ || (shape_->set_operation() && in_head_)) return;
  summed_ = std::max(summed_, begin_);
  outgoing_ += sum_({summed_, end_}, shape_->output_bytes());
  summed_ = end_;
}

void TileShaper::take_block(std::byte* records, std::uint64_t count) {
  const std::uint32_t record_bytes = shape_->record_bytes();
  const KeyLayout layout = shape_->encoding().layout();
  const Neighbours merged = compare_first_words(layout, records, count);
  if (sum_) {
    const std::byte* const last = records + (count - 1) * record_bytes;
    block_sum_ = sum_({records, count * record_bytes}, record_bytes);
    fingerprint_ += block_sum_;
    descends_ |= merged.descend || (merged.tie && first_descent(layout, records, count) != count) ||
                 (!last_.empty() && record_less(layout, records, last_.data()));
    if (first_.empty()) first_.assign(records, records + record_bytes);
    last_.assign(last, last + record_bytes);
  }
  if (failure_) return;
  try {
    std::uint16_t which[most_block_records];
    std::uint64_t kept = 0;
    if (shape_->set_operation())
      return take_sets(records, count, merged.tie,
                       shape_->filters_ ? &shape_->filter_.test(records, count, masks_) : nullptr);
    if (shape_->filters_) {
      const Filter::Mask& fulfils = shape_->filter_.test(records, count, masks_);
      for (std::uint64_t i = 0; i < count; ++i) {
        which[kept] = static_cast<std::uint16_t>(i);
        kept += fulfils[i];
      }
      if (shape_->groups()) move_records(records, records, {which, kept}, record_bytes);
    }
    if (shape_->groups())
      take_groups(records, shape_->filters_ ? kept : count, merged.tie);
    else if (shape_->filters_)
      put(records, {which, kept});
    else
      put_stretch(records, count);
  } catch (...) {
    failure_ = std::current_exception();
    open_ = Group();
  }
}

// Puts where the groups begin that begin here, and the end, to `starts`, and says how many they
// are. Where a group `goes_on`, none begins with the first record.
std::uint64_t TileShaper::find_groups(const std::byte* records, std::uint64_t count, bool may_tie,
                                      bool goes_on, std::uint16_t* starts) const {
  const std::uint32_t record_bytes = shape_->record_bytes();
  const KeyLayout layout = shape_->encoding().layout();
  std::uint64_t groups = 0;
  if (!goes_on) starts[groups++] = 0;
  if (!may_tie) {
    for (std::uint64_t i = 1; i < count; ++i) starts[groups++] = static_cast<std::uint16_t>(i);
  } else {
    std::uint32_t pieces = 0;  // of the first word
    while (pieces < layout.prefix_pieces && layout.pieces[pieces].word == 0) ++pieces;
    Key<1> keys[most_block_records];
    encode_keys({layout.pieces, pieces, pieces, record_bytes}, records, count, keys);
    const bool more_words = pieces != layout.pieces_count;
    for (std::uint64_t i = 1; i < count; ++i) {
      const std::byte* const record = records + i * record_bytes;
      starts[groups] = static_cast<std::uint16_t>(i);
      groups += keys[i].word[0] != keys[i - 1].word[0] ||
                (more_words && !shape_->equal(record - record_bytes, record));
    }
  }
  starts[groups] = static_cast<std::uint16_t>(count);
  return groups;
}

void TileShaper::take_groups(std::byte* records, std::uint64_t count, bool may_tie) {
  if (count == 0) return;
  const std::uint32_t record_bytes = shape_->record_bytes();

  if (!may_tie && !shape_->buries_) return take_singles(records, count);

  std::uint16_t starts[most_block_records + 1];
  const bool goes_on = !open_.empty() && shape_->equal(open_.record(), records);
  std::uint64_t groups = find_groups(records, count, may_tie, goes_on, starts);

  // Of two equal keys that must not be, the first still goes out.
  std::exception_ptr failure;
  if (shape_->on_equal() == OnEqual::error) {
    const auto fail = [&](std::uint64_t record) {
      failure = std::make_exception_ptr(EqualKeys(records + record * record_bytes, record_bytes));
    };
    if (goes_on) {
      failure_ = std::make_exception_ptr(EqualKeys(records, record_bytes));
      return;
    }
    for (std::uint64_t group = 0; group < groups && !failure; ++group) {
      if (starts[group + 1] - starts[group] == 1) continue;
      fail(starts[group]);
      groups = group + 1;
      starts[groups] = static_cast<std::uint16_t>(starts[group] + 1);
    }
  } else if (goes_on) {
    open_.add(*shape_, records, starts[0]);
  }
  const auto open = [&](std::uint64_t group) {
    open_.start(*shape_, records + starts[group] * record_bytes,
                static_cast<std::uint64_t>(starts[group + 1] - starts[group]));
  };
  if (groups != 0) {
    std::uint64_t first = 0;
    if (in_head_ && open_.empty()) open(first++);
    if (first != groups) {
      close_group();
      put_groups(records, {starts + first, groups - first});
      open(groups - 1);
    }
  }
  failure_ = failure;
}

// No two of the records are of one group; the first may be of the open one.
void TileShaper::take_singles(std::byte* records, std::uint64_t count) {
  const std::uint32_t record_bytes = shape_->record_bytes();
  const std::byte* const block = records;
  if (!open_.empty() && shape_->equal(open_.record(), records)) {
    if (shape_->on_equal() == OnEqual::error) {
      failure_ = std::make_exception_ptr(EqualKeys(records, record_bytes));
      return;
    }
    open_.add(*shape_, records, 1);
    records += record_bytes;
    --count;
  } else if (in_head_ && open_.empty()) {
    open_.start(*shape_, records, 1);
    records += record_bytes;
    --count;
  }
  if (count == 0) return;
  close_group();
  std::byte* const last = records + (count - 1) * record_bytes;
  if (shape_->counts_) count_one(records, count - 1);
  if (sum_ && !shape_->filters_ && !shape_->counts_ && shape_->selected_.empty()) {
    // All of the block but a record or two goes out as it was merged: its sum is known.
    sum_put();
    outgoing_ += block_sum_ - sum_({block, records}, record_bytes) -
                 sum_({last, record_bytes}, record_bytes);
    put_stretch(records, count - 1);
    summed_ = end_;
  } else {
    put_stretch(records, count - 1);
  }
  open_.start(*shape_, last, 1);
}

// `fulfils`: which of the records count; null: all.
void TileShaper::take_sets(std::byte* records, std::uint64_t count, bool may_tie,
                           const Filter::Mask* fulfils) {
  const SetOperation& operation = *shape_->set_operation();
  const std::uint32_t record_bytes = shape_->record_bytes();
  std::uint16_t starts[most_block_records + 1];
  const std::uint64_t groups = find_groups(records, count, may_tie, false, starts);
  Key<1> keys[most_block_records];
  runs_.read_words(records, count, keys);
  std::uint16_t which[most_block_records];
  std::uint64_t kept = 0;
  const auto counts = [&](std::uint64_t record) { return !fulfils || (*fulfils)[record] != 0; };

  // Calls `use` with those of each run from `record` on that count, where they are the next of
  // their run.
  const auto for_pieces = [&](std::uint64_t record, std::span<const SetPiece> pieces, auto use) {
    for (const SetPiece& piece : pieces) {
      std::uint16_t of_piece[most_block_records];
      std::uint64_t counting = 0;
      for (const std::uint64_t end = record + piece.count; record < end; ++record)
        if (counts(record)) of_piece[counting++] = static_cast<std::uint16_t>(record);
      if (counting != 0) use(SetPiece{piece.run, counting}, of_piece);
    }
  };
  const auto decide = [&](SetGroup& group, std::uint64_t record, std::span<const SetPiece> pieces) {
    const auto put_some = [&](const SetPiece& piece, auto which_of_piece) {
      const SetGroup::Range range = group.take(operation, piece);
      for (std::uint64_t i = range.first; i < range.end; ++i)
        which[kept++] = static_cast<std::uint16_t>(which_of_piece(i));
    };
    if (fulfils)
      return for_pieces(record, pieces, [&](const SetPiece& piece, const std::uint16_t* of_piece) {
        put_some(piece, [=](std::uint64_t i) { return of_piece[i]; });
      });
    for (const SetPiece& piece : pieces) {
      put_some(piece, [=](std::uint64_t i) { return record + i; });
      record += piece.count;
    }
  };

  for (std::uint64_t group = 0; group < groups; ++group) {
    const std::uint64_t begin = starts[group], size = starts[group + 1] - begin;
    const std::byte* const record = records + begin * record_bytes;
    const std::uint64_t word = keys[begin].word[0];
    const bool first = head_record_.empty();
    const bool goes_on = group == 0 && !first && shape_->equal(open_set_.record.data(), record);
    if (first) {
      head_record_.assign(record, record + record_bytes);
    } else if (!goes_on && in_head_) {
      in_head_ = false;
      begin_ = end_;
    }
    if (!first && !goes_on && group + 1 < groups) {
      // Of a group that lies here as a whole less has to be known.
      if (size == 1 && operation.kind != OnEqual::intersect) {
        which[kept] = static_cast<std::uint16_t>(begin);
        kept += counts(begin) && (operation.kind == OnEqual::unite ||
                                  runs_.count_in_last(operation.runs - 1, record, word) != 0);
        continue;
      }
      if (operation.kind == OnEqual::intersect && size < operation.runs) continue;
      SetGroup whole;
      if (operation.kind == OnEqual::subtract) {
        const std::uint64_t last =
            std::min(runs_.count_in_last(operation.runs - 1, record, word), size);
        const SetPiece pieces[] = {{0, size - last}, {operation.runs - 1, last}};
        if (last != 0) decide(whole, begin, std::span(pieces).subspan(last == size));
      } else {
        decide(whole, begin, runs_.count(record, word, 0, size, false));
      }
      continue;
    }
    if (!goes_on) {
      open_set_ = {{record, record + record_bytes}, {}};
      if (!first) merged_of_open_ = 0;
    }
    const auto pieces = runs_.count(record, word, merged_of_open_, size, true);
    merged_of_open_ += size;
    if (!in_head_) {
      decide(open_set_.group, begin, pieces);
      continue;
    }
    for_pieces(begin, pieces, [&](const SetPiece& piece, const std::uint16_t* of_piece) {
      end_ = move_records(end_, records, {of_piece, piece.count}, record_bytes);
      head_pieces_.push_back(piece);
    });
  }
  put(records, {which, kept});
}

// The records' counts become what they are for groups of one.
void TileShaper::count_one(std::byte* records, std::uint64_t count) const {
  const std::uint32_t record_bytes = shape_->record_bytes();
  for (const Shape::Column& column : shape_->columns_)
    if (column.operation == Operation::count)
      with_number(column.field, [&]<class Number>(Number) {
        std::byte* at = records + column.field.offset;
        for (std::uint64_t i = 0; i < count; ++i, at += record_bytes)
          store(Number{1}, at, column.field.big_endian);
      });
}

void TileShaper::close_group() {
  if (open_.empty()) return;
  if (in_head_)
    head_ = std::exchange(open_, Group());
  else if (open_.finish(*shape_, end_))
    end_ += shape_->output_bytes();
  in_head_ = false;
}

// All groups but the last, which begins at the last of `starts`.
void TileShaper::put_groups(std::byte* records, std::span<const std::uint16_t> starts) {
  const std::uint32_t record_bytes = shape_->record_bytes();
  const std::uint64_t groups = starts.size() - 1;
  const auto size = [&](std::uint64_t group) { return starts[group + 1] - starts[group]; };
  if (shape_->counts_)
    for (std::uint64_t group = 0; group < groups; ++group)
      if (size(group) == 1) count_one(records + starts[group] * record_bytes, 1);
  const Filter::Mask* buried = nullptr;
  if (shape_->buries_) buried = &shape_->tombstone_.test(records, starts.back(), masks_);

  std::uint16_t which[most_block_records];
  std::uint64_t count = 0;
  const auto take = [&](std::uint64_t record) {
    which[count] = static_cast<std::uint16_t>(record);
    count += buried ? 1 - (*buried)[record] : 1;
  };
  switch (shape_->on_equal()) {
    case OnEqual::last:
      for (std::uint64_t group = 0; group < groups; ++group) take(starts[group + 1] - 1u);
      break;
    case OnEqual::reduce:
      for (std::uint64_t group = 0; group < groups; ++group) {
        if (size(group) == 1) {
          take(starts[group]);
          continue;
        }
        put(records, {which, count});
        count = 0;
        work_.start(*shape_, records + starts[group] * record_bytes,
                    static_cast<std::uint64_t>(size(group)));
        if (work_.finish(*shape_, end_)) end_ += shape_->output_bytes();
      }
      break;
    default:
      for (std::uint64_t group = 0; group < groups; ++group) take(starts[group]);
  }
  put(records, {which, count});
}

void TileShaper::put(const std::byte* records, std::span<const std::uint16_t> which) {
  const std::uint32_t record_bytes = shape_->record_bytes();
  if (shape_->selected_.empty()) {
    end_ = move_records(end_, records, which, record_bytes);
    return;
  }
  for (const std::uint16_t i : which) put_stretch(records + i * record_bytes, 1);
}

void TileShaper::put_stretch(const std::byte* records, std::uint64_t count) {
  const std::uint32_t record_bytes = shape_->record_bytes();
  if (shape_->selected_.empty()) {
    if (records != end_) std::memmove(end_, records, count * record_bytes);
    end_ += count * record_bytes;
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i, records += record_bytes) {
    // What goes out may overlap the record that it comes from.
    shape_->select(records, selected_.data());
    end_ = std::ranges::copy(selected_, end_).out;
  }
}

void TileShaper::finish() {
  if (shape_->set_operation() && in_head_)
    begin_ = end_;
  else if (in_head_)
    head_ = std::exchange(open_, Group());
}

void UnitShaper::begin(std::span<std::byte* const> places) {
  tiles_.reserve(places.size());
  for (std::byte* const place : places) tiles_.emplace_back(shape_, place, sum_);
}

void UnitShaper::add_segment(std::size_t tile, std::size_t segment, const std::byte* records,
                             std::uint64_t count) {
  tiles_[tile].add_run(unit_.segments[segment].chunk->run, records, count);
}

MergedUnit UnitShaper::join() {
  const KeyLayout layout = shape_.encoding().layout();
  MergedUnit unit;
  if (sum_) {
    unit.fingerprint = 0;
    const TileShaper* before = nullptr;
    for (const TileShaper& tile : tiles_) {
      *unit.fingerprint += tile.fingerprint_;
      if (tile.first_.empty()) continue;
      if (tile.descends_ ||
          (before && record_less(layout, tile.first_.data(), before->last_.data())))
        throw Corrupted("a unit's merged records are not in order");
      if (!before) unit.edges = tile.first_;
      before = &tile;
    }
    if (before) unit.edges.insert(unit.edges.end(), before->last_.begin(), before->last_.end());
  }

  if (shape_.set_operation())
    join_sets(unit);
  else
    join_groups(unit);
  return unit;
}

std::uint64_t UnitShaper::sum_of(std::span<const std::byte> outgoing) const {
  return sum_ ? sum_(outgoing, shape_.output_bytes()) : 0;
}

void UnitShaper::join_groups(MergedUnit& unit) {
  const std::uint32_t output_bytes = shape_.output_bytes();
  // The group that may go on in the next tile, and where it goes out if it does not: before or
  // after what its tile has put out.
  Group open;
  TileShaper* of = nullptr;
  bool before_tile = false;
  bool in_head = true;
  const auto finish_at = [&](std::byte* place) {
    if (!open.finish(shape_, place)) return false;
    unit.outgoing_fingerprint += sum_of({place, output_bytes});
    return true;
  };
  const auto close = [&] {
    if (open.empty()) return;
    if (in_head) {
      unit.head = std::exchange(open, Group());
    } else if (before_tile) {
      if (finish_at(of->begin_ - output_bytes)) of->begin_ -= output_bytes;
    } else if (finish_at(of->end_)) {
      of->end_ += output_bytes;
    }
    in_head = false;
  };
  std::size_t joined = 0;
  try {
    for (TileShaper& tile : tiles_) {
      if (unit.failure) break;
      ++joined;
      if (!tile.head_.empty()) {
        if (open.empty() || !shape_.equal(open.record(), tile.head_.record())) {
          close();
          open = std::move(tile.head_);
          of = &tile;
          before_tile = true;
        } else if (shape_.on_equal() == OnEqual::error) {
          unit.failure =
              std::make_exception_ptr(EqualKeys(tile.head_.record(), shape_.record_bytes()));
          --joined;
          break;
        } else {
          open.add(shape_, tile.head_);
        }
        if (!tile.in_head_) {
          close();
          open = std::move(tile.open_);
          of = &tile;
          before_tile = false;
        }
      }
      unit.failure = tile.failure_;
    }
  } catch (const Error&) {  // a sum does not fit, and what this tile put out follows it
    unit.failure = std::current_exception();
    open = Group();
    --joined;
  }
  (in_head ? unit.head : unit.tail) = std::move(open);

  for (const TileShaper& tile : std::span(tiles_).first(joined)) {
    put_piece(unit.pieces, {tile.begin_, tile.end_});
    unit.outgoing_fingerprint += tile.outgoing_;
  }
}

void UnitShaper::join_sets(MergedUnit& unit) {
  OpenSet open;  // none while the unit's head goes on
  for (TileShaper& tile : tiles_) {
    if (unit.failure) break;
    if (!tile.head_record_.empty()) {
      std::vector<HeadPiece> head;
      std::byte* at = tile.place_;
      for (const SetPiece& piece : tile.head_pieces_) {
        head.push_back({piece.run, {at, piece.count * shape_.record_bytes()}});
        at += head.back().records.size();
      }
      const auto goes_on = [&](const std::vector<std::byte>& group) {
        return !group.empty() && shape_.equal(group.data(), tile.head_record_.data());
      };
      if (open.empty() && (unit.head_record.empty() || goes_on(unit.head_record))) {
        unit.head_record = tile.head_record_;
        std::ranges::copy(head, std::back_inserter(unit.head_pieces));
      } else {
        if (!goes_on(open.record)) open = {tile.head_record_, {}};
        std::vector<std::span<const std::byte>> decided;
        put_set(shape_, open.group, head, decided);
        for (const auto piece : decided) {
          put_piece(unit.pieces, piece);
          unit.outgoing_fingerprint += sum_of(piece);
        }
      }
      if (!tile.in_head_) open = std::move(tile.open_set_);
    }
    put_piece(unit.pieces, {tile.begin_, tile.end_});
    unit.outgoing_fingerprint += tile.outgoing_;
    unit.failure = tile.failure_;
  }
  unit.tail_set = std::move(open);
}

void UnitJoiner::check_order(const std::byte* open, const std::byte* next) const {
  if (record_less(shape_.encoding().layout(), next, open))
    throw Corrupted("the merged units are not in order");
}

void UnitJoiner::add(std::span<const std::byte> outgoing) {
  if (sum_) fingerprint_ += sum_(outgoing, shape_.output_bytes());
}

void UnitJoiner::put_group(std::vector<std::byte>& edge) {
  if (open_.empty() || done()) return;
  edge.resize(edge.size() + shape_.output_bytes());
  if (open_.finish(shape_, edge.data() + edge.size() - shape_.output_bytes()))
    --left_;
  else
    edge.resize(edge.size() - shape_.output_bytes());
}

void UnitJoiner::join(MergedUnit& unit, std::vector<std::byte>& edge) {
  const std::uint32_t bytes = shape_.output_bytes();
  edge.clear();
  edge.reserve(3 * bytes);  // pieces point into it
  std::vector<std::span<const std::byte>> pieces(1);
  bool goes_on = false;
  if (!unit.head.empty()) {
    if (open_.empty() || !shape_.equal(open_.record(), unit.head.record())) {
      if (!open_.empty()) check_order(open_.record(), unit.head.record());
      put_group(edge);
      open_ = std::move(unit.head);
    } else if (shape_.on_equal() == OnEqual::error) {
      unit.failure = std::make_exception_ptr(EqualKeys(unit.head.record(), shape_.record_bytes()));
      unit.pieces.clear();
      unit.tail = Group();
    } else {
      open_.add(shape_, unit.head);
    }
    goes_on = unit.pieces.empty() && unit.tail.empty() && !unit.failure;
    if (!goes_on) {
      put_group(edge);
      open_ = std::exchange(unit.tail, Group());
    }
  }
  pieces.front() = edge;
  if (!unit.head_record.empty()) {
    const std::byte* const head = unit.head_record.data();
    if (open_set_.empty() || !shape_.equal(open_set_.record.data(), head)) {
      if (!open_set_.empty()) check_order(open_set_.record.data(), head);
      open_set_ = {unit.head_record, {}};
    }
    std::vector<std::span<const std::byte>> all;
    put_set(shape_, open_set_.group, unit.head_pieces, all);
    for (const auto piece : all) add(piece);
    for (const auto piece : unit.pieces) put_piece(all, piece);
    unit.pieces = std::move(all);
    if (!unit.tail_set.empty()) open_set_ = std::move(unit.tail_set);
  }
  for (const auto piece : unit.pieces) {
    const std::uint64_t records = std::min<std::uint64_t>(piece.size() / bytes, left_);
    left_ -= records;
    pieces.push_back(piece.first(records * bytes));
  }
  if (unit.failure) {
    const std::size_t before = edge.size();
    put_group(edge);
    open_ = Group();
    pieces.push_back(std::span(edge).subspan(before));
  }
  std::erase_if(pieces, [](const auto piece) { return piece.empty(); });
  unit.pieces = std::move(pieces);
  fingerprint_ += unit.outgoing_fingerprint;
  add(edge);
  if (unit.failure && !done()) std::rethrow_exception(unit.failure);
}

void UnitJoiner::finish(MergedUnit& unit, std::vector<std::byte>& edge) {
  edge.clear();
  put_group(edge);
  unit.pieces = {edge};
  add(edge);
}

MergedUnit shape_unit(const Shape& shape, const WorkUnit& unit, std::span<std::byte> merged,
                      FingerprintSum sum) {
  const std::uint32_t record_bytes = shape.record_bytes();
  const std::uint64_t records = merged.size() / record_bytes;
  const std::uint64_t tiles = std::max<std::uint64_t>(merged.size() / task_bytes, 1);
  const auto start = [&](std::uint64_t tile) { return records * tile / tiles; };
  std::vector<std::byte*> places;
  for (std::uint64_t tile = 0; tile < tiles; ++tile)
    places.push_back(merged.data() + start(tile) * record_bytes);
  UnitShaper shaper(shape, unit, sum);
  shaper.begin(places);
  if (shape.set_operation())
    for (std::uint64_t tile = 0; tile < tiles; ++tile) {
      for (std::size_t i = 0; i < unit.segments.size(); ++i) {
        const Segment& segment = unit.segments[i];
        shaper.add_segment(tile, i, segment.chunk->records() + segment.first * record_bytes,
                           segment.count);
      }
      shaper.tile(tile).skip(equal_before(shape, merged, start(tile)));
    }
  tbb::this_task_arena::isolate([&] {
    for_all(0, tiles, [&](std::uint64_t tile) {
      shaper.tile(tile).take(places[tile], start(tile + 1) - start(tile));
      shaper.tile(tile).finish();
    });
  });
  return shaper.join();
}

}  // namespace corank
