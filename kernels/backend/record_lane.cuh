// The part of a lane that merges and sorts of fixed-size records have in common: records in the
// staging area, their located keys, and the gathering and verification of the result. `W` is the
// number of words of a key prefix. A failing device throws DeviceError.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "backend/backend.hpp"
#include "kernels/backend/device_constants.cuh"
#include "kernels/backend/unit_lane.cuh"
#include "kernels/formats/unit_kernels.cuh"

namespace corank {

template <int W>
class RecordLane : protected UnitLane {
 protected:
  // `locator_shift`: see Staging.
  RecordLane(const DeviceOrder& order, const BackendConfig& config, unsigned locator_shift)
      : UnitLane(config.verify, locator_shift),
        layout_(order.layout),
        unit_records_(config.unit_records) {
    reserve_staging(std::min<std::uint64_t>(unit_records_, 4096));
    for (int side = 0; side < 2; ++side) {
      keys_[side] = device_array<typename Merged<W>::Key>(unit_records_);
      if constexpr (device::has_values<typename Merged<W>::Value>)
        locators_[side] = device_array<std::uint32_t>(unit_records_);
    }
  }

  // Returns memory for the unit's located keys, from record `first` on. There are two such sides.
  LocatedOutput<W> located(int side, std::uint64_t first = 0) const {
    LocatedOutput<W> result{keys_[side].get() + first, nullptr};
    if constexpr (device::has_values<typename Merged<W>::Value>)
      result.values = locators_[side].get() + first;
    return result;
  }
  LocatedLess<W> less(const std::uint64_t* out_of_order) const {
    return {layout_, staging_.area(), out_of_order};
  }
  std::uint64_t unit_capacity_bytes() const { return unit_records_ * layout_.record_bytes; }

  void reserve_staging(std::uint64_t segments) {
    staging_.reserve(segments, unit_capacity_bytes());
  }

  // Begins a unit: tells the staging area what to upload.
  void begin(const WorkUnit& unit) {
    assert(unit.records <= unit_records_);
    unit_bytes_ = unit.bytes;
    reserve_staging(unit.segments.size());
    staging_.begin_unit();
    std::uint64_t records = 0;
    for (const Segment& segment : unit.segments) {
      staging_.add(segment.chunk->records() + segment.first * layout_.record_bytes,
                   segment.count * layout_.record_bytes, records);
      records += segment.count;
    }
  }

  // Fingerprints the input unless the host did. Must precede everything else that reads it.
  void verify_input(const WorkUnit& unit) {
    if (!verify_ || unit.segments.front().chunk->fingerprint) return;
    const unsigned lanes = verify_lanes(layout_.record_bytes);
    verify_staged<<<verify_blocks(unit.records, lanes), block_threads, 0, stream_.get()>>>(
        staging_.segments(), unit.segments.size(), unit.records, layout_.record_bytes, lanes,
        staging_.area(), staging_.found());
    check_launch("verify_staged");
  }

  // Copies the records to out_, in the order of their located keys.
  void gather_and_verify(std::uint64_t records, const LocatedOutput<W>& from) {
    Found* const found = staging_.found();
    launch_gather<W>(staging_.area(), from, records, layout_.record_bytes, out_.get(),
                     &found->out_of_order, stream_.get());
    check_launch("gather");
    if (!verify_) return;
    const unsigned lanes = verify_lanes(layout_.record_bytes);
    verify_merged<W><<<verify_blocks(records, lanes), block_threads, 0, stream_.get()>>>(
        out_.get(), records, layout_, lanes, found);
    check_launch("verify_merged");
  }

  const KeyLayout layout_;
  const std::uint64_t unit_records_;

 private:
  DeviceArray<typename Merged<W>::Key> keys_[2];
  DeviceArray<std::uint32_t> locators_[2];
};

}  // namespace corank
