// Runs an operator chain on merged units of variable-length records on a device. Each lane owns a
// `DeviceTextOperatorRunner`, which serves one unit at a time. A failing device throws DeviceError.
#pragma once

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/unit_lane.cuh"
#include "kernels/formats/text_kernels.cuh"
#include "kernels/ops/device_chain.cuh"
#include "ops/merged_unit.hpp"
#include "ops/operator_chain.hpp"

namespace corank {

// Enqueues a prefix sum that writes where each record ends when the records that prefix references
// point to are concatenated. The first begins at 0.
inline cudaError_t find_text_ends(void* temporary, std::size_t& bytes, const EntryBytes& of,
                                  std::uint64_t* ends, std::uint64_t records, cudaStream_t stream) {
  const auto lengths =
      thrust::make_transform_iterator(thrust::counting_iterator<std::uint64_t>(0), of);
  return cub::DeviceScan::InclusiveSum(temporary, bytes, lengths, ends, records, stream);
}

// Enqueues the copy of those records to `out`, `bytes` bytes in total.
inline void gather_texts(const TextLess& less, const PrefixRef* entries, const std::uint64_t* ends,
                         std::uint64_t records, std::uint64_t bytes, std::byte* out,
                         cudaStream_t stream) {
  gather_text<<<static_cast<unsigned>(divide_up(bytes, block_threads * sizeof(uint4))),
                block_threads, 0, stream>>>(less, entries, ends, records, bytes,
                                            reinterpret_cast<uint4*>(out));
  check_launch("gather_text");
}

// Buffers and steps that apply the chain to one unit at a time.
class DeviceTextOperatorRunner {
 public:
  explicit DeviceTextOperatorRunner(const OperatorChain& chain)
      : chain_(chain),
        tests_(chain, constants_),
        selected_(chain.projection() ? constants_.upload(*chain.projection()->columns())
                                     : TextLayout{}),
        found_(device_array<TextOperatorCounts>(1)),
        host_found_(pinned_array<TextOperatorCounts>(1)) {}

  // Reserves memory for units of `records` records and `unit_bytes` bytes.
  void reserve(std::uint64_t records, std::uint64_t unit_bytes) {
    flags_.reserve(records);
    std::size_t for_select = 0, for_ends = 0;
    CORANK_CUDA(select(nullptr, for_select, nullptr, nullptr, nullptr, records, nullptr));
    CORANK_CUDA(find_text_ends(nullptr, for_ends, {}, nullptr, records, nullptr));
    out_.reserve(std::max({for_select, for_ends, round_up(unit_bytes, sizeof(uint4))}));
  }

  // Enqueues the kernels that find the records to emit. Writes their prefix references to
  // `scratch`, which has room for as many as `merged`, and their ends to `ends`. Overwrites
  // `merged`.
  void enqueue(const TextLess& less, PrefixRef* merged, std::uint64_t records, PrefixRef* scratch,
               std::uint64_t* ends, cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>(divide_up(records, block_threads));
    TextOperatorCounts* const found = found_.get();
    outgoing_ = scratch;
    ends_ = ends;
    records_ = records;
    CORANK_CUDA(cudaMemsetAsync(found, 0, sizeof(TextOperatorCounts), stream));
    flag_text_kept<<<blocks, block_threads, 0, stream>>>(
        less, merged, records, tests_.where, chain_.groups() ? Test<TextLayout>{} : tests_.dropped,
        flags_.get(), found);
    check_launch("flag_text_kept");
    const auto select_flagged = [&](const PrefixRef* from, PrefixRef* to, std::uint64_t* count) {
      CORANK_CUDA(select(out_.get(), out_.capacity(), from, to, count, records, stream));
    };
    select_flagged(merged, scratch, &found->kept);
    if (chain_.groups()) {
      flag_text_groups<<<blocks, block_threads, 0, stream>>>(
          less, scratch, records, chain_.on_equal() == OnEqual::last, flags_.get(), found);
      check_launch("flag_text_groups");
      select_flagged(scratch, merged, &found->groups);
      settle_text_groups<<<blocks, block_threads, 0, stream>>>(less, merged, records,
                                                               tests_.dropped, flags_.get(), found);
      check_launch("settle_text_groups");
      select_flagged(merged, scratch, &found->outgoing);
    }
    const EntryBytes outgoing_bytes{less, scratch,
                                    chain_.groups() ? &found->outgoing : &found->kept, selected_};
    CORANK_CUDA(find_text_ends(out_.get(), out_.capacity(), outgoing_bytes, ends, records, stream));
    see_outgoing_bytes<<<1, 1, 0, stream>>>(ends, records, found);
    check_launch("see_outgoing_bytes");
    CORANK_CUDA(cudaMemcpyAsync(host_found_.get(), found, sizeof(TextOperatorCounts),
                                cudaMemcpyDeviceToHost, stream));
  }

  // Copies the records to emit to `output`, and waits for them. The work of enqueue() must be done.
  // The unit has `unit_bytes` bytes, and `staged_bytes` with the gaps between its records. Returns
  // nothing if the host must apply the chain. With `verify` the result tells what the host verifies
  // it by.
  std::optional<TileOutput> download(const TextLess& less, std::uint64_t unit_bytes,
                                     std::uint64_t staged_bytes, std::byte* output, bool verify,
                                     cudaStream_t stream, cudaEvent_t done) {
    const TextOperatorCounts found = host_found_[0];
    if (chain_.on_equal() == OnEqual::error && found.groups != found.kept) return std::nullopt;
    const std::uint64_t outgoing = chain_.groups() ? found.outgoing : found.kept;
    // A projected record has a delimiter for each column that it lacks, so the output may be longer
    // than the input; the host applies the chain then.
    if (selected_.columns_count != 0 && found.outgoing_bytes > unit_bytes) return std::nullopt;
    check(found, outgoing, unit_bytes, staged_bytes);
    TileOutput tile;
    std::vector<std::byte> head, tail, first, last;
    wait_for(stream, done, [&] {
      const auto bring = [&](const StagedText& text, std::vector<std::byte>& to) {
        to.resize(text.bytes);
        if (text.bytes != 0)
          CORANK_CUDA(cudaMemcpyAsync(to.data(), less.staging + text.at, text.bytes,
                                      cudaMemcpyDeviceToHost, stream));
      };
      bring(found.head, head);
      bring(found.tail, tail);
      // Head and tail suffice to check the order if they come from the unit's first and last
      // records.
      if (verify && (!chain_.groups() || chain_.chooses())) {
        bring(found.first, first);
        bring(found.last, last);
      }
      if (outgoing == 0) return;
      if (selected_.columns_count == 0) {
        gather_texts(less, outgoing_, ends_, outgoing, found.outgoing_bytes, out_.get(), stream);
      } else {
        put_text_columns<<<static_cast<unsigned>(divide_up(outgoing, block_threads)), block_threads,
                           0, stream>>>(less, outgoing_, ends_, outgoing, selected_, out_.get());
        check_launch("put_text_columns");
      }
      if (verify) {
        const unsigned lanes = verify_lanes(found.outgoing_bytes / outgoing);
        fingerprint_text<<<verify_blocks(outgoing, lanes), block_threads, 0, stream>>>(
            out_.get(), ends_, outgoing, lanes, found_.get());
        check_launch("fingerprint_text");
        CORANK_CUDA(cudaMemcpyAsync(host_found_.get(), found_.get(), sizeof(TextOperatorCounts),
                                    cudaMemcpyDeviceToHost, stream));
      }
      CORANK_CUDA(cudaMemcpyAsync(output, out_.get(), found.outgoing_bytes, cudaMemcpyDeviceToHost,
                                  stream));
    });
    if (!head.empty()) tile.head.start(chain_, head);
    if (!tail.empty()) tile.tail.start(chain_, tail);
    if (!first.empty()) tile.first.assign_record(chain_.layout(), first);
    if (!last.empty()) tile.last.assign_record(chain_.layout(), last);
    tile.head_ends = !tail.empty();
    tile.between = {output, found.outgoing_bytes};
    tile.records = outgoing;
    tile.free = output;
    tile.resolved = resolved(found);
    tile.left_out = -host_found_[0].outgoing_fingerprint;
    return tile;
  }

 private:
  ResolvedCounts resolved(const TextOperatorCounts& found) const {
    if (!chain_.groups()) return {0, chain_.dropped() ? records_ - found.kept : 0};
    const std::uint64_t edges = (found.head.bytes != 0) + (found.tail.bytes != 0);
    return {found.kept - found.groups, found.groups - edges - found.outgoing};
  }

  // Checks the device's counts, which the lengths of copies to the host depend on.
  void check(const TextOperatorCounts& found, std::uint64_t outgoing, std::uint64_t unit_bytes,
             std::uint64_t staged_bytes) const {
    bool fits = found.kept <= records_ && outgoing <= found.kept &&
                found.outgoing_bytes <= unit_bytes &&
                (outgoing == 0) == (found.outgoing_bytes == 0);
    for (const StagedText& text : {found.first, found.last, found.head, found.tail})
      fits = fits && text.bytes <= unit_bytes && text.at <= staged_bytes - text.bytes;
    if (!fits) throw DeviceError("CUDA: the device found more records than it had", false);
  }

  // Selects the elements of `from` that are flagged.
  cudaError_t select(void* temporary, std::size_t& bytes, const PrefixRef* from, PrefixRef* to,
                     std::uint64_t* count, std::uint64_t records, cudaStream_t stream) const {
    return cub::DeviceSelect::Flagged(temporary, bytes, from, flags_.get(), to, count, records,
                                      stream);
  }

  const OperatorChain& chain_;
  DeviceConstants constants_;
  DeviceTests<TextLayout> tests_;
  TextLayout selected_;  // without columns: records are emitted whole
  DeviceArray<TextOperatorCounts> found_;
  PinnedArray<TextOperatorCounts> host_found_;
  GrowingArray<std::uint8_t> flags_;
  GrowingArray<std::byte> out_;  // output buffer; before that, temporary storage
  // The current unit.
  const PrefixRef* outgoing_ = nullptr;
  const std::uint64_t* ends_ = nullptr;
  std::uint64_t records_ = 0;
};

}  // namespace corank
