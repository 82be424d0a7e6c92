#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "corank/device/merge.cuh"
#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/lane_pool.cuh"
#include "kernels/backend/unit_lane.cuh"
#include "kernels/formats/text_backend.hpp"
#include "kernels/formats/text_kernels.cuh"
#include "kernels/ops/device_text_operators.cuh"

namespace corank {
namespace {

// A lane for variable-length records.
class TextLane : UnitLane {
 public:
  TextLane(const DeviceOrder& order, const BackendConfig& config)
      : UnitLane(config.verify), order_(order) {
    // Reserves memory for as many runs as need two merge passes; more runs need little more.
    constexpr std::uint64_t runs = device::detail::max_fan_in + 1;
    if (config.operators && fits_device(*config.operators)) operators_.emplace(*config.operators);
    reserve_records(config.unit_records);
    staging_.reserve(2 * runs, config.unit_bytes + config.unit_records * sizeof(PrefixRef));
    runs_.assign(runs, {placed_.get(), nullptr, config.unit_records / runs});
    reserve_out(config.unit_bytes, config.unit_records);
  }

  Found merge(const WorkUnit& unit, std::byte* output) {
    reserve_records(unit.records);
    staging_.reserve(2 * unit.segments.size(), unit.bytes + unit.records * sizeof(PrefixRef));
    const bool pinned = describe(unit);
    reserve_out(unit.bytes, unit.records);
    unit_bytes_ = unit.bytes;
    return run([&] { enqueue(unit, pinned, output); });
  }

  std::optional<TileOutput> operate(std::byte* output) {
    std::optional<TileOutput> operated;
    if (!operators_) return operated;
    operated = operators_->download(less(true), unit_bytes_, staging_.staged_bytes(), output,
                                    verify_, stream_.get(), merged_.get());
    if (!operated) wait_for(stream_.get(), merged_.get(), [&] { download(output, unit_bytes_); });
    return operated;
  }

 private:
  TextLess less(bool guarded) const {
    return {order_.text, staging_.bytes(), guarded ? &staging_.found()->out_of_order : nullptr};
  }
  cudaError_t merge_entries(void* temporary, std::size_t& bytes) {
    return device::merge_k(temporary, bytes, std::span<const device::Sequence<PrefixRef>>(runs_),
                           device::Output<PrefixRef>{sorted_.get(), nullptr}, stream_.get(),
                           less(true));
  }
  cudaError_t find_ends(void* temporary, std::size_t& bytes, std::uint64_t records) {
    return find_text_ends(temporary, bytes, {less(true), sorted_.get(), nullptr, {}}, ends_.get(),
                          records, stream_.get());
  }

  void reserve_records(std::uint64_t records) {
    placed_.reserve(records);
    sorted_.reserve(records);
    ends_.reserve(records);
  }
  void reserve_out(std::uint64_t unit_bytes, std::uint64_t records) {
    if (operators_) operators_->reserve(records, unit_bytes);
    std::size_t for_merge = 0, for_ends = 0;
    CORANK_CUDA(merge_entries(nullptr, for_merge));
    CORANK_CUDA(find_ends(nullptr, for_ends, records));
    out_.reserve(
        std::max({for_merge, for_ends, std::size_t{divide_up(unit_bytes, sizeof(uint4))} * 16}));
  }

  // Adds the unit's segments to the staging area: all records first, then all prefix references.
  // Returns whether they are in memory that the device can read, namely in their chunks' buffers.
  bool describe(const WorkUnit& unit) {
    staging_.begin_unit();
    runs_.clear();
    bool pinned = true;
    const auto add = [&](const Segment& segment, std::span<const std::byte> bytes,
                         std::uint64_t first_record) {
      const auto buffer = segment.chunk->buffer.bytes();
      pinned &= buffer.data() <= bytes.data() &&
                bytes.data() + bytes.size() <= buffer.data() + buffer.size();
      staging_.add(bytes.data(), bytes.size(), first_record);
    };
    std::uint64_t records = 0;
    for (std::size_t s = 0; s < unit.segments.size(); ++s) {
      const Segment& segment = unit.segments[s];
      add(segment, bytes_of(order_.host, *segment.chunk, segment.first, segment.count), records);
      if (s == 0 || segment.chunk->run != unit.segments[s - 1].chunk->run)
        runs_.push_back({placed_.get() + records, nullptr, 0});
      runs_.back().count += segment.count;
      records += segment.count;
    }
    records = 0;
    for (const Segment& segment : unit.segments) {
      add(segment,
          {segment.chunk->records() + segment.first * sizeof(PrefixRef),
           segment.count * sizeof(PrefixRef)},
          records);
      records += segment.count;
    }
    return pinned;
  }

  void enqueue(const WorkUnit& unit, bool pinned, std::byte* output) {
    const std::uint64_t records = unit.records, segments = unit.segments.size();
    cudaStream_t stream = stream_.get();
    staging_.upload(pinned, stream);
    Found* const found = staging_.found();
    place_entries<<<divide_up(records, block_threads), block_threads, 0, stream>>>(
        staging_.segments(), segments, records, less(false), placed_.get(), &found->out_of_order);
    check_launch("place_entries");
    CORANK_CUDA(merge_entries(out_.get(), out_.capacity()));
    CORANK_CUDA(find_ends(out_.get(), out_.capacity(), records));
    gather_texts(less(true), sorted_.get(), ends_.get(), records, unit.bytes, out_.get(), stream);
    if (verify_) {
      const unsigned lanes = verify_lanes(unit.bytes / records);
      verify_text<<<verify_blocks(records, lanes), block_threads, 0, stream>>>(
          out_.get(), ends_.get(), records, order_.text, lanes, found);
      check_launch("verify_text");
    }
    if (operators_)
      operators_->enqueue(less(true), sorted_.get(), records, placed_.get(), ends_.get(), stream);
    else
      download(output, unit.bytes);
  }

  const DeviceOrder& order_;
  std::vector<device::Sequence<PrefixRef>> runs_;  // of the unit
  GrowingArray<PrefixRef> placed_, sorted_;        // prefix references before and after the merge
  GrowingArray<std::uint64_t> ends_;               // ends of the merged records
  std::optional<DeviceTextOperatorRunner> operators_;  // absent if the device applies no chain
};

}  // namespace

std::unique_ptr<Backend> make_text_backend(int device, std::string description,
                                           const BackendConfig& config) {
  return std::make_unique<DeviceBackend<TextLane>>(device, std::move(description), config);
}

}  // namespace corank
