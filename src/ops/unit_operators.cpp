#include "ops/unit_operators.hpp"

#include <tbb/task_arena.h>

#include <algorithm>
#include <ranges>

#include "util/math.hpp"
#include "util/parallel_for.hpp"

namespace corank {
namespace {

// Minimum bytes per task; smaller tasks cost more to schedule than to run.
constexpr std::uint64_t task_bytes = MiB;

// Returns how many merged rows before `row` have its key.
std::uint64_t equal_before(const KeyLayout& layout, const std::byte* merged, const std::byte* row) {
  const std::uint64_t at = static_cast<std::uint64_t>(row - merged) / layout.record_bytes;
  const auto before = std::views::iota(std::uint64_t{0}, at);
  const auto first = std::ranges::partition_point(before, [&](std::uint64_t i) {
    return record_less(layout, merged + i * layout.record_bytes, row);
  });
  return at - static_cast<std::uint64_t>(first - before.begin());
}

}  // namespace

void UnitOperators::begin(std::span<const std::span<std::byte>> places, bool hold_records) {
  tiles_.reserve(places.size());
  for (const std::span<std::byte> place : places)
    tiles_.emplace_back(chain_, place, hold_records, sum_);
}

void UnitOperators::add_segment(std::size_t tile, std::size_t segment, const std::byte* rows,
                                std::uint64_t count) {
  tiles_[tile].add_run(unit_.segments[segment].chunk->run, rows, count);
}

MergedUnit UnitOperators::join() {
  MergedUnit unit;
  for (TileOperators& tile : tiles_) unit.tiles.push_back(tile.take_output());
  return unit;
}

MergedUnit apply_to_unit(const OperatorChain& chain, const WorkUnit& unit,
                         std::span<std::byte> merged, FingerprintSum sum) {
  const KeyLayout& layout = chain.layout();
  // A tile of a set operation must know how many records of its first group precede it. Only
  // records of one size can be searched for that.
  const bool is_one_tile = chain.set_operation() && chain.output_bytes() == 0;
  const auto places = parts_of(layout, merged, is_one_tile ? merged.size() : task_bytes);
  UnitOperators operators(chain, unit, sum);
  operators.begin(places, true);
  if (chain.set_operation())
    for (std::size_t tile = 0; tile < places.size(); ++tile) {
      for (std::size_t i = 0; i < unit.segments.size(); ++i) {
        const Segment& segment = unit.segments[i];
        operators.add_segment(
            tile, i, segment.chunk->records() + segment.first * layout.record_bytes, segment.count);
      }
      if (tile != 0 && !places[tile].empty())
        operators.tile(tile).skip(equal_before(layout, merged.data(), places[tile].data()));
    }
  tbb::this_task_arena::isolate([&] {
    parallel_for(0, places.size(), [&](std::size_t tile) {
      // A batch is indexed before operators overwrite it.
      RowReader batch(layout, places[tile]);
      while (batch.next())
        operators.tile(tile).take(const_cast<std::byte*>(batch.rows()), batch.count());
      operators.tile(tile).finish();
    });
  });
  return operators.join();
}

}  // namespace corank
