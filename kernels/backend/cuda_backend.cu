#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "corank/device/merge.cuh"
#include "kernels/backend/cuda_backend.hpp"
#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/lane_pool.cuh"
#include "kernels/backend/unit_lane.cuh"
#include "kernels/formats/sort_kernels.cuh"
#include "kernels/formats/text_backend.hpp"
#include "kernels/formats/unit_kernels.cuh"
#include "kernels/ops/device_operators.cuh"

namespace corank {
namespace {

// Returns the shift of locators that reach as far as these records allow.
unsigned sorting_shift(std::uint32_t record_bytes) {
  return static_cast<unsigned>(std::countr_zero(record_bytes | sizeof(uint4)));
}

// A lane for fixed-size records.
template <int W>
class RecordLane : UnitLane {
 public:
  RecordLane(const DeviceOrder& order, const BackendConfig& config)
      : UnitLane(config.verify, config.sorts ? sorting_shift(order.layout.record_bytes) : 0),
        layout_(order.layout),
        sorts_(config.sorts),
        unit_records_(config.unit_records) {
    reserve_staging(std::min<std::uint64_t>(unit_records_, 4096));
    for (int side = 0; side < 2; ++side) {
      keys_[side] = device_array<typename Merged<W>::Key>(unit_records_);
      if constexpr (device::has_values<typename Merged<W>::Value>)
        locators_[side] = device_array<std::uint32_t>(unit_records_);
    }
    if (sorts_) {
      out_.reserve(unit_records_ * layout_.record_bytes);
      return;
    }
    // Reserves memory for as many runs as need two merge passes; more runs need little more.
    constexpr std::uint64_t runs = device::detail::max_fan_in + 1;
    for (std::uint64_t run = 0; run < runs; ++run) append_run(0, unit_records_ / runs);
    reserve_out();
    if (config.operators && fits_device(*config.operators))
      operators_.emplace(*config.operators, layout_, unit_records_);
  }

  Found merge(const WorkUnit& unit, std::byte* output) {
    assert(!sorts_);
    reserve_staging(unit.segments.size());
    describe(unit);
    reserve_out();
    unit_bytes_ = unit.bytes;
    Found found = run([&] { enqueue(unit, output); });
    found.last_offset = unit.bytes - layout_.record_bytes;
    return found;
  }

  // Sorts the records of the unit, which are in any order, for download_sorted().
  Found sort(const WorkUnit& unit) {
    assert(sorts_ && unit.records <= unit_records_);
    unit_bytes_ = unit.bytes;
    reserve_staging(unit.segments.size());
    describe(unit);
    const Found encoded = run([&] {
      staging_.upload(false, stream_.get());  // chunks are few and large, and may not be pinned
      verify_input(unit);
      encode_unsorted<W>
          <<<divide_up(unit.records, block_threads), block_threads, 0, stream_.get()>>>(
              staging_.segments(), unit.segments.size(), unit.records, less(nullptr), located(0),
              staging_.found());
      check_launch("encode_unsorted");
    });
    std::array sides{located(0), located(1)};
    std::size_t bytes = 0;
    const auto sort_keys = [&](void* temporary) {
      CORANK_CUDA(sort_located(temporary, bytes, sides, unit.records, less(nullptr),
                               encoded.differing, stream_.get()));
    };
    sort_keys(nullptr);
    out_.reserve(std::max<std::size_t>(bytes, unit.bytes));
    bytes = out_.capacity();
    return run([&] {
      sort_keys(out_.get());
      gather_and_verify(unit.records, sides[0]);
    });
  }

  void download_sorted(std::byte* output) {
    wait_for(stream_.get(), merged_.get(), [&] { download(output, unit_bytes_); });
  }

  std::optional<TileOutput> operate(std::byte* output) {
    std::optional<TileOutput> operated;
    if (!operators_) return operated;
    wait_for(stream_.get(), merged_.get(), [&] {
      operated =
          operators_->download(output, verify_, &staging_.found()->out_of_order, stream_.get());
      if (!operated) download(output, unit_bytes_);
    });
    return operated;
  }

 private:
  LocatedOutput<W> located(int side, std::uint64_t first = 0) const {
    LocatedOutput<W> result{keys_[side].get() + first, nullptr};
    if constexpr (device::has_values<typename Merged<W>::Value>)
      result.values = locators_[side].get() + first;
    return result;
  }
  LocatedLess<W> less(const std::uint64_t* out_of_order) const {
    return {layout_, staging_.area(), out_of_order};
  }
  void append_run(std::uint64_t first, std::uint64_t records) {
    const LocatedOutput<W> run = located(0, first);
    runs_.push_back({run.keys, run.values, records});
  }

  cudaError_t merge_located(void* temporary, std::size_t& bytes,
                            const std::uint64_t* out_of_order) {
    return device::merge_k(temporary, bytes, std::span<const LocatedSequence<W>>(runs_), located(1),
                           stream_.get(), Merged<W>::less(less(out_of_order)));
  }

  void reserve_staging(std::uint64_t segments) {
    staging_.reserve(segments, unit_records_ * layout_.record_bytes);
  }
  void reserve_out() {
    std::size_t bytes = 0;
    CORANK_CUDA(merge_located(nullptr, bytes, nullptr));
    out_.reserve(std::max<std::size_t>(bytes, unit_records_ * layout_.record_bytes));
  }

  void describe(const WorkUnit& unit) {
    staging_.begin_unit();
    runs_.clear();
    std::uint64_t records = 0;
    for (std::size_t s = 0; s < unit.segments.size(); ++s) {
      const Segment& segment = unit.segments[s];
      staging_.add(segment.chunk->records() + segment.first * layout_.record_bytes,
                   segment.count * layout_.record_bytes, records);
      if (s == 0 || segment.chunk->run != unit.segments[s - 1].chunk->run) append_run(records, 0);
      runs_.back().count += segment.count;
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

  void enqueue(const WorkUnit& unit, std::byte* output) {
    const std::uint64_t records = unit.records, segments = unit.segments.size();
    cudaStream_t stream = stream_.get();
    staging_.upload(true, stream);
    Found* const found = staging_.found();
    verify_input(unit);
    encode_records<W><<<divide_up(records, block_threads), block_threads, 0, stream>>>(
        staging_.segments(), segments, records, less(nullptr), located(0), &found->out_of_order);
    check_launch("encode_records");
    CORANK_CUDA(merge_located(out_.get(), out_.capacity(), &found->out_of_order));
    gather_and_verify(records, located(1));
    if (operators_)
      operators_->enqueue(out_.get(), records, staging_.scratch(), stream);
    else
      download(output, unit.bytes);
  }

  const KeyLayout layout_;
  const bool sorts_;  // units, instead of merging them
  const std::uint64_t unit_records_;
  std::vector<LocatedSequence<W>> runs_;           // of the unit
  std::optional<DeviceOperatorRunner> operators_;  // absent if the device applies no chain
  // Located keys before and after the merge.
  DeviceArray<typename Merged<W>::Key> keys_[2];
  DeviceArray<std::uint32_t> locators_[2];
};

}  // namespace

bool built_with_cuda() {
  return true;
}

int count_cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

CudaDevice find_cuda_device(int device) {
  (void)cudaGetLastError();  // clears the error of an earlier call on this thread
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && (device < 0 || device >= count))
    return {false, "no CUDA device " + std::to_string(device) + ": this machine has " +
                       std::to_string(count) + ", counted from 0"};
  cudaDeviceProp properties{};
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, device);
  if (status == cudaSuccess) status = cudaSetDevice(device);
  cudaFuncAttributes kernel{};  // fails if this build has no code for the device
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&kernel, stage);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    // The runtime also calls a driver that is not there too old.
    if (status == cudaErrorInsufficientDriver && !std::filesystem::exists("/proc/driver/nvidia"))
      return {false, "no NVIDIA driver found"};
    return {false, std::string("no usable CUDA device: ") + cudaGetErrorString(status)};
  }
  std::string description = std::string(properties.name) + ", " +
                            std::to_string(properties.totalGlobalMem >> 30) + " GiB";
  if (!properties.canUseHostPointerForRegisteredMem)
    return {false, description + ", cannot read pinned memory by the host's addresses"};
  return {true, std::move(description)};
}

std::uint64_t max_sorted_at_once(int device, const KeyEncoding& encoding) {
  std::size_t free = 0, all = 0;
  if (encoding.layout().text || cudaSetDevice(device) != cudaSuccess ||
      cudaMemGetInfo(&free, &all) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  // Records before and after, and as many located keys; a radix sort needs little more.
  const std::uint64_t key_bytes =
      (std::bit_ceil(static_cast<unsigned>(encoding.prefix_words())) + 1) * sizeof(std::uint64_t);
  const std::uint64_t held = free / 8 * 7 / (2 * (encoding.record_bytes() + key_bytes));
  // A MiB is more than segments lose by alignment.
  const std::uint64_t reached_bytes =
      (std::uint64_t{4} << 30 << sorting_shift(encoding.record_bytes())) - (1 << 20);
  const std::uint64_t reached = reached_bytes / encoding.record_bytes();
  return std::min({held, reached, std::uint64_t{std::numeric_limits<std::int32_t>::max()}});
}

std::unique_ptr<Backend> make_cuda_backend(int device, const BackendConfig& config) {
  const CudaDevice found = find_cuda_device(device);
  if (!found.usable) throw DeviceError(found.description, false);
  if (config.encoding->layout().text) return make_text_backend(device, found.description, config);
  switch (config.encoding->prefix_words()) {
    case 1:
      return std::make_unique<DeviceBackend<RecordLane<1>>>(device, found.description, config);
    case 2:
      return std::make_unique<DeviceBackend<RecordLane<2>>>(device, found.description, config);
    default:
      return std::make_unique<DeviceBackend<RecordLane<4>>>(device, found.description, config);
  }
}

}  // namespace corank
