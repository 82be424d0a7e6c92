#include "ops/boundary_merge.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "corank/error.hpp"

namespace corank {

void BoundaryMerge::join(MergedUnit& unit) {
  const std::byte* end = nullptr;  // of the output of the tile before
  for (TileOutput& tile : unit.tiles) {
    left_out_ += tile.left_out;
    join_ends(tile);
    if (done()) continue;
    resolved_ += tile.resolved;
    TileMemory closed;
    if (chain_.set_operation())
      join_set(tile, unit);
    else
      join_group(tile, closed);
    emit(tile, closed, end ? end : tile.free, unit);
    end = tile.between.data() + tile.between.size();
    if (tile.failure) {
      close_group(closed);
      emit_apart(closed, unit);
      if (!done()) std::rethrow_exception(tile.failure);
    }
    ended_ = ended_ || tile.ended;
  }
}

void BoundaryMerge::finish(MergedUnit& unit) {
  TileMemory closed;
  if (!chain_.set_operation()) close_group(closed);
  emit_apart(closed, unit);
}

void BoundaryMerge::check_order(const std::byte* before, const std::byte* after) const {
  if (record_less(chain_.layout(), after, before))
    throw Corrupted("the merged units are not in order");
}

void BoundaryMerge::join_ends(TileOutput& tile) {
  if (!open_.empty() && !tile.head.empty()) check_order(open_.row(), tile.head.row());
  if (tile.first.empty()) return;
  if (!last_.empty()) check_order(last_.row(), tile.first.row());
  last_ = std::move(tile.last);
}

bool BoundaryMerge::continues(const TileOutput& tile) const {
  return !open_.empty() && chain_.are_equal(open_.row(), tile.head.row());
}

void BoundaryMerge::join_group(TileOutput& tile, TileMemory& closed) {
  if (tile.head.empty()) return;
  if (!continues(tile)) {
    close_group(closed);
    open_ = std::move(tile.head);
  } else if (chain_.on_equal() != OnEqual::error) {
    open_.add(chain_, std::move(tile.head));
  } else {
    TileOutput failed;
    failed.failure = std::make_exception_ptr(EqualKeys(tile.head.record()));
    tile = std::move(failed);
    return;
  }
  if (!tile.head_ends) return;
  close_group(closed);
  open_ = std::move(tile.tail);
}

// Emits the open group to `closed`, unless there is none or the limit is reached.
void BoundaryMerge::close_group(TileMemory& closed) {
  if (!open_.empty() && records_ + closed.spilled_records < limit_)
    left_out_ -= open_.emit(chain_, closed, sum_, resolved_);
  open_ = Carry();
}

void BoundaryMerge::join_set(TileOutput& tile, MergedUnit& unit) {
  if (!tile.head.empty()) {
    if (!continues(tile)) open_ = std::move(tile.head);
    for (const LeadingRecords& leading : tile.head_pieces)
      emit_leading(leading, open_.set.take(*chain_.set_operation(), leading.piece), unit);
  }
  if (!tile.tail.empty()) open_ = std::move(tile.tail);
}

// Emits the records of a leading partial group that `range` selects. Records that stay unchanged
// are emitted from where they are.
void BoundaryMerge::emit_leading(const LeadingRecords& leading, const SetGroup::Range& range,
                                 MergedUnit& unit) {
  if (range.first == range.end) return;
  const KeyLayout& layout = chain_.layout();
  const bool changes = chain_.projection() || chain_.dropped();
  const std::span<const std::byte> rest =
      leading.records.subspan(first_records(layout, leading.records, range.first).bytes.size());
  const Records chosen = first_records(layout, rest, range.end - range.first);
  if (!changes) {
    if (sum_) left_out_ -= records_fingerprint(sum_, layout, chosen.bytes);
    return put(chosen.bytes, chosen.count, unit);
  }
  TileMemory emitted;
  RowReader batch(layout, chosen.bytes);
  while (batch.next()) {
    std::uint16_t indices[max_batch_rows];
    std::iota(indices, indices + batch.count(), std::uint16_t{0});
    std::span which(indices, batch.count());
    which = which.first(chain_.drop(batch.rows(), which));
    resolved_.deleted += batch.count() - which.size();
    if (chain_.projection()) {
      left_out_ -= chain_.project(batch.rows(), which, emitted, sum_);
      continue;
    }
    for (const std::uint16_t i : which) {
      const std::byte* const row = batch.rows() + i * layout.record_bytes;
      if (sum_) left_out_ -= rows_fingerprint(sum_, layout, row, 1);
      emitted.append(bytes_of(layout, row, 1), 1);
    }
  }
  emit_apart(emitted, unit);
}

// Emits the groups that closed at the start of the tile, then its output. The closed groups go in
// front of the output if the memory from `free` on has room there, which keeps whole pages
// together.
void BoundaryMerge::emit(TileOutput& tile, TileMemory& closed, const std::byte* free,
                         MergedUnit& unit) {
  const std::vector<std::byte>& records = closed.spilled;
  if (!records.empty() && !tile.between.empty() && free <= tile.between.data() &&
      records.size() <= static_cast<std::size_t>(tile.between.data() - free)) {
    std::byte* const begin = tile.between.data() - records.size();
    std::ranges::copy(records, begin);
    tile.between = {begin, tile.between.size() + records.size()};
    tile.records += closed.spilled_records;
  } else {
    emit_apart(closed, unit);
  }
  put(tile.between, tile.records, unit);
  closed.spilled = std::move(tile.spilled);
  closed.spilled_records = tile.spilled_records;
  emit_apart(closed, unit);
}

// Emits the records that `records` spilled, and empties it.
void BoundaryMerge::emit_apart(TileMemory& records, MergedUnit& unit) {
  if (records.spilled_records == 0) return;
  unit.apart.push_back(std::move(records.spilled));
  put(unit.apart.back(), records.spilled_records, unit);
  records = TileMemory();
}

// Emits contiguous records, as many as the limit allows.
void BoundaryMerge::put(std::span<const std::byte> records, std::uint64_t count, MergedUnit& unit) {
  if (count > limit_ - records_) {
    count = limit_ - records_;
    records = first_records(chain_.output_layout(), records, count).bytes;
  }
  records_ += count;
  if (count == 0) return;
  std::span<const std::byte>* const last = unit.pieces.empty() ? nullptr : &unit.pieces.back();
  if (last && last->data() + last->size() == records.data())
    *last = {last->data(), last->size() + records.size()};
  else
    unit.pieces.push_back(records);
}

}  // namespace corank
