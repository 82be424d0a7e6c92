// Runs an operator chain on merged units of fixed-size records on a device. Each lane owns a
// `DeviceOperatorRunner`, which serves one unit at a time. A failing device throws DeviceError.
#pragma once

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <cub/device/device_select.cuh>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/staging.cuh"
#include "kernels/ops/device_chain.cuh"
#include "kernels/ops/operator_kernels.cuh"
#include "ops/merged_unit.hpp"
#include "ops/operator_chain.hpp"

namespace corank {

// Returns the reductions of a chain. The constants must outlive them.
inline Reductions device_reductions(const OperatorChain& chain, DeviceConstants& constants) {
  using enum Reduction::Operation;
  std::vector<ReducedColumn> columns;
  Overflow overflow = Overflow::error;
  bool loops = false;
  for (const FieldReduction& reduction : reduced_fields(chain)) {
    const Field& field = reduction.field;
    overflow = reduction.overflow;
    loops |= reduction.operation == sum || reduction.operation == min || reduction.operation == max;
    columns.push_back({reduction.operation, field.offset, field.bytes,
                       field.kind == FieldKind::signed_integer, field.big_endian,
                       constants.upload(reduction.ordered.layout())});
  }
  return {constants.upload(std::span<const ReducedColumn>(columns)),
          static_cast<std::uint32_t>(columns.size()), overflow, loops};
}

// Returns the table of gather_fields; null if records are emitted whole.
inline const std::uint32_t* device_source_bytes(const Projection* projection,
                                                DeviceConstants& constants) {
  const std::vector<std::uint32_t> bytes =
      projection ? projection->source_bytes() : std::vector<std::uint32_t>();
  return bytes.empty() ? nullptr : constants.upload(std::span<const std::uint32_t>(bytes));
}

struct Multiple {
  std::uint32_t of;
  __host__ __device__ std::uint32_t operator()(std::uint32_t i) const { return i * of; }
};
// Returns the sequence 0, `of`, 2 `of`, …. It has one type, since every type of a selection takes
// long to compile.
inline auto multiples(std::uint32_t of) {
  return thrust::make_transform_iterator(thrust::counting_iterator<std::uint32_t>(0), Multiple{of});
}

// Buffers and steps that apply the chain to one unit at a time.
class DeviceOperatorRunner {
 public:
  // `layout` is the layout of the keys, its pieces on the device. Units have up to `unit_records`
  // records.
  DeviceOperatorRunner(const OperatorChain& chain, const KeyLayout& layout,
                       std::uint64_t unit_records)
      : chain_(chain),
        layout_(layout),
        tests_(chain, constants_),
        reductions_(device_reductions(chain, constants_)),
        byte_of_(device_source_bytes(chain.projection(), constants_)),
        flags_(device_array<std::uint8_t>(unit_records)),
        kept_(device_array<std::uint32_t>(unit_records)),
        starts_(device_array<std::uint32_t>(unit_records)),
        places_(device_array<std::uint32_t>(unit_records)),
        emitted_(device_array<std::byte>(unit_records * layout.record_bytes)),
        found_(device_array<OperatorCounts>(1)),
        host_found_(pinned_array<OperatorCounts>(1)),
        edges_(pinned_array<std::byte>(2 * std::uint64_t{layout.record_bytes})) {
    std::size_t bytes = 0;
    CORANK_CUDA(select(nullptr, bytes, multiples(1), starts_.get(), &found_[0].groups, unit_records,
                       nullptr));
    CORANK_CUDA(select(nullptr, select_bytes_, places_.get(), starts_.get(), &found_[0].outgoing,
                       unit_records, nullptr));
    select_bytes_ = std::max(select_bytes_, bytes);
    select_memory_ = device_array<std::byte>(select_bytes_);
  }

  // Enqueues the kernels that find the records to emit. `scratch` has room for as many records as
  // `merged`.
  void enqueue(const std::byte* merged, std::uint64_t records, std::byte* scratch,
               cudaStream_t stream) {
    const std::uint32_t record_bytes = layout_.record_bytes;
    const auto blocks = static_cast<unsigned>(divide_up(records, block_threads));
    merged_ = merged;
    records_ = records;
    reduced_ = scratch;
    CORANK_CUDA(cudaMemsetAsync(found_.get(), 0, sizeof(OperatorCounts), stream));
    flag_kept<<<blocks, block_threads, 0, stream>>>(
        merged, record_bytes, records, tests_.where,
        chain_.groups() ? Test<KeyLayout>{} : tests_.dropped, flags_.get());
    check_launch("flag_kept");
    OperatorCounts* const found = found_.get();
    CORANK_CUDA(select(select_memory_.get(), select_bytes_, multiples(record_bytes), kept_.get(),
                       &found->kept, records, stream));
    if (chain_.groups()) {
      flag_groups<<<blocks, block_threads, 0, stream>>>(merged, layout_, records, kept_.get(),
                                                        found, flags_.get());
      check_launch("flag_groups");
      CORANK_CUDA(select(select_memory_.get(), select_bytes_, multiples(1), starts_.get(),
                         &found->groups, records, stream));
      settle_groups<<<blocks, block_threads, 0, stream>>>(
          merged, record_bytes, records, kept_.get(), starts_.get(), chain_.on_equal(), reductions_,
          tests_.dropped, scratch, places_.get(), flags_.get(), found);
      check_launch("settle_groups");
      CORANK_CUDA(select(select_memory_.get(), select_bytes_, places_.get(), starts_.get(),
                         &found->outgoing, records, stream));
    }
    CORANK_CUDA(cudaMemcpyAsync(host_found_.get(), found, sizeof(OperatorCounts),
                                cudaMemcpyDeviceToHost, stream));
  }

  // Copies the records to emit to `output`, and waits for them. The work of enqueue() must be done.
  // Returns nothing if the host must apply the chain. With `verify` the result tells what the host
  // verifies it by.
  std::optional<TileOutput> download(std::byte* output, bool verify,
                                     const std::uint64_t* out_of_order, cudaStream_t stream) {
    const OperatorCounts found = host_found_[0];
    if (found.is_for_host != 0 ||
        (chain_.on_equal() == OnEqual::error && found.groups != found.kept))
      return std::nullopt;
    check(found);
    const std::uint32_t record_bytes = layout_.record_bytes;
    std::byte* to = emitted_.get();
    const auto gather_whole = [&](const std::byte* from, std::uint32_t* places,
                                  std::uint64_t count) {
      if (count == 0) return;
      launch_gather<1>({from}, {nullptr, places}, count, record_bytes, to, out_of_order, stream);
      check_launch("gather");
      to += count * record_bytes;
    };
    gather_whole(merged_, kept_.get(), found.head);
    gather_whole(merged_, kept_.get() + found.kept - found.tail, found.tail);
    const std::byte* const from = chain_.on_equal() == OnEqual::reduce ? reduced_ : merged_;
    std::uint32_t* const places = chain_.groups() ? starts_.get() : kept_.get();
    const std::uint64_t outgoing = chain_.groups() ? found.outgoing : found.kept;
    const std::uint32_t output_bytes = chain_.output_bytes();
    if (!byte_of_) {
      gather_whole(from, places, outgoing);
    } else if (outgoing != 0) {
      gather_fields<<<static_cast<unsigned>(divide_up(outgoing * output_bytes, block_threads)),
                      block_threads, 0, stream>>>(from, places, outgoing, byte_of_, output_bytes,
                                                  to);
      check_launch("gather_fields");
      to += outgoing * output_bytes;
    }
    if (to != emitted_.get())
      CORANK_CUDA(cudaMemcpyAsync(output, emitted_.get(),
                                  static_cast<std::size_t>(to - emitted_.get()),
                                  cudaMemcpyDeviceToHost, stream));
    if (verify) {
      if (outgoing != 0) {
        const unsigned lanes = verify_lanes(output_bytes);
        fingerprint_outgoing<<<verify_blocks(outgoing, lanes), block_threads, 0, stream>>>(
            to - outgoing * output_bytes, outgoing, output_bytes, lanes, found_.get());
        check_launch("fingerprint_outgoing");
        CORANK_CUDA(cudaMemcpyAsync(host_found_.get(), found_.get(), sizeof(OperatorCounts),
                                    cudaMemcpyDeviceToHost, stream));
      }
      CORANK_CUDA(
          cudaMemcpyAsync(edges_.get(), merged_, record_bytes, cudaMemcpyDeviceToHost, stream));
      CORANK_CUDA(cudaMemcpyAsync(edges_.get() + record_bytes,
                                  merged_ + (records_ - 1) * record_bytes, record_bytes,
                                  cudaMemcpyDeviceToHost, stream));
    }
    CORANK_CUDA(cudaStreamSynchronize(stream));

    TileOutput tile;
    std::byte* const tail = output + found.head * record_bytes;
    if (found.head != 0) tile.head.start(chain_, output, found.head);
    if (found.tail != 0) tile.tail.start(chain_, tail, found.tail);
    tile.head_ends = found.tail != 0;
    tile.between = {tail + found.tail * record_bytes, outgoing * output_bytes};
    tile.records = outgoing;
    tile.free = output;
    tile.resolved = resolved(found);
    tile.left_out = -host_found_[0].outgoing_fingerprint;
    if (verify) {
      tile.first.assign(chain_.layout(), edges_.get());
      tile.last.assign(chain_.layout(), edges_.get() + record_bytes);
    }
    return tile;
  }

 private:
  // Returns the counts for all groups except the two that may cross the ends of the unit.
  ResolvedCounts resolved(const OperatorCounts& found) const {
    if (!chain_.groups()) return {0, chain_.dropped() ? records_ - found.kept : 0};
    const std::uint64_t groups = found.groups - (found.head != 0) - (found.tail != 0);
    return {found.kept - found.head - found.tail - groups, groups - found.outgoing};
  }

  // Checks the device's counts, which the lengths of copies to the host depend on.
  void check(const OperatorCounts& found) const {
    const std::uint64_t outgoing = chain_.groups() ? found.outgoing : found.kept;
    std::uint64_t left = records_;
    bool fits = found.kept <= records_;
    for (const std::uint64_t count : {found.head, found.tail, outgoing}) {
      fits = fits && count <= left;
      left -= count;
    }
    if (!fits) throw DeviceError("CUDA: the device found more records than it had", false);
  }

  // Selects the elements of `from` that are flagged.
  template <class From>
  cudaError_t select(void* temporary, std::size_t& bytes, From from, std::uint32_t* to,
                     std::uint64_t* count, std::uint64_t records, cudaStream_t stream) const {
    return cub::DeviceSelect::Flagged(temporary, bytes, from, flags_.get(), to, count, records,
                                      stream);
  }

  const OperatorChain& chain_;
  KeyLayout layout_;
  DeviceConstants constants_;
  DeviceTests<KeyLayout> tests_;
  Reductions reductions_;
  const std::uint32_t* byte_of_;
  DeviceArray<std::uint8_t> flags_;
  DeviceArray<std::uint32_t> kept_;
  DeviceArray<std::uint32_t> starts_;  // starts of groups in kept_; then emitted places
  DeviceArray<std::uint32_t> places_;
  DeviceArray<std::byte> emitted_;
  DeviceArray<OperatorCounts> found_;
  PinnedArray<OperatorCounts> host_found_;
  PinnedArray<std::byte> edges_;
  std::size_t select_bytes_ = 0;
  DeviceArray<std::byte> select_memory_;
  // The current unit.
  const std::byte* merged_ = nullptr;
  std::uint64_t records_ = 0;
  std::byte* reduced_ = nullptr;
};

}  // namespace corank
