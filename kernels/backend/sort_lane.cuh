// A lane that sorts units of fixed-size records; see DeviceBackend.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/backend/record_lane.cuh"
#include "kernels/formats/sort_kernels.cuh"

namespace corank {

template <int W>
class SortLane : RecordLane<W> {
  using Base = RecordLane<W>;
  using Base::out_, Base::staging_, Base::stream_;

 public:
  SortLane(const DeviceOrder& order, const BackendConfig& config)
      : Base(order, config, locator_shift(order.layout.record_bytes)) {
    out_.reserve(this->unit_capacity_bytes());
  }

  // Returns the max number of records of a unit for a device with so much free memory.
  static std::uint64_t max_records(std::uint64_t free_bytes, std::uint32_t record_bytes) {
    // Records before and after, and as many located keys; a radix sort needs little more.
    const std::uint64_t held_bytes =
        2 * (record_bytes + sizeof(typename Merged<W>::Key) + sizeof(std::uint32_t));
    // A MiB is more than segments lose by alignment. CUB's merge sort counts in 32 bits.
    const std::uint64_t reached_bytes =
        (std::uint64_t{4} << 30 << locator_shift(record_bytes)) - (1 << 20);
    return std::min({free_bytes / 8 * 7 / held_bytes, reached_bytes / record_bytes,
                     std::uint64_t{std::numeric_limits<std::int32_t>::max()}});
  }

  // Sorts the records of the unit, which are in any order, for download_sorted().
  Found sort(const WorkUnit& unit) {
    this->begin(unit);
    const Found encoded = this->run([&] {
      staging_.upload(false, stream_.get());  // chunks are few and large, and may not be pinned
      this->verify_input(unit);
      encode_unsorted<W>
          <<<divide_up(unit.records, block_threads), block_threads, 0, stream_.get()>>>(
              staging_.segments(), unit.segments.size(), unit.records, this->less(nullptr),
              this->located(0), staging_.found());
      check_launch("encode_unsorted");
    });
    std::array sides{this->located(0), this->located(1)};
    std::size_t bytes = 0;
    const auto sort_keys = [&](void* temporary) {
      CORANK_CUDA(sort_located(temporary, bytes, sides, unit.records, this->less(nullptr),
                               encoded.differing, stream_.get()));
    };
    sort_keys(nullptr);
    out_.reserve(std::max<std::size_t>(bytes, unit.bytes));
    bytes = out_.capacity();
    return this->run([&] {
      sort_keys(out_.get());
      this->gather_and_verify(unit.records, sides[0]);
    });
  }

  void download_sorted(std::byte* output) {
    wait_for(stream_.get(), this->merged_.get(),
             [&] { this->download(output, this->unit_bytes_); });
  }

 private:
  // Returns the shift of locators that reach as far as these records allow.
  static unsigned locator_shift(std::uint32_t record_bytes) {
    return static_cast<unsigned>(std::countr_zero(record_bytes | sizeof(uint4)));
  }
};

}  // namespace corank
