// Applies an operator chain to units of fixed-size records. `UnitOperators` collects the tiles of a
// unit, which any threads process. `BoundaryMerge` joins units in their order, by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/rows.hpp"
#include "format/work_unit.hpp"
#include "ops/merged_unit.hpp"
#include "ops/operator_chain.hpp"
#include "ops/tile_operators.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// Applies the chain to a unit, whose tiles may be processed by any threads.
class UnitOperators {
 public:
  // With `sum` the records' order is checked and their fingerprint computed.
  UnitOperators(const OperatorChain& shape, const WorkUnit& unit, FingerprintSum sum)
      : operators_(shape), unit_(unit), sum_(sum) {}

  // Sets where each tile is merged to. Must precede all other calls.
  void begin(std::span<std::byte* const> places);
  TileOperators& tile(std::size_t index) { return tiles_[index]; }
  // Tells that `count` > 0 records of the unit's segment are merged into the tile. Segments are
  // added in order.
  void add_segment(std::size_t tile, std::size_t segment, const std::byte* records,
                   std::uint64_t count);

  // Returns the outputs of all tiles, which must be finished. Throws Corrupted if their records
  // were out of order.
  MergedUnit join();

 private:
  void join_groups(MergedUnit& unit);
  void join_sets(MergedUnit& unit);
  std::uint64_t sum_of(std::span<const std::byte> outgoing) const;

  const OperatorChain& operators_;
  const WorkUnit& unit_;
  FingerprintSum sum_;
  std::vector<TileOperators> tiles_;
};

// Boundary merge: joins groups that cross units, and applies the limit.
class BoundaryMerge {
 public:
  // Emits at most `limit` records. Without `sum` there is no fingerprint.
  BoundaryMerge(const OperatorChain& shape, std::uint64_t limit, FingerprintSum sum)
      : operators_(shape), remaining_(limit), sum_(sum) {}

  // Takes the next unit, in order, and sets its pieces to the records to emit. Records that are in
  // none of its pieces go to `edge`, which must live as long as the pieces. Throws the unit's
  // failure, if any.
  void join(MergedUnit& unit, std::vector<std::byte>& edge);
  // Emits the last group, which is still open.
  void finish(MergedUnit& unit, std::vector<std::byte>& edge);

  // Returns the fingerprint of all emitted records, taken as operators produced them. Meaningless
  // once the limit has cut records off.
  std::uint64_t fingerprint() const { return fingerprint_; }
  const ResolvedCounts& resolved() const { return resolved_; }
  // Returns whether no more records are emitted.
  bool done() const { return remaining_ == 0; }

 private:
  void put_group(std::vector<std::byte>& edge);
  void check_order(const std::byte* open, const std::byte* next) const;
  void add(std::span<const std::byte> outgoing);

  const OperatorChain& operators_;
  std::uint64_t remaining_;
  FingerprintSum sum_;
  std::uint64_t fingerprint_ = 0;
  ResolvedCounts resolved_;
  Group open_;
  OpenSet open_set_;
  RowCopy last_;  // last merged record
};

// Applies the chain to a unit that was merged to `merged` as a whole, on the caller's arena.
MergedUnit apply_to_unit(const OperatorChain& shape, const WorkUnit& unit,
                         std::span<std::byte> merged, FingerprintSum sum);

}  // namespace corank
