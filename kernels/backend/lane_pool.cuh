// CUDA backend: a pool of lanes. A lane owns the stream and the buffers of one in-flight unit.
// merge() takes a free lane and blocks until there is one; all functions are thread-safe.
#pragma once

#include <cassert>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "corank/error.hpp"
#include "io/mapped_file.hpp"
#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/device_constants.cuh"
#include "kernels/backend/unit_lane.cuh"
#include "ops/merged_unit.hpp"
#include "ops/operator_chain.hpp"
#include "ops/unit_operators.hpp"

namespace corank {

// Calls visit(part) for parts of whole pages, on a thread each. Pages are touched so before they
// are registered: otherwise registration touches them by one thread, which is slower.
template <class Byte, class Visit>
void share_out(std::span<Byte> memory, unsigned threads, Visit visit) {
  const std::size_t share = round_up(divide_up(memory.size(), threads), page_bytes());
  std::vector<std::jthread> workers;
  for (std::size_t first = 0; first < memory.size(); first += share)
    workers.emplace_back(
        [=] { visit(memory.subspan(first, std::min(share, memory.size() - first))); });
}

inline void touch(std::span<std::byte> memory) {
  for (std::size_t at = 0; at < memory.size(); at += page_bytes())
    *const_cast<volatile std::byte*>(&memory[at]) = std::byte{0};
}

// Merges or sorts units on lanes; see BackendConfig::sorts. A `Lane` has a constructor from the
// DeviceOrder and the BackendConfig. No function of it is called for units without records. A lane
// that merges provides:
// - Found merge(const WorkUnit&, std::byte* output);
// - std::optional<TileOutput> operate(std::byte* output), called next if there is an operator
//   chain. It returns nothing if the host must apply the chain to the records in `output`.
// A lane that sorts provides:
// - Found sort(const WorkUnit&);
// - void download_sorted(std::byte* output), called next.
template <class Lane>
class DeviceBackend final : public Backend {
 public:
  DeviceBackend(int device, std::string description, const BackendConfig& config)
      : device_(device),
        description_(std::move(description)),
        layout_(config.encoding->layout()),
        threads_(config.threads),
        verify_(config.verify),
        operators_(config.operators),
        fingerprint_(config.fingerprint),
        order_((CORANK_CUDA(cudaSetDevice(device)), *config.encoding)) {
    for (unsigned i = 0; i < config.tokens; ++i) {
      lanes_.push_back(std::make_unique<Lane>(order_, config));
      free_.push_back(lanes_.back().get());
    }
  }

  MergedUnit merge(const WorkUnit& unit, std::byte* output) override {
    if constexpr (sorts) {
      assert(false);
      return {};
    } else {
      return merge_on_lane(unit, output);
    }
  }

  std::optional<std::uint64_t> sort(const WorkUnit& unit, std::byte* output) override {
    if constexpr (sorts)
      return sort_on_lane(unit, output);
    else
      return std::nullopt;
  }

  bool verifies() const override { return verify_; }

  PinMemory pin_memory() override {
    return [device = device_,
            threads = threads_](std::span<std::byte> memory) -> std::shared_ptr<void> {
      if (memory.empty()) return nullptr;
      share_out(memory, threads, touch);
      CORANK_CUDA(cudaSetDevice(device));
      CORANK_CUDA(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable));
      return {memory.data(), [](void* pinned) { (void)cudaHostUnregister(pinned); }};
    };
  }

  std::shared_ptr<void> pin(std::span<const std::byte> memory, bool read_only) override {
    if (memory.empty()) return nullptr;
    if (read_only) share_out(memory, threads_, populate);
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
  static constexpr bool sorts = requires { &Lane::sort; };

  MergedUnit merge_on_lane(const WorkUnit& unit, std::byte* output) {
    if (unit.records == 0) return {};
    const auto lane = begin();
    const Found found = lane->merge(unit, output);
    if (found.out_of_order != in_order) throw disorder_of(unit, found.out_of_order);
    if (verify_) check_merged(found);
    MergedUnit merged;
    if (!operators_) {
      merged.pieces = {{output, unit.bytes}};
      if (verify_) merged.proof = UnitProof{found.read, found.written, found.last_offset};
      return merged;
    }
    if (std::optional<TileOutput> operated = lane->operate(output)) {
      if (verify_) operated->left_out += found.written;
      merged.tiles.push_back(std::move(*operated));
    } else {
      merged = apply_to_unit(*operators_, unit, {output, unit.bytes}, fingerprint_);
    }
    if (verify_) merged.read = found.read;
    return merged;
  }

  std::uint64_t sort_on_lane(const WorkUnit& unit, std::byte* output) {
    if (unit.records == 0) return 0;
    const auto lane = begin();
    const Found found = lane->sort(unit);
    if (verify_) check_merged(found);
    try {
      lane->download_sorted(output);
    } catch (const DeviceError& fault) {
      if (output != unit.segments.front().chunk->records()) throw;
      throw Error(ErrorCode::device,
                  fault.problem() + "; records in memory were being overwritten, and are lost");
    }
    return found.written;
  }

  // Prepares the calling thread, and lends it a lane.
  auto begin() {
    CORANK_CUDA(cudaSetDevice(device_));
    (void)cudaGetLastError();  // clears the error of an earlier call on this thread
    return lend();
  }

  auto lend() {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [this] { return !free_.empty(); });
    const auto give_back = [this](Lane* lane) {
      {
        std::lock_guard guard(mutex_);
        free_.push_back(lane);
      }
      returned_.notify_one();
    };
    std::unique_ptr<Lane, decltype(give_back)> lane(free_.back(), give_back);
    free_.pop_back();
    return lane;
  }

  // Checks what a unit tells by itself, so that only this unit is merged again. Fingerprints are 0
  // if the device did not verify.
  static void check_merged(const Found& found) {
    if (found.written == 0 || found.descent != in_order ||
        (found.read != 0 && found.read != found.written))
      throw DeviceError("CUDA: what the device merged is not what it read, or not in order", false);
  }

  RunOutOfOrder disorder_of(const WorkUnit& unit, std::uint64_t record) const {
    auto segment = unit.segments.begin();
    for (; record >= segment->count; ++segment) record -= segment->count;
    return {layout_, *segment->chunk, segment->first + record};
  }

  int device_;
  std::string description_;
  KeyLayout layout_;
  unsigned threads_;
  bool verify_;
  const OperatorChain* operators_;
  FingerprintSum fingerprint_;
  DeviceOrder order_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<Lane*> free_;
};

}  // namespace corank
