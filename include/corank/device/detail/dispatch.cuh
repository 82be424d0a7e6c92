// Host side of the device merges: checks arguments, divides the temporary storage, launches
// kernels. Everything runs asynchronously on the caller's stream; errors are returned as
// cudaError_t.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "corank/device/detail/fused_merge.cuh"
#include "corank/device/detail/partition.cuh"
#include "corank/device/detail/plan.hpp"
#include "corank/device/detail/ring_merge.cuh"
#include "corank/device/sequence.cuh"

namespace corank::device::detail {

// Allocates pieces of the temporary storage. A dry arena, without storage, only adds up their
// sizes.
class Arena {
 public:
  Arena(void* base, std::size_t limit) : base_(static_cast<std::byte*>(base)), limit_(limit) {}

  template <class T>
  T* take(std::uint64_t count) {
    T* const piece = dry() ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (count * sizeof(T) + alignment - 1) / alignment * alignment;
    return piece;
  }
  bool dry() const { return base_ == nullptr; }
  bool fits() const {
    return bytes_ <= limit_ && reinterpret_cast<Address>(base_) % alignment == 0;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t alignment = 256;
  std::byte* base_;
  std::size_t limit_;
  std::size_t bytes_ = 0;
};

inline cudaError_t is_hopper(bool& yes) {
  int device = 0, capability = 0;
  if (const auto error = cudaGetDevice(&device)) return error;
  if (const auto error =
          cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device))
    return error;
  yes = capability >= 9;
  return cudaSuccess;
}

// Sets `yes` to whether await_predecessor() waits. A kernel compiled for an older architecture does
// not, so it must not start before its predecessor has ended.
static __global__ void any_kernel() {}
inline cudaError_t can_overlap(bool& yes) {
  if (const auto error = is_hopper(yes)) return error;
  static const bool compiled_for_hopper = [] {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, any_kernel) == cudaSuccess &&
           attributes.ptxVersion >= 90;
  }();
  yes = yes && compiled_for_hopper;
  return cudaSuccess;
}

// Launches a kernel that calls await_predecessor().
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), std::uint64_t blocks, unsigned threads,
                   std::size_t shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  bool overlaps = false;
  if (const auto error = can_overlap(overlaps)) return error;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = overlaps ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// Launches a kernel with one thread per item, for `count` items.
inline constexpr unsigned plain_threads = 256;
template <class... Parameters, class... Arguments>
cudaError_t launch_plain(void (*kernel)(Parameters...), std::uint64_t count, cudaStream_t stream,
                         const Arguments&... arguments) {
  return launch(kernel, (count + plain_threads - 1) / plain_threads, plain_threads, 0, stream,
                arguments...);
}

// Passes host tables to the device as kernel parameters. This needs no pinned memory and no
// waiting, and a graph that captures the call keeps a copy.
struct TableChunk {
  static constexpr std::size_t max_bytes = 16384;
  std::byte bytes[max_bytes];
};
static __global__ void write_table(const __grid_constant__ TableChunk chunk, std::byte* to,
                                   std::uint32_t bytes) {
  await_predecessor();
  for (std::uint32_t n = blockIdx.x * blockDim.x + threadIdx.x; n < bytes;
       n += gridDim.x * blockDim.x)
    to[n] = chunk.bytes[n];
}

inline cudaError_t upload(std::span<const std::byte> table, std::byte* to, cudaStream_t stream) {
  TableChunk chunk;
  while (!table.empty()) {
    const std::size_t bytes = std::min(table.size(), TableChunk::max_bytes);
    std::memcpy(chunk.bytes, table.data(), bytes);
    if (const auto error =
            launch_plain(write_table, bytes, stream, chunk, to, static_cast<std::uint32_t>(bytes)))
      return error;
    table = table.subspan(bytes);
    to += bytes;
  }
  return cudaSuccess;
}

// Builds a table on the host; add() returns the offset that its part will have on the device.
class Table {
 public:
  template <class T>
  std::size_t add(std::span<const T> part) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + (part.size_bytes() + 15) / 16 * 16);
    if (!part.empty()) std::memcpy(bytes_.data() + at, part.data(), part.size_bytes());
    return at;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

template <class T>
bool is_valid(const T* array) {
  return array && reinterpret_cast<Address>(array) % alignof(T) == 0;
}
template <class Key, class Value>
bool is_valid(const Sequence<Key, Value>& run) {
  return is_valid(run.keys) && (!has_values<Value> || is_valid(run.values));
}
template <class Key, class Value>
bool is_valid(const Output<Key, Value>& output) {
  return is_valid(output.keys) && (!has_values<Value> || is_valid(output.values));
}

template <class Key, class Value>
bool overlap(const Sequence<Key, Value>& run, const Output<Key, Value>& output,
             std::uint64_t total) {
  const auto meet = [&](const auto* x, const auto* y) {
    const auto at_x = reinterpret_cast<Address>(x), at_y = reinterpret_cast<Address>(y);
    return at_x < at_y + total * sizeof(*y) && at_y < at_x + run.count * sizeof(*x);
  };
  return meet(run.keys, output.keys) || (has_values<Value> && meet(run.values, output.values));
}

// Maximum records of a merge: more than any device holds, and few enough that their bytes fit 64
// bits.
inline constexpr std::uint64_t max_records = std::uint64_t{1} << 48;

// Whether elements of these types can be moved by granules; on_granules() tells whether given
// arrays allow it.
template <class Key, class Value>
inline constexpr bool may_fit_granules = fits_granules<Key> &&
                                         (!has_values<Value> || fits_granules<Value>);

template <class Key, class Value>
bool on_granules(const Key* keys, const Value* values) {
  const auto fits = [](const auto* array) {
    return reinterpret_cast<Address>(array) % std::min<std::size_t>(sizeof(*array), granule) == 0;
  };
  return fits(keys) && (!has_values<Value> || fits(values));
}

template <class Policy, bool aligned, class Key, class Value, class Less>
cudaError_t launch_ring(Sequence<Key, Value> a, Sequence<Key, Value> b, const std::uint64_t* cuts,
                        std::uint64_t stretches, Output<Key, Value> output, cudaStream_t stream,
                        Less less) {
  using Layout = RingLayout<Policy, Key, Value>;
  const auto kernel = ring_merge<Policy, aligned, Key, Value, Less>;
  if (const auto error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout::bytes))
    return error;
  return launch(kernel, stretches, Policy::block, Layout::bytes, stream, a, b, cuts, output, less);
}

template <class Target, class Key, class Value, class Less>
cudaError_t merge_two(Arena& arena, Sequence<Key, Value> a, Sequence<Key, Value> b,
                      Output<Key, Value> output, cudaStream_t stream, Less less) {
  using Policy = typename Target::template Ring<Key, Value>;
  constexpr std::uint32_t stretch = RingLayout<Policy, Key, Value>::stretch;
  const std::uint64_t stretches = (a.count + b.count + stretch - 1) / stretch;
  auto* const cuts = arena.take<std::uint64_t>(stretches + 1);
  if (arena.dry() || stretches == 0) return cudaSuccess;
  if (!arena.fits()) return cudaErrorInvalidValue;
  if (const auto error =
          launch(cut_stretches<Key, Value, Less>, stretches / block_cuts + 1,
                 cut_threads * block_cuts, 0, stream, a, b, stretch, stretches + 1, cuts, less))
    return error;
  if constexpr (Target::bulk && may_fit_granules<Key, Value>)
    if (on_granules(a.keys, a.values) && on_granules(b.keys, b.values) &&
        on_granules(output.keys, output.values))
      return launch_ring<Policy, true>(a, b, cuts, stretches, output, stream, less);
  return launch_ring<Policy, false>(a, b, cuts, stretches, output, stream, less);
}

template <class Policy, bool aligned, class Key, class Value, class Less>
cudaError_t launch_fused(const Sequence<Key, Value>* runs, const Group* groups, const Level& level,
                         const std::uint64_t* cuts, const Samples<Key>& samples, std::uint32_t fan,
                         Output<Key, Value> output, cudaStream_t stream, Less less) {
  using Layout = FusedLayout<Policy, Key, Value>;
  const auto kernel = fused_merge<Policy, aligned, Key, Value, Less>;
  if (const auto error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout::bytes))
    return error;
  return launch(kernel, level.tiles(), Policy::threads, Layout::bytes, stream, runs, groups,
                level.groups.size() - 1, cuts, samples, fan, output, less);
}

// Runs one pass: merges each `fan` neighbouring runs into one, contiguously in `output`. With a dry
// arena, only adds up the storage that the pass needs.
template <bool bulk, class Policy, class SamplePolicy, class Key, class Value, class Less>
cudaError_t merge_pass(Arena& arena, std::span<const Sequence<Key, Value>> runs, std::uint32_t fan,
                       Output<Key, Value> output, cudaStream_t stream, Less less) {
  using Sample = Sequence<Key, std::uint32_t>;
  constexpr LevelShape shape = {Policy::stride, FusedLayout<Policy, Key, Value>::tile_records,
                                FusedLayout<SamplePolicy, Key, std::uint32_t>::tile_records};
  static_assert(halves_fit(shape.tile_records, shape.stride, max_fan_in) &&
                halves_fit(shape.sample_records, shape.stride, max_fan_in));
  std::vector<std::uint64_t> counts;
  for (const auto& run : runs) counts.push_back(run.count);
  const std::vector<Level> levels = plan_pass(counts, fan, shape);

  Table table;
  struct Place {
    std::size_t runs, groups;                  // offsets in the table
    Output<Key, std::uint32_t> taken, merged;  // the level's samples
    std::uint64_t* cuts;
  };
  std::vector<Place> places;
  for (const Level& level : levels) {
    Place place{};
    if (places.empty()) {
      place.runs = table.add(runs);
    } else {
      place.taken = {arena.take<Key>(level.records()), arena.take<std::uint32_t>(level.records())};
      place.merged = {arena.take<Key>(level.records()), arena.take<std::uint32_t>(level.records())};
      std::vector<Sample> samples;
      Sample sample{place.taken.keys, place.taken.values, 0};
      for (const std::uint64_t count : level.counts) {
        sample.count = count;
        samples.push_back(sample);
        if (arena.dry()) continue;
        sample.keys += count;
        sample.values += count;
      }
      place.runs = table.add(std::span<const Sample>(samples));
    }
    place.groups = table.add(std::span<const Group>(level.groups));
    place.cuts = arena.take<std::uint64_t>(level.borders() * fan);
    places.push_back(place);
  }
  std::byte* const on_device = arena.take<std::byte>(table.bytes().size());
  if (arena.dry()) return cudaSuccess;
  if (!arena.fits()) return cudaErrorInvalidValue;
  if (const auto error = upload(table.bytes(), on_device, stream)) return error;

  const auto* const records =
      reinterpret_cast<const Sequence<Key, Value>*>(on_device + places[0].runs);
  const auto samples = [&](std::size_t l) {
    return reinterpret_cast<const Sample*>(on_device + places[l].runs);
  };
  // Returns the next level's samples, which cut level `l`; the last level is not cut.
  const auto samples_of = [&](std::size_t l) {
    if (l + 1 == levels.size()) return Samples<Key>{};
    return Samples<Key>{samples(l + 1), places[l + 1].merged, levels[l].samples_per_tile,
                        Policy::stride};
  };
  const auto groups = [&](std::size_t l) {
    return reinterpret_cast<const Group*>(on_device + places[l].groups);
  };

  for (std::size_t l = 1; l < levels.size(); ++l) {
    const std::uint64_t count = levels[l].records();
    if (count == 0) continue;
    const auto take = [&]<class V>(const Sequence<Key, V>* from) {
      return launch_plain(take_samples<Key, V>, count, stream, from, runs.size(), samples(l),
                          Policy::stride, count, places[l].taken);
    };
    if (const auto error = l == 1 ? take(records) : take(samples(l - 1))) return error;
  }

  bool aligned = on_granules(output.keys, output.values);
  for (const auto& run : runs) aligned = aligned && on_granules(run.keys, run.values);
  for (std::size_t l = levels.size(); l-- != 0;) {
    const Level& level = levels[l];
    const Place& place = places[l];
    if (level.borders() != 0) {
      const auto cut = [&]<class V>(const Sequence<Key, V>* from) {
        return launch_plain(cut_tiles<Key, V, Less>, level.borders() * fan, stream, from, groups(l),
                            level.groups.size() - 1, samples_of(l), fan, level.borders(),
                            place.cuts, less);
      };
      if (const auto error = l == 0 ? cut(records) : cut(samples(l))) return error;
    }
    const auto merge_level = [&]<class P, bool granules>(const auto* from, const auto& to) {
      return launch_fused < P, bulk && granules > (from, groups(l), level, place.cuts,
                                                   samples_of(l), fan, to, stream, less);
    };
    cudaError_t error;
    if (l != 0)
      error = merge_level.template operator()<SamplePolicy, fits_granules<Key>>(samples(l),
                                                                                place.merged);
    else if (aligned)
      error =
          merge_level.template operator()<Policy, may_fit_granules<Key, Value>>(records, output);
    else
      error = merge_level.template operator()<Policy, false>(records, output);
    if (error) return error;
  }
  return cudaSuccess;
}

template <class Target, class Key, class Value, class Less>
cudaError_t merge_k_for(void* temporary, std::size_t& temporary_bytes,
                        std::span<const Sequence<Key, Value>> sequences, Output<Key, Value> output,
                        cudaStream_t stream, Less less) {
  using Policy = typename Target::template Fused<Key, Value>;
  using SamplePolicy = typename Target::template Fused<Key, std::uint32_t>;
  using Run = Sequence<Key, Value>;
  static_assert(bytes_of<Key> + bytes_of<Value> <= max_record_bytes,
                "merge keys with places instead, and gather the records by these afterwards");

  Arena arena(temporary, temporary_bytes);
  std::uint64_t total = 0;
  std::vector<Run> runs;
  for (const Run& run : sequences) {
    if (run.count > max_records - total) return cudaErrorInvalidValue;
    total += run.count;
    if (run.count != 0) runs.push_back(run);
  }
  if (!arena.dry()) {
    if (total != 0 && !is_valid(output)) return cudaErrorInvalidValue;
    for (const Run& run : runs)
      if (!is_valid(run) || overlap(run, output, total)) return cudaErrorInvalidValue;
  }

  if (runs.size() <= 2) {
    runs.resize(2);
    const auto error = merge_two<Target>(arena, runs[0], runs[1], output, stream, less);
    if (arena.dry()) temporary_bytes = arena.bytes();
    return error;
  }

  // Samples are counted in 32 bits.
  if (total / Policy::stride > std::numeric_limits<std::uint32_t>::max())
    return cudaErrorInvalidValue;

  // Passes alternate between the output and one buffer, so that the last pass writes the output.
  const std::uint32_t fan = fan_in(runs.size());
  std::uint32_t passes = 0;
  for (std::uint64_t left = runs.size(); left > 1; left = (left + fan - 1) / fan) ++passes;
  Output<Key, Value> buffer;
  if (passes > 1) {
    buffer.keys = arena.template take<Key>(total);
    if constexpr (has_values<Value>) buffer.values = arena.template take<Value>(total);
  }
  std::size_t most = 0;
  for (; passes != 0; --passes) {
    const Output<Key, Value> to = passes % 2 == 1 ? output : buffer;
    const auto pass_fan = static_cast<std::uint32_t>(std::min<std::size_t>(fan, runs.size()));
    Arena scratch = arena;
    if (const auto error = merge_pass<Target::bulk, Policy, SamplePolicy>(
            scratch, std::span<const Run>(runs), pass_fan, to, stream, less))
      return error;
    most = std::max(most, scratch.bytes());
    std::vector<Run> next;
    Run merged{to.keys, to.values, 0};
    for (std::size_t first = 0; first < runs.size(); first += fan) {
      merged.count = 0;
      for (std::size_t i = first; i < std::min<std::size_t>(first + fan, runs.size()); ++i)
        merged.count += runs[i].count;
      next.push_back(merged);
      if (arena.dry()) continue;
      merged.keys += merged.count;
      if constexpr (has_values<Value>) merged.values += merged.count;
    }
    runs = std::move(next);
  }
  if (arena.dry()) temporary_bytes = most;
  return cudaSuccess;
}

template <class Key, class Value, class Less>
cudaError_t merge_k(void* temporary, std::size_t& temporary_bytes,
                    std::span<const Sequence<Key, Value>> sequences, Output<Key, Value> output,
                    cudaStream_t stream, Less less) {
  bool hopper = false;
  if (const auto error = is_hopper(hopper)) return error;
  return hopper
             ? merge_k_for<Hopper>(temporary, temporary_bytes, sequences, output, stream, less)
             : merge_k_for<Portable>(temporary, temporary_bytes, sequences, output, stream, less);
}

template <class Key, class Value, class Less>
cudaError_t partition_k(void* temporary, std::size_t& temporary_bytes,
                        std::span<const Sequence<Key, Value>> sequences,
                        std::span<const std::uint64_t> ranks, std::uint64_t* positions,
                        cudaStream_t stream, Less less) {
  Arena arena(temporary, temporary_bytes);
  Table table;
  const std::size_t sequences_at = table.add(sequences);
  const std::size_t ranks_at = table.add(ranks);
  std::byte* const on_device = arena.take<std::byte>(table.bytes().size());
  auto* const highs = arena.take<std::uint64_t>(ranks.size() * sequences.size());
  if (arena.dry()) {
    temporary_bytes = std::max<std::size_t>(arena.bytes(), 1);
    return cudaSuccess;
  }

  std::uint64_t total = 0;
  for (const auto& sequence : sequences) {
    if (sequence.count > max_records - total) return cudaErrorInvalidValue;
    if (sequence.count != 0 && !is_valid(sequence.keys)) return cudaErrorInvalidValue;
    total += sequence.count;
  }
  for (const std::uint64_t rank : ranks)
    if (rank > total) return cudaErrorInvalidValue;
  if (!arena.fits()) return cudaErrorInvalidValue;
  if (ranks.empty() || sequences.empty()) return cudaSuccess;
  if (!is_valid(positions)) return cudaErrorInvalidValue;

  if (const auto error = upload(table.bytes(), on_device, stream)) return error;
  return launch(partition<Key, Value, Less>, ranks.size(), partition_threads, 0, stream,
                reinterpret_cast<const Sequence<Key, Value>*>(on_device + sequences_at),
                sequences.size(), reinterpret_cast<const std::uint64_t*>(on_device + ranks_at),
                positions, highs, less);
}

}  // namespace corank::device::detail
