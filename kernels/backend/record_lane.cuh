// The part of a lane that merges and sorts of fixed-size records have in common: records in the
// staging area, their located keys, the merge of sorted runs of these, and the gathering and
// verification of the result. `W` is the number of words of a key prefix. A failing device throws
// DeviceError.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "corank/device/merge.cuh"
#include "kernels/backend/device_constants.cuh"
#include "kernels/backend/unit_lane.cuh"
#include "kernels/formats/unit_kernels.cuh"

namespace corank {

template <int W>
class RecordLane : protected UnitLane {
 protected:
  // A part of a unit; merges have one. Its staged segments count their records from its first.
  struct Piece {
    std::uint64_t first, records;         // of the unit
    std::size_t first_segment, segments;  // of those staged
  };

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

  // Begins a unit: tells the staging area what to upload, in pieces of `piece_records` records.
  void begin(const WorkUnit& unit, std::uint64_t piece_records) {
    assert(unit.records <= unit_records_);
    unit_bytes_ = unit.bytes;
    reserve_staging(unit.segments.size() + (unit.records - 1) / piece_records);
    staging_.begin_unit();
    pieces_.clear();
    std::uint64_t records = 0;
    std::size_t staged = 0;
    for (const Segment& segment : unit.segments)
      for (std::uint64_t at = 0; at < segment.count; ++staged) {
        if (records == pieces_.size() * piece_records) pieces_.push_back({records, 0, staged, 0});
        Piece& piece = pieces_.back();
        const std::uint64_t count = std::min(segment.count - at, piece_records - piece.records);
        staging_.add(segment.chunk->records() + (segment.first + at) * layout_.record_bytes,
                     count * layout_.record_bytes, piece.records);
        piece.records += count;
        ++piece.segments;
        records += count;
        at += count;
      }
    assert(records == unit.records);
  }

  // Fingerprints the input unless the host did. Must precede everything else that reads it.
  void verify_input(const WorkUnit& unit, const Piece& piece) {
    if (!verify_ || unit.segments.front().chunk->fingerprint) return;
    const unsigned lanes = verify_lanes(layout_.record_bytes);
    verify_staged<<<verify_blocks(piece.records, lanes), block_threads, 0, stream_.get()>>>(
        staging_.segments() + piece.first_segment, piece.segments, piece.records,
        layout_.record_bytes, lanes, staging_.area(), staging_.found());
    check_launch("verify_staged");
  }

  // Appends a run to those that merge_located() merges: located keys of side 0, from `first` on.
  void append_run(std::uint64_t first, std::uint64_t records) {
    const LocatedOutput<W> run = located(0, first);
    runs_.push_back({run.keys, run.values, records});
  }
  // Merges the runs to side 1. As in CUB, a call without temporary memory only sets `bytes` to what
  // is needed.
  cudaError_t merge_located(void* temporary, std::size_t& bytes,
                            const std::uint64_t* out_of_order) {
    return device::merge_k(temporary, bytes, std::span<const LocatedSequence<W>>(runs_), located(1),
                           stream_.get(), Merged<W>::less(less(out_of_order)));
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
  std::vector<Piece> pieces_;             // of the unit
  std::vector<LocatedSequence<W>> runs_;  // of the unit

 private:
  DeviceArray<typename Merged<W>::Key> keys_[2];
  DeviceArray<std::uint32_t> locators_[2];
};

}  // namespace corank
