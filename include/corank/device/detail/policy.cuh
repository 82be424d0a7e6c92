// Tuning parameters of the device merges, as data: one table per kind of device and record width.
// Tuned by bench-device; see docs/tuning.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "corank/device/sequence.cuh"

namespace corank::device::detail {

template <class T>
inline constexpr std::uint32_t bytes_of = static_cast<std::uint32_t>(sizeof(T));
template <>
inline constexpr std::uint32_t bytes_of<NoValue> = 0;

// Parameters of the two-way merge. `items` is odd, so that threads that write `items` adjacent
// records each avoid bank conflicts. `tiles` is the minimum capacity of a ring in tiles, at least
// two. `stretch` is the number of tiles that a thread block produces.
template <int threads_, int items_, int tiles_, int stretch_>
struct RingPolicy {
  static constexpr int threads = threads_;     // threads that merge
  static constexpr int block = threads_ + 32;  // and a warp that moves records
  static constexpr int items = items_;
  static constexpr int tiles = tiles_;
  static constexpr int stretch = stretch_;
};

// Parameters of the k-way merge.
template <int threads_, int items_, int stride_, int blocks_>
struct FusedPolicy {
  static constexpr int threads = threads_;
  static constexpr int items = items_;
  static constexpr std::uint32_t stride = stride_;  // records from one sample to the next
  static constexpr int blocks = blocks_;            // thread blocks per multiprocessor
};

// Selects the first policy that is wide enough.
template <std::uint32_t max_bytes, class Policy>
struct UpTo {};
template <std::uint32_t bytes, class... Rows>
struct Choose;
template <std::uint32_t bytes, std::uint32_t max_bytes, class Policy, class... Rows>
struct Choose<bytes, UpTo<max_bytes, Policy>, Rows...>
    : std::conditional_t<(bytes <= max_bytes), std::type_identity<Policy>, Choose<bytes, Rows...>> {
};
template <std::uint32_t bytes>
struct Choose<bytes> {};

// Maximum bytes of a record or sample; a sample is a key and a 32-bit number.
inline constexpr std::uint32_t widest = max_record_bytes + sizeof(std::uint32_t);

// Devices of compute capability 9.0 and above: bulk copies, and 227 KiB of shared memory per
// multiprocessor. A block of the two-way merge takes less than half of this, so that one block's
// searches overlap another's copies. The k-way merge is bound by shared-memory bandwidth, and more
// records per thread leave less of it to searches. Registers and the cost of samples set the
// limits.
struct Hopper {
  static constexpr bool bulk = true;

  template <class Key, class Value>
  using Ring = typename std::conditional_t<
      has_values<Value>,
      Choose<bytes_of<Key> + bytes_of<Value>, UpTo<2, RingPolicy<256, 31, 2, 8>>,
             UpTo<4, RingPolicy<256, 15, 2, 8>>, UpTo<8, RingPolicy<256, 7, 2, 8>>,
             UpTo<16, RingPolicy<128, 7, 2, 8>>, UpTo<widest, RingPolicy<128, 3, 2, 8>>>,
      Choose<bytes_of<Key>, UpTo<2, RingPolicy<256, 31, 2, 8>>, UpTo<4, RingPolicy<256, 15, 2, 8>>,
             UpTo<8, RingPolicy<128, 15, 2, 8>>, UpTo<16, RingPolicy<128, 7, 2, 8>>,
             UpTo<widest, RingPolicy<128, 3, 2, 8>>>>::type;

  template <class Key, class Value>
  using Fused = typename std::conditional_t<
      has_values<Value>,
      Choose<bytes_of<Key> + bytes_of<Value>, UpTo<8, FusedPolicy<256, 25, 96, 3>>,
             UpTo<12, FusedPolicy<256, 19, 64, 3>>, UpTo<16, FusedPolicy<320, 19, 96, 2>>,
             UpTo<24, FusedPolicy<256, 17, 64, 2>>, UpTo<40, FusedPolicy<256, 7, 16, 2>>,
             UpTo<widest, FusedPolicy<128, 5, 16, 2>>>,
      Choose<bytes_of<Key>, UpTo<8, FusedPolicy<256, 29, 96, 3>>,
             UpTo<16, FusedPolicy<256, 23, 80, 2>>, UpTo<24, FusedPolicy<256, 13, 32, 2>>,
             UpTo<40, FusedPolicy<256, 7, 16, 2>>, UpTo<widest, FusedPolicy<128, 5, 16, 2>>>>::type;
};

// Older devices; all of them have 48 KiB of shared memory per thread block.
struct Portable {
  static constexpr bool bulk = false;

  template <class Key, class Value>
  using Ring =
      typename Choose<bytes_of<Key> + bytes_of<Value>, UpTo<2, RingPolicy<256, 15, 2, 8>>,
                      UpTo<4, RingPolicy<256, 7, 2, 8>>, UpTo<8, RingPolicy<128, 7, 2, 8>>,
                      UpTo<16, RingPolicy<128, 3, 2, 8>>, UpTo<32, RingPolicy<64, 3, 2, 8>>,
                      UpTo<widest, RingPolicy<32, 3, 2, 8>>>::type;

  template <class Key, class Value>
  using Fused =
      typename Choose<bytes_of<Key> + bytes_of<Value>, UpTo<8, FusedPolicy<256, 15, 64, 1>>,
                      UpTo<12, FusedPolicy<256, 11, 64, 1>>, UpTo<16, FusedPolicy<256, 9, 32, 1>>,
                      UpTo<24, FusedPolicy<256, 5, 16, 1>>, UpTo<40, FusedPolicy<128, 7, 16, 1>>,
                      UpTo<widest, FusedPolicy<128, 5, 16, 1>>>::type;
};

}  // namespace corank::device::detail
