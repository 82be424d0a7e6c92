#include "ops/unit_operators.hpp"

#include <tbb/task_arena.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include "corank/error.hpp"
#include "util/parallel_for.hpp"

namespace corank {
namespace {

// Minimum bytes per task; smaller tasks cost more to schedule than to run.
constexpr std::uint64_t task_bytes = std::uint64_t{1} << 20;

// Appends a piece, or extends the last piece if they are adjacent.
void put_piece(std::vector<std::span<const std::byte>>& pieces, std::span<const std::byte> piece) {
  if (piece.empty()) return;
  if (!pieces.empty() && pieces.back().data() + pieces.back().size() == piece.data())
    pieces.back() = {pieces.back().data(), pieces.back().size() + piece.size()};
  else
    pieces.push_back(piece);
}

// Appends the records of a leading partial group that the set operation emits.
void put_set(const OperatorChain& shape, SetGroup& group, std::span<const LeadingGroup> head,
             std::vector<std::span<const std::byte>>& pieces, ResolvedCounts& counts) {
  const std::uint64_t record_bytes = shape.record_bytes();
  for (const auto& [run, records] : head) {
    const auto range = group.take(*shape.set_operation(), {run, records.size() / record_bytes});
    put_piece(pieces, shape.emit(records.subspan(range.first * record_bytes,
                                                 (range.end - range.first) * record_bytes),
                                 counts));
  }
}

// Returns how many merged records before record `at` have its key.
std::uint64_t equal_before(const OperatorChain& shape, std::span<const std::byte> merged,
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

}  // namespace

void UnitOperators::begin(std::span<std::byte* const> places) {
  tiles_.reserve(places.size());
  for (std::byte* const place : places) tiles_.emplace_back(operators_, place, sum_);
}

void UnitOperators::add_segment(std::size_t tile, std::size_t segment, const std::byte* records,
                                std::uint64_t count) {
  tiles_[tile].add_run(unit_.segments[segment].chunk->run, records, count);
}

MergedUnit UnitOperators::join() {
  const KeyLayout layout = operators_.encoding().layout();
  MergedUnit unit;
  if (sum_) {
    unit.fingerprint = 0;
    const TileOperators* before = nullptr;
    for (const TileOperators& tile : tiles_) {
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

  if (operators_.set_operation())
    join_sets(unit);
  else
    join_groups(unit);
  return unit;
}

std::uint64_t UnitOperators::sum_of(std::span<const std::byte> outgoing) const {
  return sum_ ? sum_(outgoing, operators_.output_bytes()) : 0;
}

void UnitOperators::join_groups(MergedUnit& unit) {
  const std::uint32_t output_bytes = operators_.output_bytes();
  // The open group, which may continue in the next tile. If it does not, it is emitted before or
  // after the output of tile `of`.
  Group open;
  TileOperators* of = nullptr;
  bool before_tile = false;
  bool in_head = true;
  const auto finish_at = [&](std::byte* place) {
    if (!open.finish(operators_, place, unit.resolved)) return false;
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
    for (TileOperators& tile : tiles_) {
      if (unit.failure) break;
      ++joined;
      if (!tile.head_.empty()) {
        if (open.empty() || !operators_.equal(open.record(), tile.head_.record())) {
          close();
          open = std::move(tile.head_);
          of = &tile;
          before_tile = true;
        } else if (operators_.on_equal() == OnEqual::error) {
          unit.failure =
              std::make_exception_ptr(EqualKeys(tile.head_.record(), operators_.record_bytes()));
          --joined;
          break;
        } else {
          open.add(operators_, tile.head_);
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
  } catch (const Error&) {  // a sum does not fit, and this tile's output follows it
    unit.failure = std::current_exception();
    open = Group();
    --joined;
  }
  (in_head ? unit.head : unit.tail) = std::move(open);

  for (const TileOperators& tile : std::span(tiles_).first(joined)) {
    put_piece(unit.pieces, {tile.begin_, tile.end_});
    unit.outgoing_fingerprint += tile.outgoing_;
    unit.resolved += tile.resolved_;
  }
}

void UnitOperators::join_sets(MergedUnit& unit) {
  OpenSet open;  // empty while the unit's leading partial group continues
  for (TileOperators& tile : tiles_) {
    if (unit.failure) break;
    if (!tile.head_record_.empty()) {
      std::vector<LeadingGroup> head;
      std::byte* at = tile.place_;
      for (const SetPiece& piece : tile.head_pieces_) {
        head.push_back({piece.run, {at, piece.count * operators_.record_bytes()}});
        at += head.back().records.size();
      }
      const auto goes_on = [&](const std::vector<std::byte>& group) {
        return !group.empty() && operators_.equal(group.data(), tile.head_record_.data());
      };
      if (open.empty() && (unit.head_record.empty() || goes_on(unit.head_record))) {
        unit.head_record = tile.head_record_;
        std::ranges::copy(head, std::back_inserter(unit.head_pieces));
      } else {
        if (!goes_on(open.record)) open = {tile.head_record_, {}};
        std::vector<std::span<const std::byte>> decided;
        put_set(operators_, open.group, head, decided, unit.resolved);
        for (const auto piece : decided) {
          put_piece(unit.pieces, piece);
          unit.outgoing_fingerprint += sum_of(piece);
        }
      }
      if (!tile.in_head_) open = std::move(tile.open_set_);
    }
    put_piece(unit.pieces, {tile.begin_, tile.end_});
    unit.outgoing_fingerprint += tile.outgoing_;
    unit.resolved += tile.resolved_;
    unit.failure = tile.failure_;
  }
  unit.tail_set = std::move(open);
}

void BoundaryMerge::check_order(const std::byte* open, const std::byte* next) const {
  if (record_less(operators_.encoding().layout(), next, open))
    throw Corrupted("the merged units are not in order");
}

void BoundaryMerge::add(std::span<const std::byte> outgoing) {
  if (sum_) fingerprint_ += sum_(outgoing, operators_.output_bytes());
}

void BoundaryMerge::put_group(std::vector<std::byte>& edge) {
  if (open_.empty() || done()) return;
  edge.resize(edge.size() + operators_.output_bytes());
  if (open_.finish(operators_, edge.data() + edge.size() - operators_.output_bytes(), resolved_))
    --remaining_;
  else
    edge.resize(edge.size() - operators_.output_bytes());
}

void BoundaryMerge::join(MergedUnit& unit, std::vector<std::byte>& edge) {
  const std::uint32_t bytes = operators_.output_bytes();
  if (!unit.edges.empty()) {
    if (!last_.empty()) check_order(last_.row(), unit.edges.data());
    last_.assign(operators_.encoding().layout(), unit.edges.data() + operators_.record_bytes());
  }
  if (!done()) resolved_ += unit.resolved;
  edge.clear();
  edge.reserve(3 * bytes);  // pieces point into it, so it must not be reallocated
  std::vector<std::span<const std::byte>> pieces(1);
  bool goes_on = false;
  if (!unit.head.empty()) {
    if (open_.empty() || !operators_.equal(open_.record(), unit.head.record())) {
      if (!open_.empty()) check_order(open_.record(), unit.head.record());
      put_group(edge);
      open_ = std::move(unit.head);
    } else if (operators_.on_equal() == OnEqual::error) {
      unit.failure =
          std::make_exception_ptr(EqualKeys(unit.head.record(), operators_.record_bytes()));
      unit.pieces.clear();
      unit.tail = Group();
    } else {
      open_.add(operators_, unit.head);
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
    if (open_set_.empty() || !operators_.equal(open_set_.record.data(), head)) {
      if (!open_set_.empty()) check_order(open_set_.record.data(), head);
      open_set_ = {unit.head_record, {}};
    }
    std::vector<std::span<const std::byte>> all;
    put_set(operators_, open_set_.group, unit.head_pieces, all, resolved_);
    for (const auto piece : all) add(piece);
    for (const auto piece : unit.pieces) put_piece(all, piece);
    unit.pieces = std::move(all);
    if (!unit.tail_set.empty()) open_set_ = std::move(unit.tail_set);
  }
  for (const auto piece : unit.pieces) {
    const std::uint64_t records = std::min<std::uint64_t>(piece.size() / bytes, remaining_);
    remaining_ -= records;
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

void BoundaryMerge::finish(MergedUnit& unit, std::vector<std::byte>& edge) {
  edge.clear();
  put_group(edge);
  unit.pieces = {edge};
  add(edge);
}

MergedUnit apply_to_unit(const OperatorChain& shape, const WorkUnit& unit,
                         std::span<std::byte> merged, FingerprintSum sum) {
  const std::uint32_t record_bytes = shape.record_bytes();
  const std::uint64_t records = merged.size() / record_bytes;
  const std::uint64_t tiles = std::max<std::uint64_t>(merged.size() / task_bytes, 1);
  const auto start = [&](std::uint64_t tile) { return records * tile / tiles; };
  std::vector<std::byte*> places;
  for (std::uint64_t tile = 0; tile < tiles; ++tile)
    places.push_back(merged.data() + start(tile) * record_bytes);
  UnitOperators shaper(shape, unit, sum);
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
    parallel_for(0, tiles, [&](std::uint64_t tile) {
      shaper.tile(tile).take(places[tile], start(tile + 1) - start(tile));
      shaper.tile(tile).finish();
    });
  });
  return shaper.join();
}

}  // namespace corank
