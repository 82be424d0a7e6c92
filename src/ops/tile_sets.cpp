// Set operations of TileOperators.
#include <algorithm>
#include <span>

#include "ops/tile_operators.hpp"

namespace corank {

// The groups of a batch of merged rows, and the rows that a set operation emits of them.
struct TileOperators::SetBlock {
  const SetOperation& operation;
  const std::byte* rows;
  std::uint32_t row_bytes;
  bool counts_all;  // all rows pass the filter
  std::uint64_t groups = 0;
  std::uint64_t kept = 0;
  // Uninitialised, since a block is made for every few rows.
  bool counts[max_batch_rows];  // by row: whether it passes the filter, unless all do
  std::uint16_t starts[max_batch_rows + 1];
  Key<1> keys[max_batch_rows];
  std::uint16_t which[max_batch_rows];  // the first `kept` are emitted

  SetBlock(const SetOperation& of, const std::byte* at, std::uint64_t count, std::uint32_t bytes,
           RowIndices counting)
      : operation(of), rows(at), row_bytes(bytes), counts_all(counting.size() == count) {
    if (counts_all) return;
    std::fill_n(counts, count, false);
    for (const std::uint16_t i : counting) counts[i] = true;
  }

  std::uint64_t size(std::uint64_t group) const {
    return static_cast<std::uint64_t>(starts[group + 1]) - starts[group];
  }
  const std::byte* first_row(std::uint64_t group) const { return rows + starts[group] * row_bytes; }

  // Calls `use` for each piece, the first of which begins at `row`, with the indices of its rows
  // that count.
  template <class Use>
  void for_pieces(std::uint64_t row, std::span<const SetPiece> pieces, Use use) const {
    for (const SetPiece& piece : pieces) {
      std::uint16_t of_piece[max_batch_rows];
      std::uint64_t counting = 0;
      for (const std::uint64_t end = row + piece.count; row < end; ++row)
        if (counts_all || counts[row]) of_piece[counting++] = static_cast<std::uint16_t>(row);
      if (counting != 0) use(SetPiece{piece.run, counting}, of_piece);
    }
  }

  // Decides which rows of a group's next pieces are emitted; the first begins at `row`.
  void decide(SetGroup& group, std::uint64_t row, std::span<const SetPiece> pieces) {
    const auto keep = [&](const SetPiece& piece, auto index) {
      const SetGroup::Range range = group.take(operation, piece);
      for (std::uint64_t i = range.first; i < range.end; ++i)
        which[kept++] = static_cast<std::uint16_t>(index(i));
    };
    if (!counts_all)
      return for_pieces(row, pieces, [&](const SetPiece& piece, const std::uint16_t* of_piece) {
        keep(piece, [=](std::uint64_t i) { return of_piece[i]; });
      });
    for (const SetPiece& piece : pieces) {
      keep(piece, [=](std::uint64_t i) { return row + i; });
      row += piece.count;
    }
  }
};

// Applies the set operation. Only the rows with the indices `counting` count.
void TileOperators::take_sets(const std::byte* rows, std::uint64_t count, bool may_tie,
                              RowIndices counting) {
  SetBlock block(*chain_->set_operation(), rows, count, chain_->layout().record_bytes, counting);
  block.groups = find_groups(rows, count, may_tie, false, block.starts);
  runs_.read_words(rows, count, block.keys);

  std::uint64_t group = 0;
  const bool is_first = output_.head.empty();
  if (is_first) output_.head.start(*chain_, rows, 1);
  if (is_first || continues_carry(rows)) take_outer_set(block, group++, !is_first);
  if (group != block.groups) {
    if (in_head_) {
      in_head_ = false;
      begin_ = memory_.end;
      memory_.records = 0;
    }
    take_inner_sets(block, group);
    take_outer_set(block, block.groups - 1, false);
  }
  emit(rows, count, {block.which, block.kept});
}

// Takes all groups from `first_group` on but the last one. They are complete, and so need fewer
// counts than groups that may continue in the next batch.
void TileOperators::take_inner_sets(SetBlock& block, std::uint64_t first_group) {
  const SetOperation& operation = block.operation;
  for (std::uint64_t group = first_group; group + 1 < block.groups; ++group) {
    const std::uint64_t begin = block.starts[group], size = block.size(group);
    const std::byte* const row = block.first_row(group);
    const std::uint64_t word = block.keys[begin].word[0];
    if (size == 1 && operation.kind != OnEqual::intersect) {
      block.which[block.kept] = static_cast<std::uint16_t>(begin);
      block.kept += (block.counts_all || block.counts[begin]) &&
                    (operation.kind == OnEqual::unite ||
                     runs_.count_in_last(operation.runs - 1, row, word) != 0);
      continue;
    }
    if (operation.kind == OnEqual::intersect && size < operation.runs) continue;
    SetGroup whole;
    if (operation.kind == OnEqual::subtract) {
      const std::uint64_t last = std::min(runs_.count_in_last(operation.runs - 1, row, word), size);
      const SetPiece pieces[] = {{0, size - last}, {operation.runs - 1, last}};
      if (last != 0) block.decide(whole, begin, std::span(pieces).subspan(last == size));
    } else {
      block.decide(whole, begin, runs_.count(row, word, 0, size, false));
    }
  }
}

// Takes the first group of the tile, the open group if it `continues`, or the last of the batch,
// which the next batch may continue.
void TileOperators::take_outer_set(SetBlock& block, std::uint64_t group, bool continues) {
  const std::uint64_t begin = block.starts[group], size = block.size(group);
  const std::byte* const row = block.first_row(group);
  if (!continues) {
    carry_.start(*chain_, row, 1);
    if (!in_head_) merged_of_carry_ = 0;
  }
  const auto pieces = runs_.count(row, block.keys[begin].word[0], merged_of_carry_, size, true);
  merged_of_carry_ += size;
  if (!in_head_) return block.decide(carry_.set, begin, pieces);
  block.for_pieces(begin, pieces, [&](const SetPiece& piece, const std::uint16_t* of_piece) {
    std::byte* const at = memory_.end;
    copy(block.rows, {of_piece, piece.count});
    output_.head_pieces.push_back({piece, {at, memory_.end}});
  });
}

}  // namespace corank
