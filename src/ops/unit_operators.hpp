// Joins what the tiles of a unit, and then the units, have come to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/work_unit.hpp"
#include "ops/merged_unit.hpp"
#include "ops/operator_chain.hpp"
#include "ops/tile_operators.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// Shapes a unit, whose tiles may be shaped by any threads.
class UnitOperators {
 public:
  // `sum` as in TileOperators.
  UnitOperators(const OperatorChain& shape, const WorkUnit& unit, FingerprintSum sum)
      : operators_(shape), unit_(unit), sum_(sum) {}

  // Tiles are merged to these places. Must precede all else.
  void begin(std::span<std::byte* const> places);
  TileOperators& tile(std::size_t index) { return tiles_[index]; }
  // The tile is merged from `count` records, more than 0, from `records` on in the unit's segment,
  // and others of later segments.
  void add_segment(std::size_t tile, std::size_t segment, const std::byte* records,
                   std::uint64_t count);

  // What the tiles, all of them finished, make together. Throws Corrupted if their records were out
  // of order.
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

// What goes out of shaped units in the end: joins the groups that reach from one unit into the
// next, and counts what goes out.
class BoundaryMerge {
 public:
  // At most `limit` records go out. Without `sum` there is no fingerprint.
  BoundaryMerge(const OperatorChain& shape, std::uint64_t limit, FingerprintSum sum)
      : operators_(shape), left_(limit), sum_(sum) {}

  // The next unit in order: changes its pieces to what goes out; what belongs to none of them is
  // put in `edge`, whose memory they use as well. Throws what the shaping met.
  void join(MergedUnit& unit, std::vector<std::byte>& edge);
  // What goes out after the last unit.
  void finish(MergedUnit& unit, std::vector<std::byte>& edge);

  // Of all that goes out, as it was when it was shaped; unless the limit cut it off.
  std::uint64_t fingerprint() const { return fingerprint_; }
  // Whether nothing goes out any more.
  bool done() const { return left_ == 0; }

 private:
  void put_group(std::vector<std::byte>& edge);
  void check_order(const std::byte* open, const std::byte* next) const;
  void add(std::span<const std::byte> outgoing);

  const OperatorChain& operators_;
  std::uint64_t left_;
  FingerprintSum sum_;
  std::uint64_t fingerprint_ = 0;
  Group open_;
  OpenSet open_set_;
};

// Shapes the unit, which was merged to `merged` as a whole, on the cores of the caller's arena.
MergedUnit apply_to_unit(const OperatorChain& shape, const WorkUnit& unit,
                         std::span<std::byte> merged, FingerprintSum sum);

}  // namespace corank
