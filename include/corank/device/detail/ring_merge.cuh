// Merges two runs through circular buffers that are refilled while the thread block merges. This is
// the production two-way merge.
//
// A block produces a stretch of output, which is a few tiles with known ends, and keeps a ring of
// each input in shared memory. Every thread finds its part of a tile by co-rank and merges it in
// registers. The next tile begins where the last thread stops, so tiles need no search of their
// own, and every record is loaded once. Each tile takes one barrier. After it, a dedicated warp
// starts the bulk store of the results and the bulk copies that refill the consumed room. Both
// overlap with the next tile's merge.
//
// A ring holds several tiles. A tile consumes at most one tile of either input, so earlier refills
// suffice, and the latest ones may still be in flight.
//
// There are many more stretches than resident blocks: multiprocessors differ in memory speed, and
// with equal shares the slowest would decide.
//
// Source: Hwu, Kirk, El Hajj, "Programming Massively Parallel Processors", 4th ed., chapter 12, for
// the circular buffers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "corank/device/detail/async.cuh"
#include "corank/device/detail/policy.cuh"
#include "corank/device/detail/tile.cuh"
#include "corank/device/sequence.cuh"

namespace corank::device::detail {

template <class Policy, class Key, class Value>
struct RingLayout {
  static constexpr std::uint32_t tile = Policy::threads * Policy::items;
  static constexpr std::uint32_t stretch = tile * Policy::stretch;
  // Records per ring: a power of two, so that a mask yields the slot. The granule of the first
  // record cannot be refilled while the record is needed.
  static constexpr std::uint32_t capacity = std::bit_ceil(Policy::tiles * tile + granule);
  static constexpr std::uint32_t mask = capacity - 1;
  // Tiles that a refill covers beyond the one it was made for. As many of the latest refills may
  // still be in flight.
  static constexpr std::uint32_t ahead = (capacity - granule) / tile - 1;
  static_assert(ahead >= 1);

  template <class T>
  static constexpr std::uint32_t stage_bytes = tile* bytes_of<T> + granule;

  // Offsets in shared memory: the key rings, the value rings, two key stages, two value stages.
  static constexpr std::uint32_t values = 2 * capacity * bytes_of<Key>;
  static constexpr std::uint32_t key_stages = values + 2 * capacity * bytes_of<Value>;
  static constexpr std::uint32_t key_stage_bytes =
      (stage_bytes<Key> + granule - 1) / granule * granule;
  static constexpr std::uint32_t value_stages = key_stages + 2 * key_stage_bytes;
  static constexpr std::uint32_t value_stage_bytes =
      has_values<Value> ? (stage_bytes<Value> + granule - 1) / granule * granule : 0;
  static constexpr std::uint32_t bytes = value_stages + 2 * value_stage_bytes;
};

// Narrows [low, high) by one round of a search that `threads` neighbours share. Each tests one
// place; the result is between two of them. place(t) must ascend with t. `before` must hold for all
// places before the result, and for no other.
template <std::uint32_t threads, class Place, class Before>
__device__ void narrow(std::uint64_t& low, std::uint64_t& high, Place place, Before before) {
  const std::uint32_t mine = threadIdx.x % threads;
  const std::uint32_t lanes = (~0u >> (32 - threads)) << (threadIdx.x % 32 - mine);
  const auto passed = static_cast<std::uint32_t>(__popc(__ballot_sync(lanes, before(place(mine)))));
  if (passed < threads) high = place(passed);
  if (passed > 0) low = place(passed - 1) + 1;
}

// Searches [low, high) with `threads` neighbours, starting around `guess`. Half of them probe
// within 2 · spread of it, the others within 8 · spread.
template <std::uint32_t threads, class Before>
__device__ std::uint64_t search(std::uint64_t low, std::uint64_t high, std::uint64_t guess,
                                std::uint64_t spread, Before before) {
  if (low >= high) return low;
  const auto about = [=](std::uint32_t t) {
    const bool above = t >= threads / 2;
    const std::uint64_t step = above ? 2 * t + 1 - threads : threads - 1 - 2 * t;
    const std::uint64_t distance = 8 * spread * step * step / ((threads - 1) * (threads - 1));
    const std::uint64_t place = above ? guess + distance : guess < distance ? 0 : guess - distance;
    return place < low ? low : place < high ? place : high - 1;
  };
  narrow<threads>(low, high, about, before);
  while (low < high) {
    const auto evenly = [first = low, doubt = high - low](std::uint32_t t) {
      return first + doubt * (t + 1) / (threads + 1);
    };
    narrow<threads>(low, high, evenly, before);
  }
  return low;
}

// Sets cuts[n] to the number of records of a among the first n · stretch outputs, for n < count.
//
// A plain search is a long chain of dependent accesses, each to a memory burst of its own.
// Therefore, of a block's cuts, only the first and the last are searched for in all of a, by a warp
// each; the others lie between these two. Every search begins where the cut would be if a and b
// were evenly mixed. For random keys the error of this guess grows with the square root of the
// number of records.
inline constexpr std::uint32_t cut_threads = 8;  // threads per cut
inline constexpr std::uint32_t block_cuts = 32;
template <class Key, class Value, class Less>
__global__ void __launch_bounds__(cut_threads* block_cuts)
    cut_stretches(Sequence<Key, Value> a, Sequence<Key, Value> b, std::uint32_t stretch,
                  std::uint64_t count, std::uint64_t* cuts, Less less) {
  __shared__ std::uint64_t ends[2];
  await_predecessor();
  const std::uint64_t total = a.count + b.count;
  const auto rank_of = [&](std::uint64_t n) { return n * stretch < total ? n * stretch : total; };
  // Searches between two known cuts, (low_rank, low) and (high_rank, high).
  const auto cut_at = [&]<std::uint32_t threads>(std::uint64_t rank, std::uint64_t low_rank,
                                                 std::uint64_t low, std::uint64_t high_rank,
                                                 std::uint64_t high) {
    const auto portion =
        static_cast<float>(rank - low_rank) / static_cast<float>(high_rank - low_rank);
    const auto guess = low + static_cast<std::uint64_t>(portion * static_cast<float>(high - low));
    const auto spread =
        static_cast<std::uint64_t>(sqrtf(static_cast<float>(high_rank - low_rank)) / 4 + 1);
    const std::uint64_t b_from_high = high_rank - high, b_from_low = low_rank - low;
    const std::uint64_t least = rank < b_from_high ? 0 : rank - b_from_high;
    const std::uint64_t most = rank - b_from_low;
    return search<threads>(low < least ? least : low, high < most ? high : most, guess, spread,
                           [&](std::uint64_t i) { return !less(b.keys[rank - 1 - i], a.keys[i]); });
  };

  const std::uint64_t first = std::uint64_t{blockIdx.x} * block_cuts;
  const std::uint64_t last = first + block_cuts < count ? first + block_cuts : count - 1;
  const std::uint64_t first_rank = rank_of(first), last_rank = rank_of(last);
  if (threadIdx.x < 64) {
    const std::uint32_t end = threadIdx.x / 32;
    const std::uint64_t cut =
        cut_at.template operator()<32>(end == 0 ? first_rank : last_rank, 0, 0, total, a.count);
    if (threadIdx.x % 32 == 0) ends[end] = cut;
  }
  __syncthreads();

  const std::uint64_t n = first + threadIdx.x / cut_threads;
  if (n >= count) return;
  const std::uint64_t cut =
      cut_at.template operator()<cut_threads>(rank_of(n), first_rank, ends[0], last_rank, ends[1]);
  if (threadIdx.x % cut_threads == 0) cuts[n] = cut;
}

// Copies an input array into the ring that follows it. Counts bytes, from the granule in which the
// array starts.
struct Feed {
  Address begin = 0, end = 0;  // bounds of the array
  Address fetched = 0;         // all granules before this address were fetched
  Address last = 0;            // the block needs no granule from here on
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

  // Fetches as much as fits after `needed`, the address of the first record still in use.
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

// Produces one stretch of the output per thread block.
template <class Policy, bool aligned, class Key, class Value, class Less>
__global__ void __launch_bounds__(Policy::block)
    ring_merge(Sequence<Key, Value> a, Sequence<Key, Value> b, const std::uint64_t* cuts,
               Output<Key, Value> output, Less less) {
  using Layout = RingLayout<Policy, Key, Value>;
  constexpr std::uint32_t tile = Layout::tile;
  constexpr std::uint32_t capacity = Layout::capacity;
  constexpr std::uint32_t mask = Layout::mask;
  constexpr int items = Policy::items;
  constexpr bool values = has_values<Value>;
  constexpr bool bulk = aligned && has_bulk_copies;
  constexpr std::uint32_t feeds = values ? 4 : 2;

  extern __shared__ __align__(128) std::byte memory[];
  __shared__ std::uint32_t consumed_a[2];  // records of a in the last tile; tiles alternate
  constexpr std::uint32_t barrier_count = Layout::ahead + 1;
  __shared__ std::uint64_t barriers[barrier_count];  // refills alternate

  const std::uint32_t thread = threadIdx.x;
  const bool merges = thread < Policy::threads;
  const std::uint32_t mover = thread - Policy::threads;  // lane of the moving warp, unless `merges`
  const std::uint64_t total = a.count + b.count;
  std::uint64_t rank = std::uint64_t{blockIdx.x} * Layout::stretch;
  const std::uint64_t rank_end = rank + Layout::stretch < total ? rank + Layout::stretch : total;
  if constexpr (bulk) {
    if (thread < barrier_count) {
      cuda::ptx::mbarrier_init(&barriers[thread], feeds);
      cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
  }
  __syncthreads();
  await_predecessor();

  std::uint64_t i = cuts[blockIdx.x];  // the first records not yet consumed
  std::uint64_t j = rank - i;
  const std::uint64_t a_end = cuts[blockIdx.x + 1];
  const std::uint64_t b_end = rank_end - a_end;
  if (a_end < i || b_end < j) return;  // an input is not sorted

  Key* const keys = reinterpret_cast<Key*>(memory);
  Value* const ring_values = reinterpret_cast<Value*>(memory + Layout::values);

  // Slot of record 0 of each input in its ring.
  std::uint32_t key_shift_a = 0, key_shift_b = 0, value_shift_a = 0, value_shift_b = 0;
  Feed feed;
  std::uint64_t element_fetched[2] = {i, j};
  if constexpr (bulk) {
    key_shift_a = granule_shift(a.keys);
    key_shift_b = granule_shift(b.keys);
    if (mover == 0) feed = Feed(a.keys, a.count, i, a_end, memory, capacity);
    if (mover == 1)
      feed = Feed(b.keys, b.count, j, b_end, memory + capacity * sizeof(Key), capacity);
    if constexpr (values) {
      value_shift_a = granule_shift(a.values);
      value_shift_b = granule_shift(b.values);
      std::byte* const at = memory + Layout::values;
      if (mover == 2) feed = Feed(a.values, a.count, i, a_end, at, capacity);
      if (mover == 3)
        feed = Feed(b.values, b.count, j, b_end, at + capacity * sizeof(Value), capacity);
    }
  }

  const auto refill = [&](std::uint32_t refills) {
    if constexpr (bulk) {
      if (mover < feeds) {
        const std::uint64_t first = mover % 2 == 0 ? i : j;
        feed.refill(feed.begin + first * (mover < 2 ? bytes_of<Key> : bytes_of<Value>),
                    &barriers[refills % barrier_count]);
      }
    } else {
      const auto copy = [&](const Sequence<Key, Value>& from, std::uint64_t first,
                            std::uint64_t end, std::uint64_t& fetched, std::uint32_t ring) {
        const std::uint64_t to = first + capacity < end ? first + capacity : end;
        for (std::uint64_t n = fetched + thread; n < to; n += Policy::block) {
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
    Key* const key_stage =
        reinterpret_cast<Key*>(memory + Layout::key_stages + n_tile % 2 * Layout::key_stage_bytes);
    Value* const value_stage = reinterpret_cast<Value*>(memory + Layout::value_stages +
                                                        n_tile % 2 * Layout::value_stage_bytes);
    std::uint32_t key_shift = 0, value_shift = 0;
    if constexpr (bulk) {
      key_shift = granule_shift(output.keys + rank);
      if constexpr (values) value_shift = granule_shift(output.values + rank);
    }

    const std::uint32_t mine = thread * items;
    if (merges && mine < count) {
      if constexpr (bulk) {
        const std::uint32_t refills = n_tile < Layout::ahead ? 0 : n_tile - Layout::ahead;
        wait(&barriers[refills % barrier_count], refills / barrier_count % 2);
      }
      const std::uint32_t ring_a = static_cast<std::uint32_t>(i) + key_shift_a;
      const std::uint32_t ring_b = static_cast<std::uint32_t>(j) + key_shift_b;
      const auto slot_a = [=](std::uint32_t n) { return (ring_a + n) & mask; };
      const auto slot_b = [=](std::uint32_t n) { return capacity | ((ring_b + n) & mask); };
      const std::uint32_t my_a = tile_co_rank(
          mine, [&](std::uint32_t n) { return keys[slot_a(n)]; }, a_left,
          [&](std::uint32_t n) { return keys[slot_b(n)]; }, b_left, less);
      const std::uint32_t my_b = mine - my_a;
      Key merged[items];
      std::uint32_t slots[items];
      const std::uint32_t at_a = slot_a(my_a);
      const std::uint32_t next_a =
          a_left == tile && b_left == tile
              ? serial_merge<false>(keys, Wrapping{mask}, at_a, 0, slot_b(my_b), 0, merged, slots,
                                    less)
              : serial_merge<true>(keys, Wrapping{mask}, at_a, a_left - my_a, slot_b(my_b),
                                   b_left - my_b, merged, slots, less);
      if (thread == Policy::threads - 1) consumed_a[n_tile % 2] = my_a + ((next_a - at_a) & mask);
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

    // The other stage, which the next tile overwrites, must have been read. The element copies of
    // the last refill must have arrived.
    if constexpr (bulk) {
      if (merges)
        release_staged();
      else
        staged_is_read();
    } else {
      element_copies_done();
    }
    __syncthreads();

    const std::uint32_t from_a = count == tile ? consumed_a[n_tile % 2] : a_left;
    i += from_a;
    j += count - from_a;
    rank += count;
    if (rank < rank_end) refill(n_tile + 1);
    if constexpr (bulk) {
      if (mover == 4) store(key_stage, key_shift, count, output.keys + rank - count);
      if constexpr (values)
        if (mover == 5) store(value_stage, value_shift, count, output.values + rank - count);
    } else {
      for (std::uint32_t n = thread; n < count; n += Policy::block) {
        output.keys[rank - count + n] = key_stage[n];
        if constexpr (values) output.values[rank - count + n] = value_stage[n];
      }
    }
  }
  // A block's shared memory must outlive its bulk stores.
  if constexpr (bulk)
    if (!merges) staged_is_read();
}

}  // namespace corank::device::detail
