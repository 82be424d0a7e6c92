#include "ops/tile_operators.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "corank/error.hpp"
#include "format/key_order.hpp"

namespace corank {
namespace {

constexpr std::uint64_t max_block_records = Filter::max_records;

// Moves the records with the ascending indices `which` to `to`, which does not lie after them.
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

TileOperators::TileOperators(const OperatorChain& shape, std::byte* place, FingerprintSum sum)
    : operators_(&shape),
      place_(place),
      begin_(place + (shape.groups() && !shape.set_operation() ? shape.output_bytes() : 0)),
      end_(begin_),
      sum_(sum),
      summed_(begin_),
      runs_(shape.encoding().layout()),
      selected_(shape.output_bytes()) {}

void TileOperators::add_run(std::uint32_t run, const std::byte* records, std::uint64_t count) {
  if (operators_->set_operation()) runs_.add(run, records, count);
}

std::byte* TileOperators::take(std::byte* records, std::uint64_t count) {
  const std::uint32_t record_bytes = operators_->record_bytes();
  for (std::uint64_t first = 0; first < count; first += max_block_records)
    take_block(records + first * record_bytes, std::min(max_block_records, count - first));
  sum_put();
  const auto used = static_cast<std::uint64_t>(end_ - place_) +
                    (open_.empty() || in_head_ ? 0 : operators_->output_bytes());
  return place_ + (used + record_bytes - 1) / record_bytes * record_bytes;
}

// Adds new output to the fingerprint while it is in cache.
void TileOperators::sum_put() {
  // The set operation has yet to decide on the leading partial group.
  if (!sum_ || (operators_->set_operation() && in_head_)) return;
  summed_ = std::max(summed_, begin_);
  outgoing_ += sum_({summed_, end_}, operators_->output_bytes());
  summed_ = end_;
}

void TileOperators::take_block(std::byte* records, std::uint64_t count) {
  const std::uint32_t record_bytes = operators_->record_bytes();
  const KeyLayout layout = operators_->encoding().layout();
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
    std::uint16_t which[max_block_records];
    std::uint64_t kept = 0;
    if (operators_->set_operation())
      return take_sets(
          records, count, merged.tie,
          operators_->filters_ ? &operators_->filter_.test(records, count, masks_) : nullptr);
    if (operators_->filters_) {
      const Filter::Mask& fulfils = operators_->filter_.test(records, count, masks_);
      for (std::uint64_t i = 0; i < count; ++i) {
        which[kept] = static_cast<std::uint16_t>(i);
        kept += fulfils[i];
      }
      if (operators_->groups()) move_records(records, records, {which, kept}, record_bytes);
    }
    if (operators_->groups())
      return take_groups(records, operators_->filters_ ? kept : count, merged.tie);
    if (!operators_->filters_ && !operators_->drops_) return put_stretch(records, count);
    if (!operators_->filters_) {
      kept = count;
      std::iota(which, which + count, std::uint16_t{0});
    }
    if (operators_->drops_)
      put_resolved(records, {which, kept}, operators_->dropped_.test(records, count, masks_));
    else
      put(records, {which, kept});
  } catch (...) {
    failure_ = std::current_exception();
    open_ = Group();
  }
}

// Writes the start of each group that begins in the block, then the end, to `starts`. Returns the
// number of groups. If the open group `goes_on`, the first record begins none.
std::uint64_t TileOperators::find_groups(const std::byte* records, std::uint64_t count,
                                         bool may_tie, bool goes_on, std::uint16_t* starts) const {
  const std::uint32_t record_bytes = operators_->record_bytes();
  const KeyLayout layout = operators_->encoding().layout();
  std::uint64_t groups = 0;
  if (!goes_on) starts[groups++] = 0;
  if (!may_tie) {
    for (std::uint64_t i = 1; i < count; ++i) starts[groups++] = static_cast<std::uint16_t>(i);
  } else {
    std::uint32_t pieces = 0;  // of the first word
    while (pieces < layout.prefix_pieces && layout.pieces[pieces].word == 0) ++pieces;
    Key<1> keys[max_block_records];
    encode_keys({layout.pieces, pieces, pieces, record_bytes}, records, count, keys);
    const bool more_words = pieces != layout.pieces_count;
    for (std::uint64_t i = 1; i < count; ++i) {
      const std::byte* const record = records + i * record_bytes;
      starts[groups] = static_cast<std::uint16_t>(i);
      groups += keys[i].word[0] != keys[i - 1].word[0] ||
                (more_words && !operators_->equal(record - record_bytes, record));
    }
  }
  starts[groups] = static_cast<std::uint16_t>(count);
  return groups;
}

void TileOperators::take_groups(std::byte* records, std::uint64_t count, bool may_tie) {
  if (count == 0) return;
  const std::uint32_t record_bytes = operators_->record_bytes();

  if (!may_tie && !operators_->drops_) return take_singles(records, count);

  std::uint16_t starts[max_block_records + 1];
  const bool goes_on = !open_.empty() && operators_->equal(open_.record(), records);
  std::uint64_t groups = find_groups(records, count, may_tie, goes_on, starts);

  // If two keys are equal and must not be, the first record is still emitted.
  std::exception_ptr failure;
  if (operators_->on_equal() == OnEqual::error) {
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
    open_.add(*operators_, records, starts[0]);
  }
  const auto open = [&](std::uint64_t group) {
    open_.start(*operators_, records + starts[group] * record_bytes,
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

// Takes records that are all in different groups; the first may be in the open one.
void TileOperators::take_singles(std::byte* records, std::uint64_t count) {
  const std::uint32_t record_bytes = operators_->record_bytes();
  const std::byte* const block = records;
  if (!open_.empty() && operators_->equal(open_.record(), records)) {
    if (operators_->on_equal() == OnEqual::error) {
      failure_ = std::make_exception_ptr(EqualKeys(records, record_bytes));
      return;
    }
    open_.add(*operators_, records, 1);
    records += record_bytes;
    --count;
  } else if (in_head_ && open_.empty()) {
    open_.start(*operators_, records, 1);
    records += record_bytes;
    --count;
  }
  if (count == 0) return;
  close_group();
  std::byte* const last = records + (count - 1) * record_bytes;
  if (operators_->counts_) operators_->count_one(records, count - 1);
  if (sum_ && !operators_->filters_ && !operators_->counts_ && operators_->selected_.empty()) {
    // All records of the block but one or two are emitted as they were merged, so their fingerprint
    // is known.
    sum_put();
    outgoing_ += block_sum_ - sum_({block, records}, record_bytes) -
                 sum_({last, record_bytes}, record_bytes);
    put_stretch(records, count - 1);
    summed_ = end_;
  } else {
    put_stretch(records, count - 1);
  }
  open_.start(*operators_, last, 1);
}

// The groups of a block of merged records, and the records that a set operation emits of them.
struct TileOperators::SetBlock {
  const SetOperation& operation;
  std::byte* records;
  std::uint32_t record_bytes;
  const Filter::Mask* fulfils;  // the records that count; null: all do
  std::uint64_t groups = 0;
  std::uint64_t kept = 0;
  // Uninitialised, since a block is made for every few records.
  std::uint16_t starts[max_block_records + 1];
  Key<1> keys[max_block_records];
  std::uint16_t which[max_block_records];  // the first `kept` are emitted

  SetBlock(const SetOperation& of, std::byte* at, std::uint32_t bytes, const Filter::Mask* mask)
      : operation(of), records(at), record_bytes(bytes), fulfils(mask) {}

  bool counts(std::uint64_t record) const { return !fulfils || (*fulfils)[record] != 0; }
  std::uint64_t size(std::uint64_t group) const {
    return static_cast<std::uint64_t>(starts[group + 1]) - starts[group];
  }
  const std::byte* first_record(std::uint64_t group) const {
    return records + starts[group] * record_bytes;
  }

  // Calls `use` for each piece, the first of which begins at `record`, with the indices of its
  // records that count.
  template <class Use>
  void for_pieces(std::uint64_t record, std::span<const SetPiece> pieces, Use use) const {
    for (const SetPiece& piece : pieces) {
      std::uint16_t of_piece[max_block_records];
      std::uint64_t counting = 0;
      for (const std::uint64_t end = record + piece.count; record < end; ++record)
        if (counts(record)) of_piece[counting++] = static_cast<std::uint16_t>(record);
      if (counting != 0) use(SetPiece{piece.run, counting}, of_piece);
    }
  }

  // Decides which records of a group's next pieces are emitted; the first begins at `record`.
  void decide(SetGroup& group, std::uint64_t record, std::span<const SetPiece> pieces) {
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
  }
};

// Applies the set operation. `fulfils` marks the records that count; null: all do.
void TileOperators::take_sets(std::byte* records, std::uint64_t count, bool may_tie,
                              const Filter::Mask* fulfils) {
  const std::uint32_t record_bytes = operators_->record_bytes();
  SetBlock block(*operators_->set_operation(), records, record_bytes, fulfils);
  block.groups = find_groups(records, count, may_tie, false, block.starts);
  runs_.read_words(records, count, block.keys);

  std::uint64_t group = 0;
  const bool is_first = head_record_.empty();
  if (is_first) head_record_.assign(records, records + record_bytes);
  if (is_first || operators_->equal(open_set_.record.data(), records))
    take_outer_set(block, group++, !is_first);
  if (group != block.groups) {
    if (in_head_) {
      in_head_ = false;
      begin_ = end_;
    }
    take_inner_sets(block, group);
    take_outer_set(block, block.groups - 1, false);
  }

  if (operators_->drops_)
    put_resolved(records, {block.which, block.kept},
                 operators_->dropped_.test(records, count, masks_));
  else
    put(records, {block.which, block.kept});
}

// Takes all groups from `first_group` on but the last one. They are complete, and so need fewer
// counts than groups that may continue in the next block.
void TileOperators::take_inner_sets(SetBlock& block, std::uint64_t first_group) {
  const SetOperation& operation = block.operation;
  for (std::uint64_t group = first_group; group + 1 < block.groups; ++group) {
    const std::uint64_t begin = block.starts[group], size = block.size(group);
    const std::byte* const record = block.first_record(group);
    const std::uint64_t word = block.keys[begin].word[0];
    if (size == 1 && operation.kind != OnEqual::intersect) {
      block.which[block.kept] = static_cast<std::uint16_t>(begin);
      block.kept +=
          block.counts(begin) && (operation.kind == OnEqual::unite ||
                                  runs_.count_in_last(operation.runs - 1, record, word) != 0);
      continue;
    }
    if (operation.kind == OnEqual::intersect && size < operation.runs) continue;
    SetGroup whole;
    if (operation.kind == OnEqual::subtract) {
      const std::uint64_t last =
          std::min(runs_.count_in_last(operation.runs - 1, record, word), size);
      const SetPiece pieces[] = {{0, size - last}, {operation.runs - 1, last}};
      if (last != 0) block.decide(whole, begin, std::span(pieces).subspan(last == size));
    } else {
      block.decide(whole, begin, runs_.count(record, word, 0, size, false));
    }
  }
}

// Takes the first group of the tile, the open group if it `continues`, or the last of the block,
// which the next block may continue.
void TileOperators::take_outer_set(SetBlock& block, std::uint64_t group, bool continues) {
  const std::uint64_t begin = block.starts[group], size = block.size(group);
  const std::byte* const record = block.first_record(group);
  if (!continues) {
    open_set_ = {{record, record + block.record_bytes}, {}};
    if (!in_head_) merged_of_open_ = 0;
  }
  const auto pieces = runs_.count(record, block.keys[begin].word[0], merged_of_open_, size, true);
  merged_of_open_ += size;
  if (!in_head_) return block.decide(open_set_.group, begin, pieces);
  block.for_pieces(begin, pieces, [&](const SetPiece& piece, const std::uint16_t* of_piece) {
    end_ = move_records(end_, block.records, {of_piece, piece.count}, block.record_bytes);
    head_pieces_.push_back(piece);
  });
}

void TileOperators::close_group() {
  if (open_.empty()) return;
  if (in_head_)
    head_ = std::exchange(open_, Group());
  else if (open_.finish(*operators_, end_, resolved_))
    end_ += operators_->output_bytes();
  in_head_ = false;
}

// Emits all groups but the last, which begins at the last of `starts`.
void TileOperators::put_groups(std::byte* records, std::span<const std::uint16_t> starts) {
  const std::uint32_t record_bytes = operators_->record_bytes();
  const std::uint64_t groups = starts.size() - 1;
  const auto size = [&](std::uint64_t group) { return starts[group + 1] - starts[group]; };
  if (operators_->counts_)
    for (std::uint64_t group = 0; group < groups; ++group)
      if (size(group) == 1) operators_->count_one(records + starts[group] * record_bytes, 1);
  const Filter::Mask* dropped = nullptr;
  if (operators_->drops_) dropped = &operators_->dropped_.test(records, starts.back(), masks_);

  std::uint16_t which[max_block_records];
  std::uint64_t count = 0;
  const auto take = [&](std::uint64_t record) {
    which[count++] = static_cast<std::uint16_t>(record);
  };
  const auto put_taken = [&] {
    if (dropped)
      put_resolved(records, {which, count}, *dropped);
    else
      put(records, {which, count});
    count = 0;
  };
  switch (operators_->on_equal()) {
    case OnEqual::last:
      for (std::uint64_t group = 0; group < groups; ++group) take(starts[group + 1] - 1u);
      break;
    case OnEqual::reduce:
      for (std::uint64_t group = 0; group < groups; ++group) {
        if (size(group) == 1) {
          take(starts[group]);
          continue;
        }
        put_taken();
        work_.start(*operators_, records + starts[group] * record_bytes,
                    static_cast<std::uint64_t>(size(group)));
        if (work_.finish(*operators_, end_, resolved_)) end_ += operators_->output_bytes();
      }
      break;
    default:
      for (std::uint64_t group = 0; group < groups; ++group) take(starts[group]);
  }
  if (operators_->on_equal() != OnEqual::reduce)
    resolved_.replaced += static_cast<std::uint64_t>(starts.back() - starts.front()) - groups;
  put_taken();
}

// Emits the records with the indices `which`, except those that `dropped` marks.
void TileOperators::put_resolved(const std::byte* records, std::span<std::uint16_t> which,
                                 const Filter::Mask& dropped) {
  const auto rest = std::ranges::remove_if(which, [&](std::uint16_t i) { return dropped[i] != 0; });
  resolved_.deleted += rest.size();
  put(records, which.first(which.size() - rest.size()));
}

void TileOperators::put(const std::byte* records, std::span<const std::uint16_t> which) {
  const std::uint32_t record_bytes = operators_->record_bytes();
  if (operators_->selected_.empty()) {
    end_ = move_records(end_, records, which, record_bytes);
    return;
  }
  for (const std::uint16_t i : which) put_stretch(records + i * record_bytes, 1);
}

void TileOperators::put_stretch(const std::byte* records, std::uint64_t count) {
  const std::uint32_t record_bytes = operators_->record_bytes();
  if (operators_->selected_.empty()) {
    if (records != end_) std::memmove(end_, records, count * record_bytes);
    end_ += count * record_bytes;
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i, records += record_bytes) {
    // The projected record may overlap its source.
    operators_->select(records, selected_.data());
    end_ = std::ranges::copy(selected_, end_).out;
  }
}

void TileOperators::finish() {
  if (operators_->set_operation() && in_head_)
    begin_ = end_;
  else if (in_head_)
    head_ = std::exchange(open_, Group());
}

}  // namespace corank
