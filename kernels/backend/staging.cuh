// Uploads the segments of a unit to the staging area on a device. Each lane owns a `Staging`, and
// uses it for one unit at a time. Sizes are in bytes; a failing device throws DeviceError.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/backend/cuda_check.cuh"
#include "kernels/formats/unit_kernels.cuh"
#include "util/math.hpp"
#include "util/setting_text.hpp"

namespace corank {

// A unit as kernels need to know it, in one block, so that one copy uploads it.
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

// The staging area of one unit, and the unit's description.
class Staging {
 public:
  // Locators reach 4 GiB << `shift`. Unless it is 0, record sizes are multiples of 1 << `shift`,
  // and segments are uploaded by copies.
  explicit Staging(unsigned shift) : shift_(shift) {
    assert(vector_bytes % (std::uint64_t{1} << shift) == 0);
  }

  // Reserves room for `segments` segments with `bytes` bytes in total. Discards what is there.
  void reserve(std::uint64_t segments, std::uint64_t bytes) {
    if (segments <= segments_capacity_ && bytes <= bytes_capacity_) return;
    segments = std::max(std::bit_ceil(segments), segments_capacity_);
    bytes = std::max(bytes, bytes_capacity_);
    // Each segment may begin and end within a vector.
    const std::uint64_t vectors = divide_up(bytes, vector_bytes) + 2 * segments;
    if (vectors * vector_bytes >> shift_ > std::numeric_limits<std::uint32_t>::max())
      throw DeviceError("a work unit of " + std::to_string(bytes) + " bytes in " +
                            std::to_string(segments) + " segments exceeds the " +
                            std::to_string(4 << shift_) +
                            " GiB that a locator reaches; a smaller " + to_marker(Setting::memory) +
                            " prevents that",
                        true);
    segments_capacity_ = bytes_capacity_ = 0;
    staging_.reset();
    staging_ = device_array<uint4>(vectors);
    description_ = pinned_array<std::byte>(Description::bytes(segments));
    device_description_.reset();
    device_description_ = device_array<std::byte>(Description::bytes(segments));
    segments_capacity_ = segments;
    bytes_capacity_ = bytes;
  }

  // Begins a unit without segments.
  void begin_unit() {
    *host().found = {in_order, in_order, 0, 0, 0, {}};
    segments_ = vectors_ = bytes_ = 0;
    sources_.clear();
    destinations_.clear();
    sizes_.clear();
  }
  // Adds a segment: `bytes` bytes at `from`, whose first record is number `first_record` of the
  // unit, or of a piece of it.
  void add(const std::byte* from, std::uint64_t bytes, std::uint64_t first_record) {
    const auto address = reinterpret_cast<std::uintptr_t>(from);
    // Copies need not be aligned, but scaled locators must be.
    const std::uint64_t skew = shift_ == 0 ? address % vector_bytes : 0;
    const std::uint64_t locator = vectors_ * vector_bytes + skew;
    host().segments[segments_++] = {reinterpret_cast<const uint4*>(address - skew), first_record,
                                    static_cast<std::uint32_t>(vectors_),
                                    static_cast<std::uint32_t>(locator >> shift_)};
    vectors_ += divide_up(skew + bytes, vector_bytes);
    bytes_ += bytes;
    sources_.push_back(from);
    destinations_.push_back(reinterpret_cast<std::byte*>(staging_.get()) + locator);
    sizes_.push_back(bytes);
  }

  // Enqueues the upload of the unit's description. Must precede uploads of segments.
  void upload_description(cudaStream_t stream) {
    CORANK_CUDA(cudaMemcpyAsync(device_description_.get(), description_.get(),
                                Description::bytes(segments_), cudaMemcpyHostToDevice, stream));
  }
  // Enqueues the upload of `count` segments, which may lie in any memory, from `first` on.
  void upload_segments(std::size_t first, std::size_t count, cudaStream_t stream) {
    for (std::size_t s = first; s < first + count; ++s)
      CORANK_CUDA(cudaMemcpyAsync(destinations_[s], sources_[s], sizes_[s], cudaMemcpyHostToDevice,
                                  stream));
  }
  // Enqueues the upload of all that. `pinned`: the segments are in memory that the device can read.
  void upload(bool pinned, cudaStream_t stream) {
    assert(!pinned || shift_ == 0);
    upload_description(stream);
    if (!pinned) {
      upload_segments(0, segments_, stream);
    } else if (bytes_ / segments_ >= min_copied_segment_bytes) {
      copy_segments(stream);
    } else {
      stage<<<stage_blocks, block_threads, 0, stream>>>(segments(), segments_, vectors_,
                                                        staging_.get());
      check_launch("stage");
    }
  }

  std::uint64_t staged_bytes() const { return vectors_ * vector_bytes; }

  // Addresses on the device. scratch() is the staging area, which may be overwritten once nothing
  // needs the staged records.
  std::byte* scratch() { return reinterpret_cast<std::byte*>(staging_.get()); }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(staging_.get()); }
  StagingArea area() const { return {bytes(), shift_}; }
  const StagedSegment* segments() const { return Description(device_description_.get()).segments; }
  Found* found() const { return Description(device_description_.get()).found; }

 private:
  static constexpr std::uint64_t vector_bytes = sizeof(uint4);
  // Minimum average segment size for the copy engine. It uploads large segments while another
  // engine downloads merged units, each at the link's full rate. Small segments cost it more than
  // they are worth, so a kernel reads these.
  static constexpr std::uint64_t min_copied_segment_bytes = std::uint64_t{32} << 10;

  Description host() const { return Description(description_.get()); }

  void copy_segments(cudaStream_t stream) {
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
    std::size_t first = 0;
    CORANK_CUDA(cudaMemcpyBatchAsync(destinations_.data(), sources_.data(), sizes_.data(),
                                     sizes_.size(), &attributes, &first, 1, stream));
  }

  const unsigned shift_;
  std::uint64_t segments_capacity_ = 0, bytes_capacity_ = 0;
  std::uint64_t segments_ = 0, vectors_ = 0, bytes_ = 0;  // of the current unit
  std::vector<const void*> sources_;                      // per segment of it, as is all below
  std::vector<void*> destinations_;
  std::vector<std::size_t> sizes_;
  PinnedArray<std::byte> description_;
  DeviceArray<std::byte> device_description_;
  DeviceArray<uint4> staging_;
};

}  // namespace corank
