#include <algorithm>
#include <bit>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "corank/device/merge.cuh"
#include "cuda_backend.hpp"
#include "cuda_check.cuh"
#include "unit_kernels.cuh"

namespace corank {
namespace {

constexpr std::uint64_t vector_bytes = sizeof(uint4);

constexpr std::uint64_t divide_up(std::uint64_t n, std::uint64_t by) {
  return (n + by - 1) / by;
}

// What the kernels must know of a unit, in one block, so that one copy brings it to the device.
struct Description {
  Found* found;
  StagedSegment* segments;

  explicit Description(std::byte* block)
      : found(reinterpret_cast<Found*>(block)),
        segments(reinterpret_cast<StagedSegment*>(found + 1)) {}

  static std::uint64_t bytes(std::uint64_t segments_count) {
    return sizeof(Found) + segments_count * sizeof(StagedSegment);
  }
};

// The copy engine brings large segments up while another brings merged units down, each at the
// link's full rate. Small ones cost it more than they are worth: a kernel reads those.
constexpr std::uint64_t least_copied_segment_bytes = std::uint64_t{32} << 10;

// What one unit in flight occupies: a stream and memory on both sides.
template <int W>
class Lane {
 public:
  Lane(const KeyLayout& device_layout, std::uint64_t unit_records, bool look)
      : layout_(device_layout),
        unit_records_(unit_records),
        look_(look),
        stream_(make_stream()),
        merged_(make_event(cudaEventBlockingSync | cudaEventDisableTiming)),
        found_(pinned_array<Found>(1)) {
    reserve(std::min<std::uint64_t>(unit_records, 4096));
    for (int side = 0; side < 2; ++side) {
      keys_[side] = device_array<typename Merged<W>::Key>(unit_records);
      if constexpr (device::has_values<typename Merged<W>::Value>)
        locators_[side] = device_array<std::uint32_t>(unit_records);
    }
    // For as many runs as take two passes; more need little more.
    constexpr std::uint64_t runs = device::detail::max_fan_in + 1;
    for (std::uint64_t run = 0; run < runs; ++run) append_run(0, unit_records / runs);
    reserve_out();
  }

  Found merge(const WorkUnit& unit, std::byte* output) {
    reserve(unit.segments.size());
    const std::uint64_t vectors = describe(unit);
    reserve_out();
    try {
      enqueue(unit, vectors, output);
      CORANK_CUDA(cudaEventRecord(merged_.get(), stream_.get()));
      CORANK_CUDA(cudaEventSynchronize(merged_.get()));
    } catch (...) {
      // Whatever was enqueued still reads the chunks and writes the output.
      (void)cudaStreamSynchronize(stream_.get());
      throw;
    }
    return found_[0];
  }

 private:
  std::uint64_t unit_bytes() const { return unit_records_ * layout_.record_bytes; }
  std::uint64_t unit_vectors() const { return divide_up(unit_bytes(), vector_bytes); }

  LocatedOutput<W> located(int side, std::uint64_t first = 0) const {
    LocatedOutput<W> result{keys_[side].get() + first, nullptr};
    if constexpr (device::has_values<typename Merged<W>::Value>)
      result.values = locators_[side].get() + first;
    return result;
  }
  void append_run(std::uint64_t first, std::uint64_t records) {
    const LocatedOutput<W> run = located(0, first);
    runs_.push_back({run.keys, run.values, records});
  }

  cudaError_t merge_located(void* temporary, std::size_t& bytes, const std::uint64_t* disorder) {
    const LocatedLess<W> less{layout_, reinterpret_cast<const std::byte*>(staging_.get()),
                              disorder};
    return device::merge_k(temporary, bytes, std::span<const LocatedSequence<W>>(runs_), located(1),
                           stream_.get(), Merged<W>::less(less));
  }

  // The output's place is what the merge of the located keys has for temporary storage: the records
  // are gathered after it.
  void reserve_out() {
    std::size_t bytes = 0;
    CORANK_CUDA(merge_located(nullptr, bytes, nullptr));
    bytes = std::max(bytes, unit_vectors() * vector_bytes);
    if (bytes <= out_bytes_) return;
    out_.reset();
    out_bytes_ = 0;
    out_ = device_array<std::byte>(bytes);
    out_bytes_ = bytes;
  }

  void reserve(std::uint64_t segments) {
    if (segments <= segments_capacity_) return;
    segments = std::bit_ceil(segments);
    // A segment may begin and end within a vector.
    const std::uint64_t vectors = unit_vectors() + 2 * segments;
    if (vectors * vector_bytes > std::numeric_limits<std::uint32_t>::max())
      throw DeviceError(
          "a work unit of " + std::to_string(unit_bytes()) + " bytes in " +
              std::to_string(segments) +
              " segments exceeds the 4 GiB that a locator reaches; use a smaller --memory",
          true);
    segments_capacity_ = 0;
    staging_.reset();
    staging_ = device_array<uint4>(vectors);
    description_ = pinned_array<std::byte>(Description::bytes(segments));
    device_description_.reset();
    device_description_ = device_array<std::byte>(Description::bytes(segments));
    segments_capacity_ = segments;
  }

  // How many vectors the unit takes in the staging area.
  std::uint64_t describe(const WorkUnit& unit) {
    const Description host(description_.get());
    *host.found = {in_order, in_order, 0, 0};
    runs_.clear();
    std::uint64_t records = 0, vectors = 0;
    for (std::size_t s = 0; s < unit.segments.size(); ++s) {
      const Segment& segment = unit.segments[s];
      const auto address = reinterpret_cast<std::uintptr_t>(segment.chunk->records()) +
                           segment.first * layout_.record_bytes;
      const std::uint64_t skew = address % vector_bytes;
      host.segments[s] = {reinterpret_cast<const uint4*>(address - skew), records,
                          static_cast<std::uint32_t>(vectors),
                          static_cast<std::uint32_t>(vectors * vector_bytes + skew)};
      if (s == 0 || segment.chunk->run != unit.segments[s - 1].chunk->run) append_run(records, 0);
      runs_.back().count += segment.count;
      records += segment.count;
      vectors += divide_up(skew + segment.count * layout_.record_bytes, vector_bytes);
    }
    return vectors;
  }

  void copy_segments(const WorkUnit& unit) {
    const Description host(description_.get());
    sources_.clear();
    destinations_.clear();
    sizes_.clear();
    for (std::size_t s = 0; s < unit.segments.size(); ++s) {
      const Segment& segment = unit.segments[s];
      sources_.push_back(segment.chunk->records() + segment.first * layout_.record_bytes);
      destinations_.push_back(reinterpret_cast<std::byte*>(staging_.get()) +
                              host.segments[s].locator);
      sizes_.push_back(segment.count * layout_.record_bytes);
    }
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
    std::size_t first = 0;
    CORANK_CUDA(cudaMemcpyBatchAsync(destinations_.data(), sources_.data(), sizes_.data(),
                                     sizes_.size(), &attributes, &first, 1, stream_.get()));
  }

  void enqueue(const WorkUnit& unit, std::uint64_t vectors, std::byte* output) {
    const std::uint64_t records = unit.records, segments = unit.segments.size();
    const Description device(device_description_.get());
    const auto* staging = reinterpret_cast<const std::byte*>(staging_.get());
    cudaStream_t stream = stream_.get();

    CORANK_CUDA(cudaMemcpyAsync(device_description_.get(), description_.get(),
                                Description::bytes(segments), cudaMemcpyHostToDevice, stream));
    if (records * layout_.record_bytes / segments >= least_copied_segment_bytes) {
      copy_segments(unit);
    } else {
      stage<<<stage_blocks, block_threads, 0, stream>>>(device.segments, segments, vectors,
                                                        staging_.get());
      check_launch("stage");
    }
    const unsigned lanes = look_lanes(layout_.record_bytes);
    const auto look_grid = static_cast<unsigned>(
        std::min<std::uint64_t>(divide_up(records * lanes, block_threads), look_blocks));
    // Before anything else sees them.
    if (look_ && !unit.segments.front().chunk->fingerprint) {
      look_at_staged<<<look_grid, block_threads, 0, stream>>>(
          device.segments, segments, records, layout_.record_bytes, lanes, staging, device.found);
      check_launch("look_at_staged");
    }
    std::uint64_t* const disorder = &device.found->disorder;
    encode_records<W><<<divide_up(records, block_threads), block_threads, 0, stream>>>(
        device.segments, segments, records, LocatedLess<W>{layout_, staging, nullptr}, located(0),
        disorder);
    check_launch("encode_records");
    CORANK_CUDA(merge_located(out_.get(), out_bytes_, disorder));
    launch_gather<W>(staging, located(1), records, layout_.record_bytes, out_.get(), disorder,
                     stream);
    check_launch("gather");
    if (look_) {
      look_at_merged<W><<<look_grid, block_threads, 0, stream>>>(out_.get(), records, layout_,
                                                                 lanes, device.found);
      check_launch("look_at_merged");
    }
    CORANK_CUDA(cudaMemcpyAsync(output, out_.get(), records * layout_.record_bytes,
                                cudaMemcpyDeviceToHost, stream));
    CORANK_CUDA(
        cudaMemcpyAsync(found_.get(), device.found, sizeof(Found), cudaMemcpyDeviceToHost, stream));
  }

  KeyLayout layout_;
  std::uint64_t unit_records_;
  bool look_;
  std::uint64_t segments_capacity_ = 0;
  std::size_t out_bytes_ = 0;
  std::vector<LocatedSequence<W>> runs_;  // of the unit
  std::vector<const void*> sources_;      // of its segments
  std::vector<void*> destinations_;
  std::vector<std::size_t> sizes_;

  Stream stream_;
  Event merged_;
  PinnedArray<std::byte> description_;
  PinnedArray<Found> found_;
  DeviceArray<std::byte> device_description_, out_;
  DeviceArray<uint4> staging_;
  // Of the located keys, before and after they are merged.
  DeviceArray<typename Merged<W>::Key> keys_[2];
  DeviceArray<std::uint32_t> locators_[2];
};

// Touching by one thread, which registering would otherwise do, is many times slower.
void touch(std::span<std::byte> memory, unsigned threads) {
  const std::size_t page = page_bytes();
  const std::size_t share = round_up(divide_up(memory.size(), threads), page);
  std::vector<std::jthread> workers;
  for (std::size_t first = 0; first < memory.size(); first += share)
    workers.emplace_back([=] {
      const std::size_t end = std::min(first + share, memory.size());
      for (std::size_t at = first; at < end; at += page)
        *const_cast<volatile std::byte*>(&memory[at]) = std::byte{0};
    });
}

template <int W>
class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, std::string description, const BackendConfig& config)
      : device_(device),
        description_(std::move(description)),
        record_bytes_(config.encoding->record_bytes()),
        threads_(config.threads),
        look_(config.look && !config.shape),
        shape_(config.shape),
        fingerprint_(config.fingerprint) {
    CORANK_CUDA(cudaSetDevice(device));
    const auto& pieces = config.encoding->pieces();
    pieces_ = device_array<KeyPiece>(pieces.size());
    CORANK_CUDA(cudaMemcpy(pieces_.get(), pieces.data(), pieces.size() * sizeof(KeyPiece),
                           cudaMemcpyHostToDevice));
    KeyLayout layout = config.encoding->layout();
    layout.pieces = pieces_.get();

    for (unsigned i = 0; i < config.tokens; ++i) {
      lanes_.push_back(std::make_unique<Lane<W>>(layout, config.unit_records, look_));
      free_.push_back(lanes_.back().get());
    }
  }

  MergedUnit merge(const WorkUnit& unit, std::byte* output) override {
    if (unit.records == 0) return {};
    CORANK_CUDA(cudaSetDevice(device_));
    const Found found = lend()->merge(unit, output);
    if (found.disorder != in_order) throw disorder_of(unit, found.disorder);
    const std::span whole(output, unit.records * record_bytes_);
    if (shape_) return shape_unit(*shape_, whole, fingerprint_);
    MergedUnit merged;
    merged.pieces = {whole};
    if (look_) {
      merged.look = UnitLook{found.read, found.written, {}};
      if (found.descent != in_order) merged.look->descent = found.descent;
    }
    return merged;
  }

  bool looks() const override { return look_; }

  PinMemory pin_memory() override {
    return [device = device_,
            threads = threads_](std::span<std::byte> memory) -> std::shared_ptr<void> {
      if (memory.empty()) return nullptr;
      touch(memory, threads);
      CORANK_CUDA(cudaSetDevice(device));
      CORANK_CUDA(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable));
      return {memory.data(), [](void* pinned) { (void)cudaHostUnregister(pinned); }};
    };
  }

  std::shared_ptr<void> pin(std::span<const std::byte> memory, bool read_only) override {
    if (memory.empty()) return nullptr;
    CORANK_CUDA(cudaSetDevice(device_));
    void* begin = const_cast<std::byte*>(memory.data());
    const cudaError_t error =
        cudaHostRegister(begin, memory.size(),
                         cudaHostRegisterPortable | (read_only ? cudaHostRegisterReadOnly : 0));
    if (error == cudaErrorHostMemoryAlreadyRegistered) {
      (void)cudaGetLastError();
      return nullptr;
    }
    CORANK_CUDA(error);
    return {begin, [](void* pinned) { (void)cudaHostUnregister(pinned); }};
  }

  std::string device() const override { return description_; }

 private:
  auto lend() {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [this] { return !free_.empty(); });
    const auto give_back = [this](Lane<W>* lane) {
      {
        std::lock_guard guard(mutex_);
        free_.push_back(lane);
      }
      returned_.notify_one();
    };
    std::unique_ptr<Lane<W>, decltype(give_back)> lane(free_.back(), give_back);
    free_.pop_back();
    return lane;
  }

  static RunDisorder disorder_of(const WorkUnit& unit, std::uint64_t record) {
    auto segment = unit.segments.begin();
    for (; record >= segment->count; ++segment) record -= segment->count;
    return {segment->chunk->run, segment->chunk->first + segment->first + record};
  }

  int device_;
  std::string description_;
  std::uint32_t record_bytes_;
  unsigned threads_;
  bool look_;
  const Shape* shape_;
  FingerprintSum fingerprint_;
  DeviceArray<KeyPiece> pieces_;
  std::vector<std::unique_ptr<Lane<W>>> lanes_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<Lane<W>*> free_;
};

}  // namespace

CudaDevice find_cuda_device(int device) {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && (device < 0 || device >= count))
    return {false, "no CUDA device " + std::to_string(device) + ": this machine has " +
                       std::to_string(count) + ", counted from 0"};
  cudaDeviceProp properties{};
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, device);
  if (status == cudaSuccess) status = cudaSetDevice(device);
  cudaFuncAttributes kernel{};  // fails where this build has no code for the device
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&kernel, stage);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    return {false, std::string("no usable CUDA device: ") + cudaGetErrorString(status)};
  }
  std::string description = std::string(properties.name) + ", " +
                            std::to_string(properties.totalGlobalMem >> 30) + " GiB";
  if (!properties.canUseHostPointerForRegisteredMem)
    return {false, description + ", cannot read pinned memory by the host's addresses"};
  return {true, std::move(description)};
}

std::unique_ptr<Backend> make_cuda_backend(int device, const BackendConfig& config) {
  const CudaDevice found = find_cuda_device(device);
  if (!found.usable) throw DeviceError(found.description + "; --backend cpu needs no GPU", false);
  switch (config.encoding->prefix_words()) {
    case 1:
      return std::make_unique<CudaBackend<1>>(device, found.description, config);
    case 2:
      return std::make_unique<CudaBackend<2>>(device, found.description, config);
    default:
      return std::make_unique<CudaBackend<4>>(device, found.description, config);
  }
}

}  // namespace corank
