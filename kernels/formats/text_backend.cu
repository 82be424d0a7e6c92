#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "corank/device/merge.cuh"
#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/lane_pool.cuh"
#include "kernels/backend/staging.cuh"
#include "kernels/formats/text_backend.hpp"
#include "kernels/formats/text_kernels.cuh"
#include "kernels/ops/device_text_operators.cuh"

namespace corank {
namespace {

// The order of the records, its columns on the device, and the host's layout of the keys.
struct TextOrder {
  explicit TextOrder(const KeyEncoding& encoding) : host(encoding.layout()), layout(*host.text) {
    columns = device_array<TextColumn>(layout.columns_count);
    CORANK_CUDA(cudaMemcpy(columns.get(), layout.columns, layout.columns_count * sizeof(TextColumn),
                           cudaMemcpyHostToDevice));
    layout.columns = columns.get();
  }
  KeyLayout host;
  DeviceArray<TextColumn> columns;
  TextLayout layout;  // for the device
};

// A lane for variable-length records: the stream, and the memory on both sides, of one in-flight
// unit.
class TextLane {
 public:
  using Order = TextOrder;

  TextLane(const TextOrder& order, const BackendConfig& config)
      : order_(order),
        look_(config.look),
        stream_(make_stream()),
        merged_(make_event(cudaEventBlockingSync | cudaEventDisableTiming)),
        found_(pinned_array<Found>(1)) {
    // Reserves memory for as many runs as need two merge passes; more runs need little more.
    constexpr std::uint64_t runs = device::detail::max_fan_in + 1;
    if (config.operators && DeviceTextOperators::fits(*config.operators))
      operators_.emplace(*config.operators);
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
    wait_for(stream_.get(), merged_.get(), [&] { enqueue(unit, pinned, output); });
    return found_[0];
  }

  std::optional<TileOutput> operate(std::byte* output) {
    std::optional<TileOutput> operated;
    if (!operators_) return operated;
    operated = operators_->download(less(true), unit_bytes_, staging_.staged_bytes(), output, look_,
                                    stream_.get(), merged_.get());
    if (!operated) wait_for(stream_.get(), merged_.get(), [&] { download(output); });
    return operated;
  }

 private:
  TextLess less(bool guarded) const {
    return {order_.layout, staging_.bytes(), guarded ? &staging_.found()->out_of_order : nullptr};
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
    if (records <= records_capacity_) return;
    records_capacity_ = 0;
    placed_.reset();
    sorted_.reset();
    ends_.reset();
    placed_ = device_array<PrefixRef>(records);
    sorted_ = device_array<PrefixRef>(records);
    ends_ = device_array<std::uint64_t>(records);
    records_capacity_ = records;
  }
  // The output buffer doubles as temporary storage until the gather.
  void reserve_out(std::uint64_t unit_bytes, std::uint64_t records) {
    if (operators_) operators_->reserve(records, unit_bytes);
    std::size_t for_merge = 0, for_ends = 0;
    CORANK_CUDA(merge_entries(nullptr, for_merge));
    CORANK_CUDA(find_ends(nullptr, for_ends, records));
    const std::size_t bytes =
        std::max({for_merge, for_ends, std::size_t{divide_up(unit_bytes, sizeof(uint4))} * 16});
    if (bytes <= out_bytes_) return;
    out_.reset();
    out_bytes_ = 0;
    out_ = device_array<std::byte>(bytes);
    out_bytes_ = bytes;
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
    CORANK_CUDA(merge_entries(out_.get(), out_bytes_));
    CORANK_CUDA(find_ends(out_.get(), out_bytes_, records));
    gather_texts(less(true), sorted_.get(), ends_.get(), records, unit.bytes, out_.get(), stream);
    if (look_) {
      const unsigned lanes = look_lanes(unit.bytes / records);
      look_at_text<<<look_blocks(records, lanes), block_threads, 0, stream>>>(
          out_.get(), ends_.get(), records, order_.layout, lanes, found);
      check_launch("look_at_text");
    }
    if (operators_)
      operators_->enqueue(less(true), sorted_.get(), records, placed_.get(), ends_.get(), stream);
    else
      download(output);
    CORANK_CUDA(
        cudaMemcpyAsync(found_.get(), found, sizeof(Found), cudaMemcpyDeviceToHost, stream));
  }

  void download(std::byte* output) {
    CORANK_CUDA(
        cudaMemcpyAsync(output, out_.get(), unit_bytes_, cudaMemcpyDeviceToHost, stream_.get()));
  }

  const TextOrder& order_;
  bool look_;
  std::vector<device::Sequence<PrefixRef>> runs_;  // of the unit

  Stream stream_;
  Event merged_;
  PinnedArray<Found> found_;
  Staging staging_;
  std::uint64_t records_capacity_ = 0;
  DeviceArray<PrefixRef> placed_, sorted_;  // prefix references before and after the merge
  DeviceArray<std::uint64_t> ends_;         // ends of the merged records
  std::size_t out_bytes_ = 0;
  DeviceArray<std::byte> out_;
  std::uint64_t unit_bytes_ = 0;
  std::optional<DeviceTextOperatorRunner> operators_;  // absent if the device applies no chain
};

}  // namespace

std::unique_ptr<Backend> make_text_backend(int device, std::string description,
                                           const BackendConfig& config) {
  return std::make_unique<DeviceBackend<TextLane>>(device, std::move(description), config);
}

}  // namespace corank
