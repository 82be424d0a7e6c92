// A lane that merges units of fixed-size records; see DeviceBackend.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "corank/device/merge.cuh"
#include "kernels/backend/record_lane.cuh"
#include "kernels/ops/device_operators.cuh"

namespace corank {

template <int W>
class MergeLane : RecordLane<W> {
  using Base = RecordLane<W>;
  using Base::layout_, Base::out_, Base::staging_, Base::stream_, Base::unit_bytes_,
      Base::unit_records_, Base::verify_;

 public:
  MergeLane(const DeviceOrder& order, const BackendConfig& config) : Base(order, config, 0) {
    // Reserves memory for as many runs as need two merge passes; more runs need little more.
    constexpr std::uint64_t runs = device::detail::max_fan_in + 1;
    for (std::uint64_t run = 0; run < runs; ++run) append_run(0, unit_records_ / runs);
    reserve_out();
    if (config.operators && fits_device(*config.operators))
      operators_.emplace(*config.operators, layout_, unit_records_);
  }

  Found merge(const WorkUnit& unit, std::byte* output) {
    this->begin(unit);
    find_runs(unit);
    reserve_out();
    Found found = this->run([&] { enqueue(unit, output); });
    found.last_offset = unit.bytes - layout_.record_bytes;
    return found;
  }

  std::optional<TileOutput> operate(std::byte* output) {
    std::optional<TileOutput> operated;
    if (!operators_) return operated;
    wait_for(stream_.get(), this->merged_.get(), [&] {
      operated =
          operators_->download(output, verify_, &staging_.found()->out_of_order, stream_.get());
      if (!operated) this->download(output, unit_bytes_);
    });
    return operated;
  }

 private:
  void append_run(std::uint64_t first, std::uint64_t records) {
    const LocatedOutput<W> run = this->located(0, first);
    runs_.push_back({run.keys, run.values, records});
  }

  void find_runs(const WorkUnit& unit) {
    runs_.clear();
    std::uint64_t records = 0;
    for (std::size_t s = 0; s < unit.segments.size(); ++s) {
      const Segment& segment = unit.segments[s];
      if (s == 0 || segment.chunk->run != unit.segments[s - 1].chunk->run) append_run(records, 0);
      runs_.back().count += segment.count;
      records += segment.count;
    }
  }

  cudaError_t merge_located(void* temporary, std::size_t& bytes,
                            const std::uint64_t* out_of_order) {
    return device::merge_k(temporary, bytes, std::span<const LocatedSequence<W>>(runs_),
                           this->located(1), stream_.get(),
                           Merged<W>::less(this->less(out_of_order)));
  }

  void reserve_out() {
    std::size_t bytes = 0;
    CORANK_CUDA(merge_located(nullptr, bytes, nullptr));
    out_.reserve(std::max<std::size_t>(bytes, this->unit_capacity_bytes()));
  }

  void enqueue(const WorkUnit& unit, std::byte* output) {
    const std::uint64_t records = unit.records, segments = unit.segments.size();
    cudaStream_t stream = stream_.get();
    staging_.upload(true, stream);
    Found* const found = staging_.found();
    this->verify_input(unit);
    encode_records<W><<<divide_up(records, block_threads), block_threads, 0, stream>>>(
        staging_.segments(), segments, records, this->less(nullptr), this->located(0),
        &found->out_of_order);
    check_launch("encode_records");
    CORANK_CUDA(merge_located(out_.get(), out_.capacity(), &found->out_of_order));
    this->gather_and_verify(records, this->located(1));
    if (operators_)
      operators_->enqueue(out_.get(), records, staging_.scratch(), stream);
    else
      this->download(output, unit.bytes);
  }

  std::vector<LocatedSequence<W>> runs_;           // of the unit
  std::optional<DeviceOperatorRunner> operators_;  // absent if the device applies no chain
};

}  // namespace corank
