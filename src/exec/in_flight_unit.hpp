// The units that are in the pipeline at a time: a fixed set, reused.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/merged_unit.hpp"
#include "run/work_unit.hpp"
#include "util/buffer_pool.hpp"
#include "util/trace.hpp"

namespace corank {

struct InFlightUnit {
  unsigned number = 0;  // of this place in the set
  WorkUnit unit;
  std::shared_ptr<Buffer> buffer;  // null if the pieces lie where they were read
  MergedUnit merged;
  std::uint64_t offset = 0;    // of the pieces, in the output
  std::uint64_t sequence = 0;  // among the units that emit something
  TraceClock::time_point merged_at;
};

// Owns the units, because a cancelled TBB pipeline destroys nothing. Thread-safe.
class InFlightUnits {
 public:
  explicit InFlightUnits(unsigned count) : units_(count) {
    for (unsigned number = 0; InFlightUnit & unit : units_) {
      unit.number = number++;
      free_.push_back(&unit);
    }
  }

  // At most `count` units are taken at a time: the pipeline admits no more.
  InFlightUnit* take() {
    const std::lock_guard lock(mutex_);
    assert(!free_.empty());
    InFlightUnit* const unit = free_.back();
    free_.pop_back();
    return unit;
  }

  // Lets go of the unit's chunks and its buffer.
  void give_back(InFlightUnit* unit) {
    assert(unit == &units_[unit->number]);
    unit->unit = WorkUnit();
    unit->buffer.reset();
    unit->merged = MergedUnit();
    const std::lock_guard lock(mutex_);
    assert(free_.size() < units_.size());
    free_.push_back(unit);
  }

 private:
  std::vector<InFlightUnit> units_;
  std::mutex mutex_;
  std::vector<InFlightUnit*> free_;
};

}  // namespace corank
