// A group that crosses the border of a batch, a tile or a unit: what remains of its records so far,
// and the state that decides on those that follow. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "format/rows.hpp"
#include "ops/group_reducer.hpp"
#include "ops/operator_chain.hpp"
#include "ops/set_operation.hpp"

namespace corank {

// Records that the resolution of groups left out.
struct ResolvedCounts {
  std::uint64_t replaced = 0;  // records of a group that its resulting record replaces
  std::uint64_t deleted = 0;   // records that a tombstone or --having dropped

  ResolvedCounts& operator+=(const ResolvedCounts& other) {
    replaced += other.replaced;
    deleted += other.deleted;
    return *this;
  }
};

class Carry {
 public:
  bool empty() const { return row_.empty(); }
  // Returns the row that remains of the group. For set operations, only its key is meaningful.
  const std::byte* row() const { return row_.row(); }
  std::span<const std::byte> record() const { return row_.record(); }

  // Begins a new group with `count` contiguous rows, at least one.
  void start(const OperatorChain& chain, const std::byte* rows, std::uint64_t count);
  // Begins a new group with a record that others were reduced to.
  void start(const OperatorChain& chain, std::span<const std::byte> record);
  // Adds rows, or a part of the same group, that follow those already in the group.
  void add(const OperatorChain& chain, const std::byte* rows, std::uint64_t count);
  void add(const OperatorChain& chain, Carry next);
  // Returns the group's resulting row, and adds its other records to `counts`. Throws Error if a
  // sum does not fit its field.
  const std::byte* resolve(const OperatorChain& chain, ResolvedCounts& counts);

  // Emits the resulting record, unless it is dropped. Returns its fingerprint, 0 without a `sum`.
  std::uint64_t emit(const OperatorChain& chain, TileMemory& to, FingerprintSum sum,
                     ResolvedCounts& counts);

  SetGroup set;  // of set operations only: decides on the group's next records

 private:
  void start_sums(const OperatorChain& chain);

  std::uint64_t count_ = 0;  // records
  RowCopy row_;
  GroupSums sums_;
};

}  // namespace corank
