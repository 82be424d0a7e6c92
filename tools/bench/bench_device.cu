// Benchmarks the device merges against the other kernels of the ladder, CUB and Thrust, with a copy
// of the same bytes as the baseline. Every output is checked for order, content and stability.
#include <cuda_runtime_api.h>
#include <thrust/execution_policy.h>
#include <thrust/merge.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cub/device/device_merge.cuh>
#include <cub/device/device_scan.cuh>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "corank/device/merge.cuh"
#include "corank/record.hpp"
#include "kernels/formats/unit_kernels.cuh"
#include "kernels/ladder/ladder.cuh"

namespace {

namespace device = corank::device;
using device::NoValue;
using device::Output;
using device::Sequence;
using nlohmann::json;

void check(cudaError_t error, const char* what = "CUDA") {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// A record whose order depends on `key`; `origin` identifies it.
template <class T>
struct alignas(2 * sizeof(T)) Record {
  T key;
  T origin;
};
struct Less {
  template <class T>
  __host__ __device__ bool operator()(const Record<T>& x, const Record<T>& y) const {
    return x.key < y.key;
  }
  template <class T>
  __host__ __device__ bool operator()(const T& x, const T& y) const {
    return x < y;
  }
};

template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::uint64_t count) {
    check(cudaMalloc(&memory_, std::max<std::uint64_t>(1, count * sizeof(T))));
  }
  DeviceArray(DeviceArray&& other) noexcept : memory_(other.memory_) { other.memory_ = nullptr; }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~DeviceArray() { cudaFree(memory_); }
  T* get() const { return memory_; }

 private:
  T* memory_ = nullptr;
};

__host__ __device__ std::uint64_t scramble(std::uint64_t x) {  // the finaliser of splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr unsigned block_threads = 256;
constexpr unsigned block_count = 132 * 16;
__device__ std::uint64_t first_index() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ std::uint64_t index_step() {
  return std::uint64_t{gridDim.x} * blockDim.x;
}

// Returns a key; for record types, `origin` is the record's position in all inputs.
template <class Key>
__device__ Key make_key(std::uint64_t key, std::uint64_t origin) {
  if constexpr (std::is_integral_v<Key>)
    return static_cast<Key>(key);
  else
    return {static_cast<decltype(Key::key)>(key), static_cast<decltype(Key::key)>(origin)};
}
template <class Key>
__host__ __device__ auto bare_key(const Key& key) {
  if constexpr (std::is_integral_v<Key>)
    return key;
  else
    return key.key;
}

__global__ void random_gaps(std::uint64_t* gaps, std::uint64_t count, std::uint64_t seed,
                            unsigned shift) {
  for (std::uint64_t n = first_index(); n < count; n += index_step())
    gaps[n] = scramble(seed + n) >> shift;
}
// How the keys of a run are generated.
enum class Kind { random, equal, disjoint, blocks };
template <class Key>
__global__ void write_keys(Key* keys, std::uint64_t count, const std::uint64_t* sums, Kind kind,
                           std::uint64_t run, std::uint64_t k, std::uint64_t first_origin) {
  for (std::uint64_t n = first_index(); n < count; n += index_step()) {
    const std::uint64_t key = kind == Kind::random     ? sums[n]
                              : kind == Kind::equal    ? 7
                              : kind == Kind::disjoint ? first_origin + n
                                                       : n / 1000 * k + run;
    keys[n] = make_key<Key>(key, first_origin + n);
  }
}
template <class Value>
__global__ void write_values(Value* values, std::uint64_t count) {
  for (std::uint64_t n = first_index(); n < count; n += index_step())
    values[n] = static_cast<Value>(n);
}

struct Tally {
  unsigned long long content;       // order-independent sum over all records
  unsigned long long out_of_order;  // records that precede a record with a smaller key
};
template <class Key, class Value>
__global__ void tally(const Key* keys, const Value* values, std::uint64_t count, bool ordered,
                      Tally* result) {
  Tally mine{};
  for (std::uint64_t n = first_index(); n < count; n += index_step()) {
    const auto hash = [&](std::uint64_t at) {
      std::uint64_t origin = 0;
      if constexpr (device::has_values<Value>)
        origin = values[at];
      else if constexpr (!std::is_integral_v<Key>)
        origin = keys[at].origin;
      return origin;
    };
    mine.content += scramble(static_cast<std::uint64_t>(bare_key(keys[n])) * 3 + hash(n));
    if (ordered && n + 1 < count) {
      const auto x = bare_key(keys[n]), y = bare_key(keys[n + 1]);
      constexpr bool traced = device::has_values<Value> || !std::is_integral_v<Key>;
      if (y < x || (traced && x == y && hash(n + 1) <= hash(n))) ++mine.out_of_order;
    }
  }
  atomicAdd(&result->content, mine.content);
  atomicAdd(&result->out_of_order, mine.out_of_order);
}

// k contiguous sorted runs, and space for their merge.
template <class Key, class Value>
struct Problem {
  static constexpr bool values = device::has_values<Value>;

  Problem(const std::vector<std::uint64_t>& counts, Kind kind) {
    for (const auto count : counts) total += count;
    keys = DeviceArray<Key>(total);
    out_keys = DeviceArray<Key>(total);
    if constexpr (values) {
      in_values = DeviceArray<Value>(total);
      out_values = DeviceArray<Value>(total);
      write_values<<<block_count, block_threads>>>(in_values.get(), total);
    }
    std::uint64_t first = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const std::uint64_t count = counts[r];
      DeviceArray<std::uint64_t> sums;
      if (kind == Kind::random && count != 0) {
        sums = DeviceArray<std::uint64_t>(count);
        const unsigned bits = 8 * sizeof(decltype(bare_key(Key{})));
        unsigned shift = 64 - bits;
        for (std::uint64_t n = count; n > 1; n = (n + 1) / 2) ++shift;
        random_gaps<<<block_count, block_threads>>>(sums.get(), count, scramble(r + 1), shift);
        std::size_t bytes = 0;
        check(cub::DeviceScan::InclusiveSum(nullptr, bytes, sums.get(), sums.get(), count));
        DeviceArray<char> temporary(bytes);
        check(cub::DeviceScan::InclusiveSum(temporary.get(), bytes, sums.get(), sums.get(), count));
        check(cudaDeviceSynchronize());
      }
      write_keys<<<block_count, block_threads>>>(keys.get() + first, count, sums.get(), kind, r,
                                                 counts.size(), first);
      check(cudaDeviceSynchronize());
      runs.push_back({keys.get() + first, values ? in_values.get() + first : nullptr, count});
      first += count;
    }
    expected = sum(keys.get(), in_values.get(), false);
  }

  std::uint64_t bytes() const { return total * (sizeof(Key) + (values ? sizeof(Value) : 0)); }
  Output<Key, Value> output() const { return {out_keys.get(), out_values.get()}; }

  Tally sum(const Key* k, const Value* v, bool ordered) const {
    DeviceArray<Tally> result(1);
    check(cudaMemset(result.get(), 0, sizeof(Tally)));
    tally<<<block_count, block_threads>>>(k, v, total, ordered, result.get());
    Tally host;
    check(cudaMemcpy(&host, result.get(), sizeof(Tally), cudaMemcpyDeviceToHost), "tally");
    return host;
  }
  void poison() const {
    check(cudaMemset(out_keys.get(), 0xA5, total * sizeof(Key)));
    if (values) check(cudaMemset(out_values.get(), 0xA5, total * sizeof(Value)));
  }
  bool verify() const {
    const Tally got = sum(out_keys.get(), out_values.get(), true);
    return got.out_of_order == 0 && got.content == expected.content;
  }

  std::uint64_t total = 0;
  DeviceArray<Key> keys, out_keys;
  DeviceArray<Value> in_values, out_values;
  std::vector<Sequence<Key, Value>> runs;
  Tally expected{};
};

class Bench {
 public:
  explicit Bench(int repeats) : repeats_(repeats) {
    check(cudaEventCreate(&start_));
    check(cudaEventCreate(&stop_));
  }

  // Returns the median seconds of `repeats` timed calls. Untimed calls run first, because calls
  // after a pause are slower.
  double time(const std::function<void()>& work, int repeats) {
    const auto warm = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    do {
      work();
      check(cudaDeviceSynchronize());
    } while (std::chrono::steady_clock::now() < warm);
    std::vector<double> seconds;
    for (int r = 0; r < repeats; ++r) {
      check(cudaEventRecord(start_));
      work();
      check(cudaEventRecord(stop_));
      check(cudaEventSynchronize(stop_));
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, start_, stop_));
      seconds.push_back(milliseconds / 1e3);
    }
    std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
    return seconds[repeats / 2];
  }

  // Times and checks `work`, which solves the problem `times` times.
  template <class P>
  void run(const P& problem, const std::string& table, const std::string& column,
           const std::string& name, const std::function<void()>& work, bool is_copy = false,
           unsigned times = 1) {
    problem.poison();
    const double seconds = time(work, repeats_) / times;
    check(cudaGetLastError(), name.c_str());
    if (is_copy) copy_seconds_ = seconds;
    const bool right = is_copy || problem.verify();
    all_right = all_right && right;
    const double rate = static_cast<double>(problem.bytes()) / seconds / 1e9;
    std::printf("%-26s %-14s %-28s %9.1f us %8.1f GB/s %6.3f of copy  %s\n", table.c_str(),
                column.c_str(), name.c_str(), seconds * 1e6, rate, copy_seconds_ / seconds,
                right ? "right" : "WRONG");
    std::fflush(stdout);
    results.push_back({{"table", table},
                       {"column", column},
                       {"name", name},
                       {"records", problem.total},
                       {"seconds", seconds},
                       {"payload_gb_per_s", rate},
                       {"of_copy", copy_seconds_ / seconds},
                       {"right", right}});
  }

  template <class P>
  void copy(const P& problem, const std::string& table, const std::string& column) {
    run(
        problem, table, column, "copy",
        [&] {
          check(cudaMemcpyAsync(problem.out_keys.get(), problem.keys.get(),
                                problem.total * sizeof(*problem.keys.get()),
                                cudaMemcpyDeviceToDevice));
          if (problem.values)
            check(cudaMemcpyAsync(problem.out_values.get(), problem.in_values.get(),
                                  problem.total * sizeof(*problem.in_values.get()),
                                  cudaMemcpyDeviceToDevice));
        },
        true);
  }

  json results = json::array();
  bool all_right = true;

 private:
  int repeats_;
  cudaEvent_t start_, stop_;
  double copy_seconds_ = 0;
};

// Calls a function that follows CUB's convention, for the size of its storage, and allocates it.
template <class Call>
DeviceArray<char> storage_for(Call call, std::size_t& bytes) {
  bytes = 0;
  check(call(nullptr, bytes));
  return DeviceArray<char>(bytes);
}

template <class Key, class Value>
cudaError_t cub_merge(void* temporary, std::size_t& bytes, const Sequence<Key, Value>& a,
                      const Sequence<Key, Value>& b, Output<Key, Value> to,
                      cudaStream_t stream = nullptr) {
  const auto a_count = static_cast<std::int64_t>(a.count),
             b_count = static_cast<std::int64_t>(b.count);
  if constexpr (device::has_values<Value>)
    return cub::DeviceMerge::MergePairs(temporary, bytes, a.keys, a.values, a_count, b.keys,
                                        b.values, b_count, to.keys, to.values, Less{}, stream);
  else
    return cub::DeviceMerge::MergeKeys(temporary, bytes, a.keys, a_count, b.keys, b_count, to.keys,
                                       Less{}, stream);
}

template <class Key, class Value>
void two_way(Bench& bench, const std::string& column, std::uint64_t total, Kind kind,
             const std::string& kind_name, bool ladder) {
  const Problem<Key, Value> problem({total / 2, total - total / 2}, kind);
  const auto a = problem.runs[0], b = problem.runs[1];
  const auto to = problem.output();
  const std::string table = "two-way, " + kind_name;
  bench.copy(problem, table, column);

  std::size_t bytes = 0;
  const auto production = [&](void* temporary, std::size_t& size) {
    return device::merge(temporary, size, a, b, to, nullptr, Less{});
  };
  const auto temporary = storage_for(production, bytes);
  bench.run(problem, table, column, "corank merge",
            [&] { check(production(temporary.get(), bytes)); });

  std::size_t cub_bytes = 0;
  const auto toolkit = [&](void* storage, std::size_t& size) {
    return cub_merge(storage, size, a, b, to);
  };
  const auto cub_storage = storage_for(toolkit, cub_bytes);
  bench.run(problem, table, column, "CUB DeviceMerge",
            [&] { check(toolkit(cub_storage.get(), cub_bytes)); });
  if (!ladder) return;

  bench.run(problem, table, column, "thrust::merge", [&] {
    const auto policy = thrust::cuda::par_nosync;
    if constexpr (device::has_values<Value>)
      thrust::merge_by_key(policy, a.keys, a.keys + a.count, b.keys, b.keys + b.count, a.values,
                           b.values, to.keys, to.values, Less{});
    else
      thrust::merge(policy, a.keys, a.keys + a.count, b.keys, b.keys + b.count, to.keys, Less{});
  });
  if constexpr (!device::has_values<Value>) {
    namespace rungs = corank::ladder;
    const auto grid = [&](std::uint64_t per_block) {
      return static_cast<unsigned>((total + per_block - 1) / per_block);
    };
    const std::uint64_t per_block = 1024 * 64;
    bench.run(problem, table, column, "circular buffer (textbook)", [&] {
      rungs::circular_buffer<<<grid(per_block), 256>>>(a.keys, a.count, b.keys, b.count, to.keys,
                                                       per_block, Less{});
    });
    bench.run(problem, table, column, "tiled, shared memory", [&] {
      rungs::tiled<<<grid(per_block), 256, 2 * 1024 * sizeof(Key)>>>(
          a.keys, a.count, b.keys, b.count, to.keys, per_block, 1024, Less{});
    });
    bench.run(problem, table, column, "coarsened, 8 a thread", [&] {
      rungs::coarsened<<<grid(2048), 256>>>(a.keys, a.count, b.keys, b.count, to.keys, 8, Less{});
    });
    bench.run(problem, table, column, "one thread an output", [&] {
      rungs::one_thread_an_output<<<grid(256), 256>>>(a.keys, a.count, b.keys, b.count, to.keys,
                                                      Less{});
    });
    const Problem<Key, Value> small({1u << 16, 1u << 16}, kind);
    bench.copy(small, table, column + ", tiny");
    bench.run(small, table, column + ", tiny", "sequential", [&] {
      rungs::sequential<<<1, 1>>>(small.runs[0].keys, small.runs[0].count, small.runs[1].keys,
                                  small.runs[1].count, small.out_keys.get(), Less{});
    });
  }
}

std::vector<std::uint64_t> even(std::uint64_t total, std::uint64_t k) {
  std::vector<std::uint64_t> counts(k, total / k);
  counts.back() += total % k;
  return counts;
}
std::vector<std::uint64_t> one_long(std::uint64_t total, std::uint64_t k) {
  std::vector<std::uint64_t> counts(k, total / 64 / k);
  counts[k / 2] = total - (k - 1) * counts[0];
  return counts;
}

// Merges k runs by a tree of CUB's two-way merges; the merges of a level are spread over streams.
template <class Key, class Value>
class CubTree {
 public:
  explicit CubTree(const Problem<Key, Value>& problem)
      : problem_(problem), keys_(problem.total), values_(problem.values ? problem.total : 1) {
    for (auto& stream : streams_) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto& event : events_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    std::size_t most = 1;
    const Sequence<Key, Value> all{problem.keys.get(), problem.in_values.get(),
                                   problem.total / 2 + 1};
    check(cub_merge(nullptr, most, all, all, problem.output()));
    storage_bytes_ = most;
    for (auto& storage : storages_) storage = DeviceArray<char>(most);
  }
  ~CubTree() {
    for (auto stream : streams_) cudaStreamDestroy(stream);
    for (auto event : events_) cudaEventDestroy(event);
  }

  void run() {
    auto runs = problem_.runs;
    unsigned levels = 0;
    for (std::size_t left = runs.size(); left > 1; left = (left + 1) / 2) ++levels;
    for (; levels != 0; --levels) {
      const Output<Key, Value> to =
          levels % 2 == 1 ? problem_.output() : Output<Key, Value>{keys_.get(), values_.get()};
      check(cudaEventRecord(events_[streams], nullptr));
      for (auto stream : streams_) check(cudaStreamWaitEvent(stream, events_[streams]));
      std::vector<Sequence<Key, Value>> next;
      std::uint64_t first = 0;
      for (std::size_t r = 0; r < runs.size(); r += 2) {
        const std::size_t s = r / 2 % streams;
        const Sequence<Key, Value> other =
            r + 1 < runs.size() ? runs[r + 1] : Sequence<Key, Value>{};
        Output<Key, Value> here{to.keys + first, nullptr};
        if (problem_.values) here.values = to.values + first;
        std::size_t bytes = storage_bytes_;
        check(cub_merge(storages_[s].get(), bytes, runs[r], other, here, streams_[s]));
        next.push_back({here.keys, here.values, runs[r].count + other.count});
        first += next.back().count;
      }
      for (unsigned s = 0; s < streams; ++s) {
        check(cudaEventRecord(events_[s], streams_[s]));
        check(cudaStreamWaitEvent(nullptr, events_[s]));
      }
      runs = std::move(next);
    }
  }

 private:
  static constexpr unsigned streams = 4;
  const Problem<Key, Value>& problem_;
  DeviceArray<Key> keys_;
  DeviceArray<Value> values_;
  cudaStream_t streams_[streams];
  cudaEvent_t events_[streams + 1];
  DeviceArray<char> storages_[streams];
  std::size_t storage_bytes_ = 0;
};

template <class Key, class Value>
void k_way(Bench& bench, const std::string& column, std::vector<std::uint64_t> counts, Kind kind,
           const std::string& kind_name, bool tree) {
  const Problem<Key, Value> problem(counts, kind);
  const std::string table = "k=" + std::to_string(counts.size()) + ", " + kind_name;
  bench.copy(problem, table, column);
  std::size_t bytes = 0;
  const auto production = [&](void* temporary, std::size_t& size) {
    return device::merge_k(temporary, size, std::span(problem.runs), problem.output(), nullptr,
                           Less{});
  };
  {
    const auto temporary = storage_for(production, bytes);
    bench.run(problem, table, column, "corank merge_k",
              [&] { check(production(temporary.get(), bytes)); });
  }
  if (tree) {
    CubTree<Key, Value> cub_tree(problem);
    bench.run(problem, table, column, "tree of CUB merges", [&] { cub_tree.run(); });
  }
}

// Times units of k runs in several concurrent streams, as the engine runs them. Each stream has its
// own inputs, outputs and storage.
template <class Key, class Value>
void units(Bench& bench, const std::string& column, const std::vector<std::uint64_t>& counts) {
  constexpr unsigned max_streams = 4, units_each = 8;
  struct Lane {
    explicit Lane(const std::vector<std::uint64_t>& counts_) : problem(counts_, Kind::random) {
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
      storage = storage_for([this](void* to, std::size_t& size) { return merge(to, size); }, bytes);
    }
    ~Lane() {
      cudaStreamDestroy(stream);
      cudaEventDestroy(done);
    }
    cudaError_t merge(void* temporary, std::size_t& size) const {
      return device::merge_k(temporary, size, std::span(problem.runs), problem.output(), stream,
                             Less{});
    }
    Problem<Key, Value> problem;
    cudaStream_t stream = nullptr;
    cudaEvent_t done = nullptr;
    std::size_t bytes = 0;
    DeviceArray<char> storage;
  };
  std::vector<std::unique_ptr<Lane>> lanes;
  while (lanes.size() < max_streams) lanes.push_back(std::make_unique<Lane>(counts));
  cudaEvent_t start = nullptr;
  check(cudaEventCreateWithFlags(&start, cudaEventDisableTiming));
  const std::string table = "units of 64 MiB, k=" + std::to_string(counts.size());
  bench.copy(lanes[0]->problem, table, column);
  for (unsigned streams = 1; streams <= max_streams; streams *= 2)
    bench.run(
        lanes[streams - 1]->problem, table, column,
        "corank merge_k, " + std::to_string(streams) + " streams",
        [&] {
          check(cudaEventRecord(start));
          for (unsigned s = 0; s < streams; ++s)
            check(cudaStreamWaitEvent(lanes[s]->stream, start));
          for (unsigned n = 0; n < units_each * streams; ++n) {
            Lane& lane = *lanes[n % streams];
            check(lane.merge(lane.storage.get(), lane.bytes));
          }
          for (unsigned s = 0; s < streams; ++s) {
            check(cudaEventRecord(lanes[s]->done, lanes[s]->stream));
            check(cudaStreamWaitEvent(nullptr, lanes[s]->done));
          }
        },
        false, units_each * streams);
  check(cudaEventDestroy(start));
}

// Writes records of any width: a big-endian key of at least eight bytes, the record's number in
// eight bytes, and a payload.
template <std::uint32_t record_bytes, std::uint32_t key_bytes>
__global__ void write_wide(std::byte* records, const std::uint64_t* keys, std::uint64_t count) {
  for (std::uint64_t n = first_index(); n < count; n += index_step()) {
    std::byte* const record = records + n * record_bytes;
    for (std::uint32_t b = 0; b < record_bytes; ++b) {
      const std::uint64_t word = b < 8               ? keys[n] >> (56 - 8 * b)
                                 : b < key_bytes     ? keys[n] % 3
                                 : b < key_bytes + 8 ? n >> (8 * (b - key_bytes))
                                                     : scramble(n) >> (b % 8 * 8);
      record[b] = static_cast<std::byte>(word);
    }
  }
}
template <std::uint32_t record_bytes, std::uint32_t key_bytes>
__global__ void tally_wide(const std::byte* records, std::uint64_t count, bool ordered,
                           Tally* result) {
  Tally mine{};
  for (std::uint64_t n = first_index(); n < count; n += index_step()) {
    const std::byte* const record = records + n * record_bytes;
    std::uint64_t hash = 0;
    for (std::uint32_t b = 0; b < record_bytes; ++b)
      hash = scramble(hash + static_cast<std::uint64_t>(record[b]));
    mine.content += hash;
    if (!ordered || n + 1 == count) continue;
    const std::byte* const next = record + record_bytes;
    int order = 0;
    for (std::uint32_t b = 0; b < key_bytes && order == 0; ++b)
      order = static_cast<int>(next[b]) - static_cast<int>(record[b]);
    for (std::uint32_t b = key_bytes + 8; b-- > key_bytes && order == 0;)
      order = static_cast<int>(next[b]) - static_cast<int>(record[b]);
    mine.out_of_order += order <= 0;
  }
  atomicAdd(&result->content, mine.content);
  atomicAdd(&result->out_of_order, mine.out_of_order);
}

// k contiguous runs of wide records, with the interface of Problem.
template <std::uint32_t record_bytes, std::uint32_t key_bytes>
class WideProblem {
 public:
  WideProblem(std::uint64_t total_, std::uint64_t k) : total(total_), keys(total * record_bytes) {
    out_keys = DeviceArray<std::byte>(bytes());
    {
      const Problem<std::uint64_t, NoValue> source(even(total, k), Kind::random);
      for (const auto& run : source.runs) counts.push_back(run.count);
      write_wide<record_bytes, key_bytes>
          <<<block_count, block_threads>>>(keys.get(), source.keys.get(), total);
      check(cudaDeviceSynchronize());
    }
    expected_ = sum(keys.get(), false);
  }
  std::uint64_t bytes() const { return total * record_bytes; }
  void poison() const { check(cudaMemset(out_keys.get(), 0xA5, bytes())); }
  bool verify() const {
    const Tally got = sum(out_keys.get(), true);
    return got.out_of_order == 0 && got.content == expected_.content;
  }

  std::uint64_t total;
  DeviceArray<std::byte> keys, out_keys;  // complete records
  std::vector<std::uint64_t> counts;

 private:
  Tally sum(const std::byte* records, bool ordered) const {
    DeviceArray<Tally> result(1);
    check(cudaMemset(result.get(), 0, sizeof(Tally)));
    tally_wide<record_bytes, key_bytes>
        <<<block_count, block_threads>>>(records, total, ordered, result.get());
    Tally host;
    check(cudaMemcpy(&host, result.get(), sizeof(Tally), cudaMemcpyDeviceToHost), "tally");
    return host;
  }
  Tally expected_{};
};

// Times the CUDA backend's merge of a unit on the device: encode keys, merge (key, row id) pairs,
// gather records.
template <std::uint32_t record_bytes, std::uint32_t key_bytes>
void wide(Bench& bench, const std::string& table, std::uint64_t total, std::uint64_t k) {
  namespace engine = corank;
  constexpr int words = key_bytes > 8 ? 2 : 1;
  using Merged = engine::Merged<words>;
  const WideProblem<record_bytes, key_bytes> problem(total, k);
  const std::string column =
      std::to_string(record_bytes) + "-byte record, " + std::to_string(key_bytes) + "-byte key";
  bench.run(
      problem, table, column, "copy",
      [&] {
        check(cudaMemcpyAsync(problem.out_keys.get(), problem.keys.get(), problem.bytes(),
                              cudaMemcpyDeviceToDevice));
      },
      true);

  const engine::KeyEncoding encoding(
      engine::Schema::parse("key:bytes" + std::to_string(key_bytes) + ",rest:bytes" +
                            std::to_string(record_bytes - key_bytes)),
      {});
  const auto upload = [](const auto& host) {
    using T = typename std::decay_t<decltype(host)>::value_type;
    DeviceArray<T> array(host.size());
    check(cudaMemcpy(array.get(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return array;
  };
  const auto pieces = upload(encoding.pieces());
  engine::KeyLayout layout = encoding.layout();
  layout.pieces = pieces.get();
  const DeviceArray<typename Merged::Key> keys(total), merged_keys(total);
  const DeviceArray<typename Merged::Value> locators(total), merged_locators(total);
  const engine::LocatedOutput<words> merged{merged_keys.get(), merged_locators.get()};
  std::vector<engine::StagedSegment> host_segments;
  std::vector<engine::LocatedSequence<words>> runs;
  std::uint64_t first = 0;
  for (const auto count : problem.counts) {
    host_segments.push_back({nullptr, first, 0, static_cast<std::uint32_t>(first * record_bytes)});
    runs.push_back({keys.get() + first, locators.get() + first, count});
    first += count;
  }
  const auto segments = upload(host_segments);
  const auto out_of_order = upload(std::vector<std::uint64_t>{engine::in_order});
  const engine::LocatedLess<words> less{layout, {problem.keys.get()}, out_of_order.get()};
  const auto merge = [&](void* temporary, std::size_t& size) {
    return device::merge_k(temporary, size, std::span(std::as_const(runs)), merged, nullptr,
                           Merged::less(less));
  };
  std::size_t bytes = 0;
  const auto storage = storage_for(merge, bytes);
  bench.run(problem, table, column, "corank encode, merge_k, gather", [&] {
    const auto blocks =
        static_cast<unsigned>((total + engine::block_threads - 1) / engine::block_threads);
    engine::encode_records<words><<<blocks, engine::block_threads>>>(
        segments.get(), runs.size(), total, less, {keys.get(), locators.get()}, out_of_order.get());
    check(merge(storage.get(), bytes));
    engine::launch_gather<words>({problem.keys.get()}, merged, total, record_bytes,
                                 problem.out_keys.get(), out_of_order.get(), nullptr);
  });
}

}  // namespace

int main(int argc, char** argv) try {
  std::map<std::string, std::string> options = {{"--log2-records", "28"}, {"--repeats", "15"},
                                                {"--json", ""},           {"--commit", "unknown"},
                                                {"--date", "unknown"},    {"--only", ""}};
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || !options.contains(argv[i])) {
      std::fprintf(stderr,
                   "usage: bench-device [--log2-records 28] [--repeats 15] [--json FILE] "
                   "[--commit HASH] [--date DATE] [--only two-way|k-way|wide|unit]\n");
      return 2;
    }
    options[argv[i]] = argv[i + 1];
  }
  const std::uint64_t total = std::uint64_t{1} << std::stoi(options["--log2-records"]);
  const auto wanted = [&](const char* part) {
    return options["--only"].empty() || options["--only"] == part;
  };
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));
  int driver = 0;
  check(cudaDriverGetVersion(&driver));
  std::printf("%s, %d multiprocessors, driver for CUDA %d, CCCL %d, commit %s, %s\n",
              properties.name, properties.multiProcessorCount, driver, CCCL_VERSION,
              options["--commit"].c_str(), options["--date"].c_str());

  Bench bench(std::stoi(options["--repeats"]));
  const std::pair<Kind, const char*> kinds[] = {{Kind::random, "random"},
                                                {Kind::equal, "all equal"},
                                                {Kind::disjoint, "disjoint"},
                                                {Kind::blocks, "blocks of 1,000"}};
  using U32 = std::uint32_t;
  using U64 = std::uint64_t;
  if (wanted("two-way"))
    for (const auto& [kind, name] : kinds) {
      const bool ladder = kind == Kind::random;
      two_way<U32, NoValue>(bench, "u32", total, kind, name, ladder);
      two_way<U64, NoValue>(bench, "u64", total, kind, name, ladder);
      two_way<U32, U32>(bench, "u32+u32", total, kind, name, ladder);
      two_way<U64, U64>(bench, "u64+u64", total, kind, name, ladder);
      two_way<Record<U64>, NoValue>(bench, "16-byte record", total, kind, name, ladder);
    }
  if (wanted("k-way")) {
    for (const std::uint64_t k : {4, 16, 64, 256}) {
      k_way<U64, NoValue>(bench, "u64", even(total, k), Kind::random, "random", true);
      k_way<U64, U64>(bench, "u64+u64", even(total, k), Kind::random, "random", true);
    }
    for (const auto& [kind, name] : kinds)
      if (kind != Kind::random) {
        k_way<U64, NoValue>(bench, "u64", even(total, 16), kind, name, false);
        k_way<U64, U64>(bench, "u64+u64", even(total, 16), kind, name, false);
      }
    k_way<U64, NoValue>(bench, "u64", one_long(total, 16), Kind::random, "one long run", false);
    k_way<U64, U64>(bench, "u64+u64", one_long(total, 16), Kind::random, "one long run", false);
    k_way<Record<U64>, NoValue>(bench, "16-byte record", even(total, 16), Kind::random, "random",
                                false);
  }
  if (wanted("wide"))
    for (const std::uint64_t k : {16, 256})

      wide<100, 10>(bench, "k=" + std::to_string(k) + ", random",
                    std::min<std::uint64_t>(total, 1u << 25), k);
  if (wanted("unit")) {
    const auto counts = even(1u << 22, 256);  // 64 MiB
    k_way<U64, U64>(bench, "u64+u64", counts, Kind::random, "64 MiB", true);
    units<U64, U64>(bench, "u64+u64", counts);
    units<Record<U64>, NoValue>(bench, "16-byte record", counts);
    wide<16, 8>(bench, "units of 64 MiB, k=256", 1u << 22, 256);
  }

  if (!options["--json"].empty()) {
    const json report = {{"device", properties.name}, {"driver_cuda", driver},
                         {"cccl", CCCL_VERSION},      {"commit", options["--commit"]},
                         {"date", options["--date"]}, {"repeats", std::stoi(options["--repeats"])},
                         {"results", bench.results}};
    std::ofstream(options["--json"]) << report.dump(1) << '\n';
  }
  return bench.all_right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench-device: %s\n", error.what());
  return 2;
}
