#include "ops/tile_operators.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "corank/error.hpp"

namespace corank {

TileOperators::TileOperators(const OperatorChain& chain, std::span<std::byte> place,
                             bool holds_records, FingerprintSum sum)
    : chain_(&chain),
      place_(place.data()),
      group_bytes_(chain.groups() && !chain.set_operation() ? chain.output_bytes() : 0),
      begin_(place_ + group_bytes_),  // the leading group may yet be emitted before it
      sum_(sum),
      runs_(chain.layout()) {
  memory_.end = begin_;
  // A changed record whose size varies may be longer than its source, so it must not go where
  // records are read.
  const bool spills =
      holds_records && (chain.projection() || chain.reducer()) && chain.output_bytes() == 0;
  memory_.limit = spills ? begin_ : place_ + place.size();
  memory_.holds_records = holds_records;
  output_.free = place_;
}

void TileOperators::add_run(std::uint32_t run, const std::byte* rows, std::uint64_t count) {
  if (chain_->set_operation()) runs_.add(run, rows, count);
}

std::byte* TileOperators::take(std::byte* rows, std::uint64_t count) {
  const std::uint32_t row_bytes = chain_->layout().record_bytes;
  for (std::uint64_t first = 0; first < count; first += max_batch_rows)
    take_batch(rows + first * row_bytes, std::min(max_batch_rows, count - first));
  const auto used = static_cast<std::uint64_t>(memory_.end - place_) +
                    (carry_.empty() || in_head_ ? 0 : group_bytes_);
  return place_ + (used + row_bytes - 1) / row_bytes * row_bytes;
}

void TileOperators::take_batch(std::byte* rows, std::uint64_t count) {
  const Neighbours merged = compare_first_words(chain_->layout(), rows, count);
  if (sum_) check_order(rows, count, merged);
  const GroupReducer* const reducer = chain_->reducer();
  // Rows that change, or that the leading group overwrites, are hashed before.
  hashes_all_ = chain_->projection() || (reducer && (merged.tie || reducer->reduces_single())) ||
                (chain_->set_operation() && in_head_);
  if (sum_ && hashes_all_)
    output_.left_out += rows_fingerprint(sum_, chain_->layout(), rows, count);
  if (output_.failure) return leave_out(rows, count, {});
  try {
    if (chain_->has_bounds()) keep_within_bounds(rows, count);
    if (count == 0) return;
    std::uint16_t indices[max_batch_rows];
    std::iota(indices, indices + count, std::uint16_t{0});
    std::span which(indices, count);
    which = which.first(chain_->filter(rows, which));
    if (chain_->set_operation()) return take_sets(rows, count, merged.tie, which);
    if (!chain_->groups()) return emit(rows, count, which);
    leave_out(rows, count, which);
    move_rows(rows, rows, which, chain_->layout().record_bytes);
    take_groups(rows, which.size(), merged.tie);
  } catch (...) {
    output_.failure = std::current_exception();
    carry_ = Carry();
  }
}

void TileOperators::check_order(const std::byte* rows, std::uint64_t count,
                                const Neighbours& merged) {
  descends_ |= merged.descend;
  // Grouping compares every row with its predecessor.
  if (chain_->groups() && !chain_->chooses()) return;
  const KeyLayout& layout = chain_->layout();
  descends_ |= (merged.tie && first_descent(layout, rows, count) != count) ||
               (!output_.last.empty() && record_less(layout, rows, output_.last.row()));
  if (output_.first.empty()) output_.first.assign(layout, rows);
  output_.last.assign(layout, row(rows, count - 1));
}

void TileOperators::keep_within_bounds(std::byte*& rows, std::uint64_t& count) {
  const auto [first, end] = chain_->in_bounds(rows, count);
  output_.ended |= end != count;
  if (sum_ && !hashes_all_)
    output_.left_out += rows_fingerprint(sum_, chain_->layout(), rows, first) +
                        rows_fingerprint(sum_, chain_->layout(), row(rows, end), count - end);
  rows += first * chain_->layout().record_bytes;
  count = end - first;
}

bool TileOperators::continues_carry(const std::byte* rows) {
  if (carry_.empty() || !chain_->are_equal(carry_.row(), rows)) return false;
  descends_ |= sum_ && record_less(chain_->layout(), rows, carry_.row());
  return true;
}

// Writes the start of each group that begins in the batch, then the end, to `starts`. Returns the
// number of groups. If the open group `continues`, the first row begins none.
std::uint64_t TileOperators::find_groups(const std::byte* rows, std::uint64_t count, bool may_tie,
                                         bool continues, std::uint16_t* starts) {
  if (!may_tie) {
    std::iota(starts, starts + count + 1 - continues, static_cast<std::uint16_t>(continues));
    return count - continues;
  }
  const KeyLayout& layout = chain_->layout();
  const KeyLayout first_word = first_word_layout(layout);
  Key<1> keys[max_batch_rows];
  encode_keys(first_word, rows, count, keys);
  const bool is_key = first_word.pieces_count == layout.pieces_count && !layout.has_tail();
  std::uint64_t groups = 0;
  if (!continues) starts[groups++] = 0;
  for (std::uint64_t i = 1; i < count; ++i) {
    starts[groups] = static_cast<std::uint16_t>(i);
    if (keys[i].word[0] != keys[i - 1].word[0]) {
      ++groups;
    } else if (!is_key) {
      const std::byte* const before = row(rows, i - 1);
      const bool ends = !chain_->are_equal(before, row(rows, i));
      groups += ends;
      descends_ |= sum_ && !ends && record_less(layout, row(rows, i), before);
    }
  }
  starts[groups] = static_cast<std::uint16_t>(count);
  return groups;
}

void TileOperators::take_groups(std::byte* rows, std::uint64_t count, bool may_tie) {
  if (count == 0) return;
  std::uint16_t starts[max_batch_rows + 1];
  const bool continues = continues_carry(rows);
  std::uint64_t groups = find_groups(rows, count, may_tie, continues, starts);
  const auto size = [&](std::uint64_t group) {
    return static_cast<std::uint64_t>(starts[group + 1] - starts[group]);
  };
  // If two keys are equal and must not be, the first record is still emitted.
  std::exception_ptr failure;
  if (chain_->on_equal() == OnEqual::error) {
    const auto equal_keys = [&](std::uint64_t i) {
      return std::make_exception_ptr(EqualKeys(bytes_of(chain_->layout(), row(rows, i), 1)));
    };
    if (continues) failure = equal_keys(0), groups = 0;
    for (std::uint64_t group = 0; group < groups && !failure; ++group) {
      if (size(group) == 1) continue;
      failure = equal_keys(starts[group]);
      groups = group + 1;
      starts[groups] = static_cast<std::uint16_t>(starts[group] + 1);
    }
  } else if (continues) {
    carry_.add(*chain_, rows, starts[0]);
  }
  const auto open = [&](std::uint64_t group) {
    carry_.start(*chain_, row(rows, starts[group]), size(group));
  };
  std::uint64_t first = 0;
  if (groups != 0 && in_head_ && carry_.empty()) open(first++);
  if (first == groups) {
    leave_out(rows, count, {});
  } else {
    close_group();
    const std::uint16_t last_start = starts[groups - 1];
    emit_groups(rows, count, {starts + first, groups - first});
    starts[groups - 1] = last_start;
    if (output_.failure)
      carry_ = Carry();
    else
      open(groups - 1);
  }
  if (failure) output_.failure = failure;
}

void TileOperators::close_group() {
  if (carry_.empty()) return;
  if (in_head_)
    output_.head = std::exchange(carry_, Carry());
  else
    output_.left_out -= carry_.emit(*chain_, memory_, sum_, output_.resolved);
  in_head_ = false;
}

// Emits all groups but the last, which begins at the last of `starts`. Overwrites `starts`.
void TileOperators::emit_groups(std::byte* rows, std::uint64_t count,
                                std::span<std::uint16_t> starts) {
  std::uint64_t groups = starts.size() - 1;
  if (chain_->reducer()) {
    if (chain_->output_bytes() == 0) return emit_reduced(rows, starts);
    groups = reduce(rows, starts);
  } else {
    output_.resolved.replaced +=
        static_cast<std::uint64_t>(starts.back() - starts.front()) - groups;
    if (chain_->on_equal() == OnEqual::last)
      for (std::uint64_t group = 0; group < groups; ++group)
        starts[group] = static_cast<std::uint16_t>(starts[group + 1] - 1);
  }
  emit(rows, count, starts.first(groups));
}

// Emits all groups but the last, each reduced to a new record of any size.
void TileOperators::emit_reduced(const std::byte* rows, RowIndices starts) {
  for (std::size_t group = 0; group + 1 < starts.size(); ++group) {
    work_.start(*chain_, row(rows, starts[group]),
                static_cast<std::uint64_t>(starts[group + 1] - starts[group]));
    output_.left_out -= work_.emit(*chain_, memory_, sum_, output_.resolved);
  }
}

// Reduces all groups but the last, each to its first row. Returns their number; fewer if one fails.
std::uint64_t TileOperators::reduce(std::byte* rows, RowIndices starts) {
  const std::uint64_t groups = starts.size() - 1;
  const std::uint32_t row_bytes = chain_->layout().record_bytes;
  const GroupReducer& reducer = *chain_->reducer();
  const bool reduces_single = reducer.reduces_single();
  const auto first_row = [&](std::uint64_t group) { return rows + starts[group] * row_bytes; };
  if (static_cast<std::uint64_t>(starts.back() - starts.front()) == groups) {
    if (reduces_single) reducer.finish_singles(first_row(0), groups);
    return groups;
  }
  for (std::uint64_t group = 0; group < groups; ++group) {
    const auto size = static_cast<std::uint64_t>(starts[group + 1] - starts[group]);
    if (size == 1) {
      if (reduces_single) reducer.finish_singles(first_row(group), 1);
      continue;
    }
    try {
      work_.start(*chain_, first_row(group), size);
      std::copy_n(work_.resolve(*chain_, output_.resolved), row_bytes, first_row(group));
    } catch (...) {
      output_.failure = std::current_exception();
      return group;
    }
  }
  return groups;
}

// Emits the rows with the indices `which`, unless they are dropped; the others of the batch are
// left out.
void TileOperators::emit(const std::byte* rows, std::uint64_t count,
                         std::span<std::uint16_t> which) {
  const std::size_t kept = chain_->drop(rows, which);
  output_.resolved.deleted += which.size() - kept;
  which = which.first(kept);
  leave_out(rows, count, which);
  if (chain_->projection()) {
    output_.left_out -= chain_->project(rows, which, memory_, sum_);
    return;
  }
  if (sum_ && hashes_all_) output_.left_out -= fingerprint(rows, which);
  copy(rows, which);
}

// Appends the unchanged records of the rows with the indices `which`.
void TileOperators::copy(const std::byte* rows, RowIndices which) {
  memory_.end = copy_records(chain_->layout(), rows, which, memory_.end, memory_.limit,
                             memory_.holds_records);
  memory_.records += which.size();
}

// Adds the rows of a batch that are not emitted to the fingerprint.
void TileOperators::leave_out(const std::byte* rows, std::uint64_t count, RowIndices which) {
  if (!sum_ || hashes_all_ || which.size() == count) return;
  bool emitted[max_batch_rows] = {};
  for (const std::uint16_t i : which) emitted[i] = true;
  std::uint16_t rest[max_batch_rows];
  std::uint64_t left = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    rest[left] = static_cast<std::uint16_t>(i);
    left += !emitted[i];
  }
  output_.left_out += fingerprint(rows, {rest, left});
}

std::uint64_t TileOperators::fingerprint(const std::byte* rows, RowIndices which) const {
  std::uint64_t sum = 0;
  for_spans(chain_->layout(), rows, which, [&](const std::byte* span, std::uint64_t count) {
    sum += rows_fingerprint(sum_, chain_->layout(), span, count);
  });
  return sum;
}

void TileOperators::finish() {
  if (chain_->set_operation() && in_head_) {
    begin_ = memory_.end;
    memory_.records = 0;
  } else {
    (in_head_ ? output_.head : output_.tail) = std::move(carry_);
  }
  output_.head_ends = !in_head_;
}

TileOutput TileOperators::take_output() {
  if (descends_) throw Corrupted("a unit's merged records are not in order");
  output_.between = {begin_, memory_.end};
  output_.records = memory_.records;
  output_.spilled = std::move(memory_.spilled);
  output_.spilled_records = memory_.spilled_records;
  return std::move(output_);
}

}  // namespace corank
