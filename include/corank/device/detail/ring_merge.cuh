// The production two-way merge: circular buffers that are refilled while the block merges.
//
// A block produces a contiguous stretch of the output. It finds the stretch's two ends once, by a
// search with 32 probes at a time, and keeps a ring of each input in shared memory. A tile of
// output is merged out of the rings: every thread finds its part by co-rank and merges it in
// registers; where the last thread stops, the next tile begins, so that tiles cost no search of
// their own and no input is read twice. One barrier a tile. After it, the results leave by a bulk
// store and the consumed room is refilled by bulk copies, both during the next tile's merge.
//
// A ring holds several tiles. A tile may consume up to one of either input, so what earlier refills
// brought is enough for it, and the last ones may still be on their way.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "corank/device/detail/async.cuh"
#include "corank/device/detail/tile.cuh"
#include "corank/device/sequence.cuh"

namespace corank::device::detail {

template <class T>
inline constexpr std::uint32_t bytes_of = static_cast<std::uint32_t>(sizeof(T));
template <>
inline constexpr std::uint32_t bytes_of<NoValue> = 0;

// `items` is odd: then threads that write `items` records each, side by side, meet in no bank.
// `tiles` is how many a ring has room for, at least two; its size is rounded up from that.
template <int threads_, int items_, int tiles_>
struct RingPolicy {
  static constexpr int threads = threads_;
  static constexpr int items = items_;
  static constexpr int tiles = tiles_;
};

// For devices of 228 KiB of shared memory: about 96 KiB a block, so two blocks share a
// multiprocessor and one's searches overlap the other's copies.
template <std::uint32_t record_bytes>
using DefaultRingPolicy = std::conditional_t<
    (record_bytes <= 2), RingPolicy<256, 31, 2>,
    std::conditional_t<
        (record_bytes <= 4), RingPolicy<256, 15, 2>,
        std::conditional_t<(record_bytes <= 8), RingPolicy<256, 7, 2>,
                           std::conditional_t<(record_bytes <= 16), RingPolicy<128, 7, 2>,
                                              RingPolicy<128, 3, 2>>>>>;

template <class Policy, class Key, class Value>
struct RingLayout {
  static constexpr std::uint32_t tile = Policy::threads * Policy::items;
  // Records; a power of two, so that a place in a ring is a mask away. The granule that the first
  // record stands in can't be refilled as long as the record is needed.
  static constexpr std::uint32_t capacity = std::bit_ceil(Policy::tiles * tile + granule);
  static constexpr std::uint32_t mask = capacity - 1;
  // Tiles that are covered by a refill beyond the one that it was made for: that many of the last
  // refills need not have arrived.
  static constexpr std::uint32_t ahead = (capacity - granule) / tile - 1;
  static_assert(ahead >= 1);

  template <class T>
  static constexpr std::uint32_t stage_bytes = tile * bytes_of<T> + granule;

  // Offsets: the rings of both keys, of both values, two stages of keys, two of values.
  static constexpr std::uint32_t values = 2 * capacity * bytes_of<Key>;
  static constexpr std::uint32_t key_stages = values + 2 * capacity * bytes_of<Value>;
  static constexpr std::uint32_t key_stage_bytes =
      (stage_bytes<Key> + granule - 1) / granule * granule;
  static constexpr std::uint32_t value_stages = key_stages + 2 * key_stage_bytes;
  static constexpr std::uint32_t value_stage_bytes =
      has_values<Value> ? (stage_bytes<Value> + granule - 1) / granule * granule : 0;
  static constexpr std::uint32_t bytes = value_stages + 2 * value_stage_bytes;
};

// co-rank by a whole warp, 32 probes at a time: a chain of log32(count) loads and not log2(count).
template <class Key, class Less>
__device__ std::uint64_t warp_co_rank(std::uint64_t rank, const Key* a, std::uint64_t a_count,
                                      const Key* b, std::uint64_t b_count, Less less) {
  const std::uint32_t lane = threadIdx.x % 32;
  std::uint64_t low = rank > b_count ? rank - b_count : 0;
  std::uint64_t high = rank < a_count ? rank : a_count;
  while (low < high) {
    const std::uint64_t step = (high - low + 31) / 32;
    const std::uint64_t probe = low + lane * step;
    const bool too_low = probe < high && !less(b[rank - probe - 1], a[probe]);
    const std::uint32_t too_lows = __popc(__ballot_sync(~0u, too_low));
    const std::uint64_t next_high = low + too_lows * step;
    if (too_lows != 0) low += (too_lows - 1) * step + 1;
    if (next_high < high) high = next_high;
  }
  return low;
}

// One input array and the ring that follows it. Counts bytes, from the granule that the array
// starts in.
struct Feed {
  Address begin = 0, end = 0;  // of the array
  Address fetched = 0;         // granules before this are in the ring or have been
  Address last = 0;            // the block needs nothing from here on
  std::byte* ring = nullptr;
  std::uint32_t ring_bytes = 0;

  Feed() = default;
  template <class T>
  __device__ Feed(const T* array, std::uint64_t count, std::uint64_t first, std::uint64_t last_one,
                  std::byte* ring_at, std::uint32_t capacity)
      : begin(reinterpret_cast<Address>(array)),
        end(reinterpret_cast<Address>(array + count)),
        fetched(granule_floor(reinterpret_cast<Address>(array + first))),
        last(granule_ceil(reinterpret_cast<Address>(array + last_one))),
        ring(ring_at),
        ring_bytes(static_cast<std::uint32_t>(capacity * sizeof(T))) {
    if (first == last_one) last = fetched;
  }

  // Fetches what fits behind `needed`, the address of the first record still in use.
  __device__ void refill(Address needed, std::uint64_t* barrier) {
    const Address room = granule_floor(needed) + ring_bytes;
    const Address to = room < last ? room : last;
    const Address from = fetched;
    if (from < to) fetched = to;
    fetch(begin, end, from, to, ring,
          static_cast<std::uint32_t>(from - granule_floor(begin)) & (ring_bytes - 1), ring_bytes,
          barrier);
  }
};

template <class Policy, bool aligned, class Key, class Value, class Less>
__global__ void __launch_bounds__(Policy::threads)
    ring_merge(Sequence<Key, Value> a, Sequence<Key, Value> b, Output<Key, Value> output,
               Less less) {
  using Layout = RingLayout<Policy, Key, Value>;
  constexpr std::uint32_t tile = Layout::tile;
  constexpr std::uint32_t capacity = Layout::capacity;
  constexpr std::uint32_t mask = Layout::mask;
  constexpr int items = Policy::items;
  constexpr bool values = has_values<Value>;
  constexpr bool bulk = aligned && has_bulk_copies;
  constexpr std::uint32_t feeds = values ? 4 : 2;

  extern __shared__ __align__(128) std::byte memory[];
  __shared__ std::uint64_t stretch[2];     // co-ranks of the stretch's ends
  __shared__ std::uint32_t consumed_a[2];  // by the last tile, alternating
  constexpr std::uint32_t barrier_count = Layout::ahead + 1;
  __shared__ std::uint64_t barriers[barrier_count];  // the refills take turns

  const std::uint32_t thread = threadIdx.x;
  const std::uint64_t total = a.count + b.count;
  const std::uint64_t tiles = (total + tile - 1) / tile;
  std::uint64_t rank = tiles * blockIdx.x / gridDim.x * tile;
  std::uint64_t rank_end = tiles * (blockIdx.x + 1) / gridDim.x * tile;
  if (rank_end > total) rank_end = total;

  if (thread < 64) {
    const std::uint64_t co_rank = warp_co_rank(thread < 32 ? rank : rank_end, a.keys, a.count,
                                               b.keys, b.count, less);
    if (thread % 32 == 0) stretch[thread / 32] = co_rank;
  }
  if constexpr (bulk) {
    if (thread < barrier_count) {
      cuda::ptx::mbarrier_init(&barriers[thread], feeds);
      cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
  }
  __syncthreads();

  std::uint64_t i = stretch[0];  // the first records not yet consumed
  std::uint64_t j = rank - i;
  const std::uint64_t a_end = stretch[1];
  const std::uint64_t b_end = rank_end - a_end;

  Key* const keys = reinterpret_cast<Key*>(memory);
  Value* const ring_values = reinterpret_cast<Value*>(memory + Layout::values);

  // Where record 0 of each input would stand in its ring.
  std::uint32_t key_shift_a = 0, key_shift_b = 0, value_shift_a = 0, value_shift_b = 0;
  Feed feed;
  std::uint64_t element_fetched[2] = {i, j};
  if constexpr (bulk) {
    key_shift_a = granule_shift(a.keys);
    key_shift_b = granule_shift(b.keys);
    if (thread == 0) feed = Feed(a.keys, a.count, i, a_end, memory, capacity);
    if (thread == 1)
      feed = Feed(b.keys, b.count, j, b_end, memory + capacity * sizeof(Key), capacity);
    if constexpr (values) {
      value_shift_a = granule_shift(a.values);
      value_shift_b = granule_shift(b.values);
      std::byte* const at = memory + Layout::values;
      if (thread == 2) feed = Feed(a.values, a.count, i, a_end, at, capacity);
      if (thread == 3)
        feed = Feed(b.values, b.count, j, b_end, at + capacity * sizeof(Value), capacity);
    }
  }

  const auto refill = [&](std::uint32_t refills) {
    if constexpr (bulk) {
      if (thread < feeds) {
        const std::uint64_t first = thread % 2 == 0 ? i : j;
        feed.refill(feed.begin + first * (thread < 2 ? bytes_of<Key> : bytes_of<Value>),
                    &barriers[refills % barrier_count]);
      }
    } else {
      const auto copy = [&](const Sequence<Key, Value>& from, std::uint64_t first,
                            std::uint64_t end, std::uint64_t& fetched, std::uint32_t ring) {
        const std::uint64_t to = first + capacity < end ? first + capacity : end;
        for (std::uint64_t n = fetched + thread; n < to; n += Policy::threads) {
          const std::uint32_t slot = ring + (static_cast<std::uint32_t>(n) & mask);
          copy_element(&keys[slot], &from.keys[n]);
          if constexpr (values) copy_element(&ring_values[slot], &from.values[n]);
        }
        fetched = to;
      };
      copy(a, i, a_end, element_fetched[0], 0);
      copy(b, j, b_end, element_fetched[1], capacity);
    }
  };
  refill(0);
  if constexpr (!bulk) {
    element_copies_done();
    __syncthreads();
  }

  for (std::uint32_t n_tile = 0; rank < rank_end; ++n_tile) {
    const auto count = static_cast<std::uint32_t>(rank_end - rank < tile ? rank_end - rank : tile);
    const auto a_left = static_cast<std::uint32_t>(a_end - i < tile ? a_end - i : tile);
    const auto b_left = static_cast<std::uint32_t>(b_end - j < tile ? b_end - j : tile);
    const std::uint32_t ring_a = static_cast<std::uint32_t>(i) + key_shift_a;
    const std::uint32_t ring_b = static_cast<std::uint32_t>(j) + key_shift_b;
    const auto slot_a = [=](std::uint32_t n) { return (ring_a + n) & mask; };
    const auto slot_b = [=](std::uint32_t n) { return capacity | ((ring_b + n) & mask); };

    if constexpr (bulk) {
      const std::uint32_t refills = n_tile < Layout::ahead ? 0 : n_tile - Layout::ahead;
      wait(&barriers[refills % barrier_count], refills / barrier_count % 2);
    }

    const std::uint32_t mine = thread * items < count ? thread * items : count;
    const std::uint32_t my_a = tile_co_rank(
        mine, [&](std::uint32_t n) { return keys[slot_a(n)]; }, a_left,
        [&](std::uint32_t n) { return keys[slot_b(n)]; }, b_left, less);
    Key merged[items];
    std::uint32_t slots[items];
    const std::uint32_t at_a = slot_a(my_a);
    const std::uint32_t next_a =
        a_left == tile && b_left == tile
            ? serial_merge<false>(keys, Wrapping{mask}, at_a, 0, slot_b(mine - my_a), 0, merged,
                                  slots, less)
            : serial_merge<true>(keys, Wrapping{mask}, at_a, a_left - my_a, slot_b(mine - my_a),
                                 b_left - (mine - my_a), merged, slots, less);
    if (thread == Policy::threads - 1)
      consumed_a[n_tile % 2] = my_a + ((next_a - at_a) & mask);

    Key* const key_stage = reinterpret_cast<Key*>(memory + Layout::key_stages +
                                                  n_tile % 2 * Layout::key_stage_bytes);
    Value* const value_stage = reinterpret_cast<Value*>(memory + Layout::value_stages +
                                                        n_tile % 2 * Layout::value_stage_bytes);
    std::uint32_t key_shift = 0, value_shift = 0;
    if constexpr (bulk) {
      key_shift = granule_shift(output.keys + rank);
      if constexpr (values) value_shift = granule_shift(output.values + rank);
    }
    if (mine < count) {
#pragma unroll
      for (int n = 0; n < items; ++n) {
        key_stage[key_shift + mine + n] = merged[n];
        if constexpr (values) {
          const std::uint32_t in_b = slots[n] & capacity;
          const std::uint32_t shift =
              in_b ? value_shift_b - key_shift_b : value_shift_a - key_shift_a;
          value_stage[value_shift + mine + n] = ring_values[in_b | ((slots[n] + shift) & mask)];
        }
      }
    }

    // The other stage, which the next tile writes to, must have been read, and the element copies
    // of the last refill must have arrived.
    if constexpr (bulk) {
      release_staged();
      if (thread / 32 == 1) staged_is_read();
    } else {
      element_copies_done();
    }
    __syncthreads();

    const std::uint32_t from_a = count == tile ? consumed_a[n_tile % 2] : a_left;
    i += from_a;
    j += count - from_a;
    if constexpr (bulk) {
      if (thread == 32) store(key_stage, key_shift, count, output.keys + rank);
      if constexpr (values)
        if (thread == 33) store(value_stage, value_shift, count, output.values + rank);
    } else {
      for (std::uint32_t n = thread; n < count; n += Policy::threads) {
        output.keys[rank + n] = key_stage[n];
        if constexpr (values) output.values[rank + n] = value_stage[n];
      }
    }
    rank += count;
    if (rank < rank_end) refill(n_tile + 1);
  }
  // A block's memory must outlive its bulk stores.
  if constexpr (bulk)
    if (thread / 32 == 1) staged_is_read();
}

}  // namespace corank::device::detail
