// Merges up to 16 runs in one pass over memory.
//
// A thread block loads a piece of each run into shared memory, merges the pieces pairwise in
// rounds, and stores the tile. The rounds move keys and, if there are values, 16-bit positions; the
// values are permuted once, at the end.
//
// Tiles are cut by regular sampling. Every `stride`-th record of every run is a sample, this same
// merge merges the samples, and every m-th merged sample is the last record of a tile. A search for
// it in each run gives its exact, stable co-rank. Tiles therefore differ slightly in size, but an
// exact k-way selection per tile is not needed. The few tiles that exceed shared memory are merged
// in two parts.
//
// Source: Shi and Schaeffer, "Parallel sorting by regular sampling" (1992).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda/std/bit>

#include "corank/device/detail/async.cuh"
#include "corank/device/detail/partition.cuh"
#include "corank/device/detail/plan.hpp"
#include "corank/device/detail/policy.cuh"
#include "corank/device/detail/tile.cuh"
#include "corank/device/sequence.cuh"

namespace corank::device::detail {

// Number of lists in all rounds of a tile: 16 at first, then 8, 4, 2, 1.
inline constexpr std::uint32_t all_lists = 2 * max_fan_in - 1;
CORANK_HOST_DEVICE constexpr std::uint32_t first_list(std::uint32_t round) {
  return 2 * max_fan_in - (2 * max_fan_in >> round);
}

template <class Policy, class Key, class Value>
struct FusedLayout {
  static constexpr std::uint32_t slots = Policy::threads * Policy::items;
  static_assert(slots <= 1u << 16, "places are 16-bit");
  // Leaves room for every pair of the first round to start at a thread's first slot.
  static constexpr std::uint32_t tile_records = slots - max_fan_in / 2 * Policy::items;

  // Each piece may begin and end inside a granule, and a thread may read beyond the last piece.
  static constexpr std::uint32_t slack = 2 * granule * max_fan_in;
  static_assert(Policy::items * bytes_of<Key> <= slack);
  static constexpr std::uint32_t key_bytes =
      (slots * bytes_of<Key> + slack + granule - 1) / granule * granule;
  static constexpr std::uint32_t value_bytes =
      has_values<Value> ? (slots * bytes_of<Value> + slack + granule - 1) / granule * granule : 0;
  static constexpr std::uint32_t places = key_bytes + value_bytes;
  static constexpr std::uint32_t bytes =
      places + (has_values<Value> ? (slots + Policy::items) * 2 : 0);
};

// Returns the last of `count` groups with first(group) <= n.
template <class First>
__device__ std::uint32_t find_group(std::uint32_t count, std::uint64_t n, First first) {
  std::uint32_t low = 0, high = count - 1;
  while (low < high) {
    const std::uint32_t middle = (low + high + 1) / 2;
    if (first(middle) <= n)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// Sets samples[s] to the last record of the s-th whole stride, counted over all runs; its value is
// s. `sampled` tells where the samples of each run begin.
template <class Key, class Value>
__global__ void take_samples(const Sequence<Key, Value>* runs, std::uint32_t run_count,
                             const Sequence<Key, std::uint32_t>* sampled, std::uint32_t stride,
                             std::uint64_t count, Output<Key, std::uint32_t> samples) {
  await_predecessor();
  const std::uint64_t s = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (s >= count) return;
  const auto first = [&](std::uint32_t run) {
    return static_cast<std::uint64_t>(sampled[run].keys - sampled[0].keys);
  };
  const std::uint32_t run = find_group(run_count, s, first);
  samples.keys[s] = runs[run].keys[(s - first(run) + 1) * stride - 1];
  samples.values[s] = static_cast<std::uint32_t>(s);
}

// The next level's records, per run and merged, which cut a level into tiles.
template <class Key>
struct Samples {
  const Sequence<Key, std::uint32_t>* runs;
  Output<Key, std::uint32_t> merged;
  std::uint32_t per_tile;
  std::uint32_t stride;
};

// Returns how many records of the group's i-th run sort no later than the group's n-th merged
// sample. Never exceeds the run's length, even if the runs are not sorted.
template <class Key, class Value, class Less>
__device__ std::uint64_t cut_at(const Samples<Key>& samples, const Sequence<Key, Value>* runs,
                                const Group& group, std::uint32_t i, std::uint64_t n, Less less) {
  const Key pivot = samples.merged.keys[group.first_sample + n];
  const std::uint32_t sample = samples.merged.values[group.first_sample + n];
  const auto first = [&](std::uint32_t run) {
    return static_cast<std::uint64_t>(samples.runs[group.first_run + run].keys -
                                      samples.runs[0].keys);
  };
  const std::uint32_t pivot_run = find_group(group.runs, sample, first);
  const Sequence<Key, Value> run = runs[group.first_run + i];
  if (i == pivot_run) {
    const std::uint64_t taken = (sample - first(i) + 1) * samples.stride;
    return taken < run.count ? taken : run.count;
  }
  // Searches the run's samples first: they are few enough for the cache, and narrow the rest to one
  // stride.
  const Sequence<Key, std::uint32_t> run_samples = samples.runs[group.first_run + i];
  const bool with_equal = i < pivot_run;
  const std::uint64_t low =
      samples.stride * split(run_samples.keys, 0, run_samples.count, pivot, with_equal, less);
  const std::uint64_t high = low + samples.stride - 1;
  return split(run.keys, low, high < run.count ? high : run.count, pivot, with_equal, less);
}

// Computes how many records of each run precede each border between two tiles of a group. cuts[b ·
// fan + i] belongs to the b-th border and the group's i-th run.
template <class Key, class Value, class Less>
__global__ void cut_tiles(const Sequence<Key, Value>* runs, const Group* groups,
                          std::uint32_t group_count, Samples<Key> samples, std::uint32_t fan,
                          std::uint64_t borders, std::uint64_t* cuts, Less less) {
  await_predecessor();
  const std::uint64_t n = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (n >= borders * fan) return;
  // Neighbouring threads search one run for neighbouring borders, so most of their probes coincide.
  const std::uint64_t border = n % borders;
  const auto i = static_cast<std::uint32_t>(n / borders);

  const auto first_border = [&](std::uint32_t g) { return groups[g].first_tile - g; };
  const std::uint32_t g = find_group(group_count, border, first_border);
  const Group group = groups[g];
  if (i < group.runs)
    cuts[border * fan + i] = cut_at(samples, runs, group, i,
                                    (border - first_border(g) + 1) * samples.per_tile - 1, less);
}

// Merges one tile per thread block.
template <class Policy, bool aligned, class Key, class Value, class Less>
__global__ void __launch_bounds__(Policy::threads, Policy::blocks)
    fused_merge(const Sequence<Key, Value>* runs, const Group* groups, std::uint32_t group_count,
                const std::uint64_t* cuts, Samples<Key> samples, std::uint32_t fan,
                Output<Key, Value> output, Less less) {
  using Layout = FusedLayout<Policy, Key, Value>;
  constexpr int items = Policy::items;
  constexpr bool values = has_values<Value>;
  constexpr bool bulk = aligned && has_bulk_copies;

  extern __shared__ __align__(128) std::byte memory[];
  Key* const keys = reinterpret_cast<Key*>(memory);
  Value* const tile_values = reinterpret_cast<Value*>(memory + Layout::key_bytes);
  auto* const places = reinterpret_cast<std::uint16_t*>(memory + Layout::places);
  __shared__ std::uint64_t barriers[2];  // for keys, for values
  __shared__ std::uint32_t starts[all_lists], counts[all_lists];
  __shared__ std::uint32_t value_offsets[max_fan_in];  // from a key's slot to its value's slot
  __shared__ const Key* piece_keys[max_fan_in];
  __shared__ const Value* piece_values[max_fan_in];
  __shared__ std::uint64_t first_output;
  __shared__ bool fits;  // the whole tile is merged in one part

  const std::uint32_t thread = threadIdx.x;
  if constexpr (bulk)
    if (thread < 2) {
      cuda::ptx::mbarrier_init(&barriers[thread], 32);
      cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
  await_predecessor();
  for (std::uint32_t part = 0;; ++part) {
    if (thread < 32) {
      const std::uint32_t lane = thread;
      const std::uint64_t tile = blockIdx.x;
      const std::uint32_t g =
          find_group(group_count, tile, [&](std::uint32_t n) { return groups[n].first_tile; });
      const Group group = groups[g];
      const auto sum = [](std::uint64_t n) {
        for (std::uint32_t step = 16; step != 0; step /= 2) n += __shfl_xor_sync(~0u, n, step);
        return n;
      };
      Sequence<Key, Value> run;
      std::uint64_t low = 0, high = 0;
      if (lane < group.runs) {
        run = runs[group.first_run + lane];
        const std::uint64_t border = tile - g;  // the one after this tile
        low = tile == group.first_tile ? 0 : cuts[(border - 1) * fan + lane];
        high = tile + 1 == groups[g + 1].first_tile ? run.count : cuts[border * fan + lane];
      }
      const bool whole = sum(high - low) <= Layout::tile_records;
      if (!whole) {
        const std::uint64_t n =
            (tile - group.first_tile) * samples.per_tile + (samples.per_tile - 1) / 2;
        std::uint64_t middle = 0;
        if (lane < group.runs && n < groups[g + 1].first_sample - group.first_sample)
          middle = cut_at(samples, runs, group, lane, n, less);
        (part == 0 ? high : low) = middle;
      }
      // Borders of unsorted runs may cross; the records between them are not merged.
      if (__any_sync(~0u, low > high) || sum(high - low) > Layout::tile_records) high = low;
      const auto count = static_cast<std::uint32_t>(high - low);
      const std::uint64_t before = sum(low);
      if (lane == 0) {
        first_output = group.first_output + before;
        fits = whole;
      }

      const auto scan = [&](std::uint32_t n) {  // exclusive prefix sum
        std::uint32_t sum = n;
        for (std::uint32_t step = 1; step < 32; step *= 2) {
          const std::uint32_t below = __shfl_up_sync(~0u, sum, step);
          if (lane >= step) sum += below;
        }
        return sum - n;
      };
      std::uint32_t start = 0, value_start = 0;
      if constexpr (bulk) {
        const auto load = [&](const auto* array, std::byte* to, std::uint32_t bytes,
                              std::uint64_t* barrier) {
          const auto address = [&](std::uint64_t n) {
            return reinterpret_cast<Address>(array + n);
          };
          const Address from = granule_floor(address(low));
          const Address end = count == 0 ? from : granule_ceil(address(high));
          const std::uint32_t place = scan(static_cast<std::uint32_t>(end - from));
          fetch(address(0), address(run.count), from, end, to, place, bytes, barrier);
          return static_cast<std::uint32_t>(place / sizeof(*array)) + granule_shift(array + low);
        };
        __syncwarp();
        start = load(run.keys, memory, Layout::key_bytes, &barriers[0]);
        if constexpr (values)
          value_start =
              load(run.values, memory + Layout::key_bytes, Layout::value_bytes, &barriers[1]);
      } else {
        start = value_start = scan(count);
        if (lane < max_fan_in) {
          piece_keys[lane] = run.keys + low;
          if constexpr (values) piece_values[lane] = run.values + low;
        }
      }
      if (lane < max_fan_in) {
        starts[lane] = start;
        counts[lane] = count;
        value_offsets[lane] = value_start - start;
      }
      __syncwarp();
      for (std::uint32_t round = 1, lists = max_fan_in / 2; lists != 0; ++round, lists /= 2) {
        const std::uint32_t from = first_list(round - 1) + 2 * lane;
        const std::uint32_t records = lane < lists ? counts[from] + counts[from + 1] : 0;
        const std::uint32_t room = (records + items - 1) / items * items;
        const std::uint32_t at = round == 1 ? scan(room) : lane < lists ? starts[from] : 0;
        if (lane < lists) {
          starts[first_list(round) + lane] = at;
          counts[first_list(round) + lane] = records;
        }
        __syncwarp();
      }
    }
    __syncthreads();

    if constexpr (bulk) {
      wait(&barriers[0], part);
    } else {
      for (std::uint32_t i = thread / 32; i < fan; i += Policy::threads / 32)
        for (std::uint32_t n = thread % 32; n < counts[i]; n += 32) {
          copy_element(&keys[starts[i] + n], &piece_keys[i][n]);
          if constexpr (values) copy_element(&tile_values[starts[i] + n], &piece_values[i][n]);
        }
      element_copies_done();
      __syncthreads();
    }

    // A thread fills the slots from `mine` on in every round; they belong to one pair.
    const std::uint32_t mine = thread * items;
    std::uint32_t pair = find_group(max_fan_in / 2, mine,
                                    [&](std::uint32_t n) { return starts[first_list(1) + n]; });
    const std::uint32_t count = counts[all_lists - 1];
    Output<Key, Value> to{output.keys + first_output};
    const std::uint32_t key_shift = bulk ? granule_shift(to.keys) : 0;
    std::uint32_t value_shift = 0;
    if constexpr (values) {
      to.values = output.values + first_output;
      if constexpr (bulk) value_shift = granule_shift(to.values);
    }

#pragma unroll 1
    for (std::uint32_t round = 0, lists = cuda::std::bit_ceil(fan); lists > 1;
         ++round, lists /= 2) {
      const std::uint32_t list = first_list(round) + 2 * pair;
      const std::uint32_t a = starts[list], b = starts[list + 1];
      const std::uint32_t a_count = counts[list], b_count = counts[list + 1];
      const std::uint32_t local = mine - starts[first_list(round + 1) + pair];
      const bool active = local < a_count + b_count;
      const bool last = lists == 2;
      Key merged[items];
      std::uint32_t slots[items];
      if (active) {
        const std::uint32_t i = tile_co_rank(
            local, [&](std::uint32_t n) { return keys[a + n]; }, a_count,
            [&](std::uint32_t n) { return keys[b + n]; }, b_count, less);
        serial_merge<true>(keys, Straight{}, a + i, a_count - i, b + (local - i),
                           b_count - (local - i), merged, slots, less);
        if constexpr (values) {
          const std::uint32_t offset_a = value_offsets[2 * pair];
          const std::uint32_t offset_b = value_offsets[2 * pair + 1];
#pragma unroll
          for (int n = 0; n < items; ++n) {
            if (round == 0)
              slots[n] += slots[n] >= b ? offset_b : offset_a;
            else
              slots[n] = places[slots[n]];
          }
        }
      } else {
        // Set on every path; otherwise the compiler keeps their registers alive through both loops.
#pragma unroll
        for (int n = 0; n < items; ++n) {
          merged[n] = keys[0];
          slots[n] = 0;
        }
      }
      __syncthreads();
      if (active) {
        const std::uint32_t slot = last ? key_shift + local : mine;
#pragma unroll
        for (int n = 0; n < items; ++n) {
          keys[slot + n] = merged[n];
          if constexpr (values)
            if (!last) places[slot + n] = static_cast<std::uint16_t>(slots[n]);
        }
      }
      if constexpr (values) {
        // Moves the values after the keys, whose registers they reuse.
        if (last) {
          Value moved[items];
          if constexpr (bulk) wait(&barriers[1], part);
#pragma unroll
          for (int n = 0; n < items; ++n)
            moved[n] = tile_values[local + n < a_count + b_count ? slots[n] : 0];
          __syncthreads();
          if (active) {
#pragma unroll
            for (int n = 0; n < items; ++n) tile_values[value_shift + local + n] = moved[n];
          }
        }
      }
      if constexpr (bulk)
        if (last) release_staged();
      __syncthreads();
      pair /= 2;
    }

    if constexpr (bulk) {
      if (thread == 0) store(keys, key_shift, count, to.keys);
      if constexpr (values)
        if (thread == 32) store(tile_values, value_shift, count, to.values);
      if (thread % 32 == 0) staged_is_read();
    } else {
      for (std::uint32_t n = thread; n < count; n += Policy::threads) {
        to.keys[n] = keys[n];
        if constexpr (values) to.values[n] = tile_values[n];
      }
    }
    if (fits || part == 1) return;
    if constexpr (bulk) release_staged();
    __syncthreads();
  }
}

}  // namespace corank::device::detail
