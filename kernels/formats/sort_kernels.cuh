// Sorts the located keys of a unit on a device, stably: their encoding, and the choice of a sort.
//
// Keys of few words are sorted by radix, and only by the bits that differ within the unit. Longer
// keys are merge-sorted, since their records may have to be compared.
//
// Source: Adinets and Merrill, "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs"
// (2022), as implemented by CUB.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cub/device/device_merge_sort.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cuda/std/tuple>
#include <nv/target>
#include <type_traits>

#include "kernels/formats/unit_kernels.cuh"

namespace corank {

// Returns the bits that are set in any thread of the warp, all of whose threads call this.
__device__ inline std::uint32_t or_of_warp(std::uint32_t bits) {
  NV_IF_ELSE_TARGET(
      NV_PROVIDES_SM_80, (return __reduce_or_sync(~0u, bits);),
      (for (int lanes = 16; lanes > 0; lanes /= 2) bits |= __shfl_xor_sync(~0u, bits, lanes);
       return bits;))
}

// Encodes the located keys of records in any order, one thread per record. Sets the bits of
// `differing` in which some key differs from the first.
template <int W>
__global__ void __launch_bounds__(block_threads)
    encode_unsorted(const StagedSegment* segments, std::uint64_t segments_count,
                    std::uint64_t records, LocatedLess<W> less, LocatedOutput<W> located,
                    Found* found) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  Key<W> differing{};
  if (i < records) {
    const Located<W> own = locate(segments[segment_of(segments, segments_count, i)], i, less);
    put(located, i, own);
    const Key<W> first = encode<W>(less.layout, less.staging.at(segments[0].locator));
    for (int w = 0; w < W; ++w) differing.word[w] = own.key.word[w] ^ first.word[w];
  }
  if constexpr (W <= max_radix_words)
    for (int w = 0; w < W; ++w) {
      const auto low = or_of_warp(static_cast<std::uint32_t>(differing.word[w]));
      const auto high = or_of_warp(static_cast<std::uint32_t>(differing.word[w] >> 32));
      const std::uint64_t of_warp = std::uint64_t{high} << 32 | low;
      // Few warps find bits that no other has found.
      if (threadIdx.x % 32 == 0 && (of_warp & ~found->differing[w]) != 0)
        atomicOr(reinterpret_cast<unsigned long long*>(&found->differing[w]), of_warp);
    }
}

// Presents a key to CUB, most significant word first.
struct WordsOfKey {
  CORANK_HOST_DEVICE cuda::std::tuple<std::uint64_t&, std::uint64_t&> operator()(
      Key<2>& key) const {
    return {key.word[0], key.word[1]};
  }
};

// Sorts the keys by bits [first_bit, end_bit), counted from the least significant one.
template <int W>
cudaError_t radix_sort(void* temporary, std::size_t& bytes, std::array<LocatedOutput<W>, 2>& sides,
                       std::uint32_t records, int first_bit, int end_bit, cudaStream_t stream) {
  using Radix = std::conditional_t<W == 1, std::uint64_t, Key<W>>;
  const auto keys_of = [](const LocatedOutput<W>& side) {
    return reinterpret_cast<Radix*>(side.keys);
  };
  cub::DoubleBuffer<Radix> keys(keys_of(sides[0]), keys_of(sides[1]));
  cub::DoubleBuffer<std::uint32_t> locators(sides[0].values, sides[1].values);
  cudaError_t status;
  if constexpr (W == 1)
    status = cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, locators, records, first_bit,
                                             end_bit, stream);
  else
    status = cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, locators, records,
                                             WordsOfKey{}, first_bit, end_bit, stream);
  if (keys.selector != 0) std::swap(sides[0], sides[1]);
  return status;
}

// Copies the located keys on the device.
template <int W>
cudaError_t copy_located(const LocatedOutput<W>& to, const LocatedOutput<W>& from,
                         std::uint64_t records, cudaStream_t stream) {
  if (const cudaError_t error = cudaMemcpyAsync(to.keys, from.keys, records * sizeof(*to.keys),
                                                cudaMemcpyDeviceToDevice, stream))
    return error;
  return cudaMemcpyAsync(to.values, from.values, records * sizeof(*to.values),
                         cudaMemcpyDeviceToDevice, stream);
}

// Sorts the located keys in sides[0]; sides[1] is memory for as many. `differing` holds the bits in
// which the keys differ, and may hold others. As in CUB, a call without temporary memory only sets
// `bytes` to what is needed.
template <int W>
cudaError_t sort_located(void* temporary, std::size_t& bytes,
                         const std::array<LocatedOutput<W>, 2>& sides, std::uint64_t records,
                         const LocatedLess<W>& less, const std::uint64_t* differing,
                         cudaStream_t stream) {
  const auto count = static_cast<std::uint32_t>(records);
  if constexpr (W > max_radix_words) {
    return cub::DeviceMergeSort::StableSortKeys(temporary, bytes, sides[0].keys, count,
                                                Merged<W>::less(less), stream);
  } else {
    std::array from_to = sides;
    if (!temporary) return radix_sort<W>(nullptr, bytes, from_to, count, 0, 64 * W, stream);
    for (int w = W - 1; w >= 0; --w) {
      if (differing[w] == 0) continue;
      const int word_bit = 64 * (W - 1 - w);
      if (const cudaError_t error = radix_sort<W>(temporary, bytes, from_to, count,
                                                  word_bit + std::countr_zero(differing[w]),
                                                  word_bit + std::bit_width(differing[w]), stream))
        return error;
    }
    if (from_to[0].keys == sides[0].keys) return cudaSuccess;
    return copy_located<W>(sides[0], from_to[0], records, stream);
  }
}

}  // namespace corank
