// A lane that merges units of fixed-size records; see DeviceBackend.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/backend/record_lane.cuh"
#include "kernels/ops/device_operators.cuh"

namespace corank {

template <int W>
class MergeLane : RecordLane<W> {
  using Base = RecordLane<W>;
  using Base::layout_, Base::out_, Base::runs_, Base::staging_, Base::stream_, Base::unit_bytes_,
      Base::unit_records_, Base::verify_;
  using typename Base::Piece;

 public:
  MergeLane(const DeviceOrder& order, const BackendConfig& config) : Base(order, config, 0) {
    // Reserves memory for as many runs as need two merge passes; more runs need little more.
    constexpr std::uint64_t runs = device::detail::max_fan_in + 1;
    for (std::uint64_t run = 0; run < runs; ++run) this->append_run(0, unit_records_ / runs);
    reserve_out();
    if (config.operators && fits_device(*config.operators))
      operators_.emplace(*config.operators, layout_, unit_records_);
  }

  Found merge(const WorkUnit& unit, std::byte* output) {
    this->begin(unit, unit.records);
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
  void find_runs(const WorkUnit& unit) {
    runs_.clear();
    std::uint64_t records = 0;
    for (std::size_t s = 0; s < unit.segments.size(); ++s) {
      const Segment& segment = unit.segments[s];
      if (s == 0 || segment.chunk->run != unit.segments[s - 1].chunk->run)
        this->append_run(records, 0);
      runs_.back().count += segment.count;
      records += segment.count;
    }
  }

  void reserve_out() {
    std::size_t bytes = 0;
    CORANK_CUDA(this->merge_located(nullptr, bytes, nullptr));
    out_.reserve(std::max<std::size_t>(bytes, this->unit_capacity_bytes()));
  }

  void enqueue(const WorkUnit& unit, std::byte* output) {
    const Piece& whole = this->pieces_.front();
    const std::uint64_t records = whole.records;
    cudaStream_t stream = stream_.get();
    staging_.upload(true, stream);
    Found* const found = staging_.found();
    this->verify_input(unit, whole);
    encode_records<W><<<divide_up(records, block_threads), block_threads, 0, stream>>>(
        staging_.segments(), whole.segments, records, this->less(nullptr), this->located(0),
        &found->out_of_order);
    check_launch("encode_records");
    CORANK_CUDA(this->merge_located(out_.get(), out_.capacity(), &found->out_of_order));
    this->gather_and_verify(records, this->located(1));
    if (operators_)
      operators_->enqueue(out_.get(), records, staging_.scratch(), stream);
    else
      this->download(output, unit.bytes);
  }

  std::optional<DeviceOperatorRunner> operators_;  // absent if the device applies no chain
};

}  // namespace corank
