// What the merges are tuned by: data, for each kind of device and width of a record.
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

// `items` is odd: then threads that write `items` records each, side by side, meet in no bank.
// `tiles` is how many a ring has room for, at least two; its size is rounded up from that.
// `stretch` is how many tiles a block produces.
template <int threads_, int items_, int tiles_, int stretch_>
struct RingPolicy {
  static constexpr int threads = threads_;     // that merge
  static constexpr int block = threads_ + 32;  // and a warp that moves
  static constexpr int items = items_;
  static constexpr int tiles = tiles_;
  static constexpr int stretch = stretch_;
};

template <int threads_, int items_, int stride_, int blocks_>
struct FusedPolicy {
  static constexpr int threads = threads_;
  static constexpr int items = items_;
  static constexpr std::uint32_t stride = stride_;  // from one sampled record to the next
  static constexpr int blocks = blocks_;            // a multiprocessor
};

// The first of these that is wide enough.
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

// A sample is a key and a number.
inline constexpr std::uint32_t widest = max_record_bytes + sizeof(std::uint32_t);

// From Hopper on: bulk copies, and 227 KiB of shared memory a multiprocessor. A ring's block takes
// about 96 KiB, so that two share a multiprocessor and one's searches overlap the other's copies.
// What binds the k-way merge is shared memory's bandwidth: the more records a thread merges, the
// less of it goes to searches; registers, and what a sample costs, set the limits.
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

// Before that, every device has 48 KiB of shared memory for a block.
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
