// Resolution of groups: which of the resulting records are dropped, and how many records are
// replaced or deleted.
#pragma once

#include <cstdint>
#include <optional>

#include "corank/query.hpp"

namespace corank {

struct ResolvedCounts {
  std::uint64_t replaced = 0;  // records of a group that its resulting record replaces
  std::uint64_t deleted = 0;   // records that a tombstone or --having dropped

  ResolvedCounts& operator+=(const ResolvedCounts& other) {
    replaced += other.replaced;
    deleted += other.deleted;
    return *this;
  }
};

// Returns the condition for dropping a record: it is the tombstone, or fails `having`. The
// condition has no steps if there is neither.
inline Condition dropped_by(const std::optional<ColumnValue>& tombstone, const Condition& having) {
  Condition dropped;
  if (tombstone) dropped.steps.push_back({ConditionOperation::equal, *tombstone});
  if (having.steps.empty()) return dropped;
  dropped.steps.insert(dropped.steps.end(), having.steps.begin(), having.steps.end());
  dropped.steps.push_back({ConditionOperation::negate, {}});
  if (tombstone) dropped.steps.push_back({ConditionOperation::either, {}});
  return dropped;
}

}  // namespace corank
