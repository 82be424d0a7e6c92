// Joins the groups that cross tiles and units, and applies the limit: units in their order, by one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/rows.hpp"
#include "ops/carry.hpp"
#include "ops/merged_unit.hpp"
#include "ops/operator_chain.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

class BoundaryMerge {
 public:
  // Emits at most `limit` records. Without `sum` there are no fingerprints.
  BoundaryMerge(const OperatorChain& chain, std::uint64_t limit, FingerprintSum sum)
      : chain_(chain), limit_(limit), sum_(sum) {}

  // Takes the next unit, in order, and sets its pieces to the records to emit. Throws the unit's
  // failure, if any.
  void join(MergedUnit& unit);
  // Emits the last group, which is still open.
  void finish(MergedUnit& unit);

  std::uint64_t records() const { return records_; }  // emitted so far
  const ResolvedCounts& resolved() const { return resolved_; }
  // Returns hash(read) - hash(emitted): the fingerprint of all records that were read less that of
  // the emitted ones. Meaningless once the limit has cut records off.
  std::uint64_t left_out() const { return left_out_; }
  // Returns whether no more records are emitted.
  bool done() const { return ended_ || records_ == limit_; }

 private:
  void check_order(const std::byte* before, const std::byte* after) const;
  void join_ends(TileOutput& tile);
  bool continues(const TileOutput& tile) const;
  void join_group(TileOutput& tile, TileMemory& closed);
  void join_set(TileOutput& tile, MergedUnit& unit);
  void close_group(TileMemory& closed);
  void emit_leading(const LeadingRecords& leading, const SetGroup::Range& range, MergedUnit& unit);
  void emit(TileOutput& tile, TileMemory& closed, const std::byte* free, MergedUnit& unit);
  void emit_apart(TileMemory& records, MergedUnit& unit);
  void put(std::span<const std::byte> records, std::uint64_t count, MergedUnit& unit);

  const OperatorChain& chain_;
  std::uint64_t limit_;
  FingerprintSum sum_;
  Carry open_;    // the open group
  RowCopy last_;  // last merged row
  std::uint64_t records_ = 0;
  ResolvedCounts resolved_;
  std::uint64_t left_out_ = 0;
  bool ended_ = false;
};

}  // namespace corank
