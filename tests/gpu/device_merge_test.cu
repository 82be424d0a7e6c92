// Tests of the device merges against std::stable_sort: types, alignments, lengths, duplicates and
// invalid arguments.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "kernels/ladder/ladder.cuh"
#include "support/catch.hpp"
#define CORANK_DEVICE_EXAMPLE
#include "corank/device/merge.cuh"

namespace {

namespace device = corank::device;
using device::NoValue;
using device::Output;
using device::Sequence;

void check(cudaError_t error) {
  INFO(cudaGetErrorString(error));
  REQUIRE(error == cudaSuccess);
}

// Device memory whose contents start `offset` elements into an allocation of exact size, so that
// compute-sanitizer detects any access outside them.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count, std::size_t offset = 0) : count_(count), offset_(offset) {
    check(cudaMalloc(&memory_, std::max<std::size_t>((offset + count) * sizeof(T), 1)));
    // A pattern that is neither zero nor sorted, so that unwritten elements are detected.
    check(cudaMemset(memory_, 0xA5, (offset + count) * sizeof(T)));
  }
  DeviceArray(const std::vector<T>& host, std::size_t offset) : DeviceArray(host.size(), offset) {
    check(cudaMemcpy(get(), host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(DeviceArray&& other) noexcept
      : memory_(other.memory_), count_(other.count_), offset_(other.offset_) {
    other.memory_ = nullptr;
  }
  ~DeviceArray() { cudaFree(memory_); }

  T* get() const { return memory_ + offset_; }
  std::size_t size() const { return count_; }
  std::vector<T> read() const {
    std::vector<T> host(count_);
    check(cudaMemcpy(host.data(), get(), count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  T* memory_ = nullptr;
  std::size_t count_;
  std::size_t offset_;
};

struct Record {
  std::uint64_t key;
  std::uint64_t origin;
};
struct ByKey {
  __host__ __device__ bool operator()(const Record& x, const Record& y) const {
    return x.key < y.key;
  }
};
struct Greater {
  template <class T>
  __host__ __device__ bool operator()(const T& x, const T& y) const {
    return x > y;
  }
};
// Total preorder of floats with NaN after all other values.
struct FloatLess {
  __host__ __device__ bool operator()(float x, float y) const {
    return x < y || (x == x && y != y);
  }
};
// A record wider than a granule; its size may or may not be a multiple of one.
template <int words>
struct Wide {
  std::uint64_t key;
  std::uint64_t origin;
  std::uint64_t rest[words - 2];
  __host__ __device__ friend bool operator<(const Wide& x, const Wide& y) { return x.key < y.key; }
};
struct Odd {  // size is not a multiple of a granule
  std::uint32_t word[3];
  __host__ __device__ friend bool operator<(const Odd& x, const Odd& y) {
    return x.word[0] < y.word[0];
  }
};

template <class T>
inline constexpr bool knows_origin = requires(T key) {
  key.origin;
};

template <class T>
T make_key(std::uint64_t n) {
  if constexpr (knows_origin<T>) {
    T key{};
    key.key = n;
    return key;
  } else if constexpr (std::is_same_v<T, Odd>) {
    return {{static_cast<std::uint32_t>(n), 0, 0}};
  } else {
    return static_cast<T>(n);
  }
}

template <class T>
bool same(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
}

struct Temporary {
  std::size_t bytes = 0;
  void* memory = nullptr;
  void take() { check(cudaMalloc(&memory, bytes)); }
  ~Temporary() { cudaFree(memory); }
};

// Runs the merge for older devices, which newer ones can run as well.
template <class Key, class Value, class Less>
cudaError_t merge_portably(void* temporary, std::size_t& bytes,
                           std::span<const Sequence<Key, Value>> runs, Output<Key, Value> output,
                           Less less) {
  return device::detail::merge_k_for<device::detail::Portable>(temporary, bytes, runs, output,
                                                               nullptr, less);
}

// Merges runs of random keys, drawn from `range` values, and compares every byte. The values record
// the origin of each key, so an unstable merge is detected.
template <class Key, class Value, class Less = cuda::std::less<>>
void merge_and_check(const std::vector<std::size_t>& counts, std::uint64_t range, unsigned seed,
                     std::size_t offset = 0, Less less = {}) {
  std::mt19937_64 random(seed);
  struct Pair {
    Key key;
    std::uint64_t origin;
  };
  const auto before = [&](const Pair& x, const Pair& y) { return less(x.key, y.key); };
  std::vector<Pair> all;
  std::vector<DeviceArray<Key>> keys;
  std::vector<DeviceArray<std::uint64_t>> wide;
  std::vector<DeviceArray<std::uint32_t>> narrow;
  std::vector<Sequence<Key, Value>> runs;
  for (const std::size_t count : counts) {
    std::vector<Pair> run(count);
    for (auto& pair : run) pair.key = make_key<Key>(range == 0 ? random() : random() % range);
    std::stable_sort(run.begin(), run.end(), before);
    std::vector<Key> run_keys;
    std::vector<std::uint64_t> origins;
    for (auto& pair : run) {
      pair.origin = all.size();
      if constexpr (knows_origin<Key>) pair.key.origin = all.size();
      if constexpr (std::is_same_v<Key, Odd>)
        pair.key.word[2] = static_cast<std::uint32_t>(all.size());
      run_keys.push_back(pair.key);
      origins.push_back(pair.origin);
      all.push_back(pair);
    }
    keys.emplace_back(run_keys, offset);
    Sequence<Key, Value> sequence{keys.back().get(), nullptr, count};
    if constexpr (std::is_same_v<Value, std::uint64_t>) {
      wide.emplace_back(origins, offset);
      sequence.values = wide.back().get();
    } else if constexpr (std::is_same_v<Value, std::uint32_t>) {
      narrow.emplace_back(std::vector<std::uint32_t>(origins.begin(), origins.end()), offset);
      sequence.values = narrow.back().get();
    }
    runs.push_back(sequence);
    offset = offset * 5 % 17;  // a different offset for each run
  }
  std::stable_sort(all.begin(), all.end(), before);

  std::vector<Key> want_keys;
  std::vector<Value> want_values;
  for (const Pair& pair : all) {
    want_keys.push_back(pair.key);
    if constexpr (device::has_values<Value>) want_values.push_back(static_cast<Value>(pair.origin));
  }
  const auto merges = [&](const char* which, auto merge) {
    const DeviceArray<Key> out_keys(all.size(), offset);
    const DeviceArray<Value> out_values(all.size(), offset);
    Output<Key, Value> output{out_keys.get(), nullptr};
    if constexpr (device::has_values<Value>) output.values = out_values.get();
    Temporary temporary;
    const std::span<const Sequence<Key, Value>> span(runs);
    check(merge(nullptr, temporary.bytes, span, output));
    temporary.take();
    check(merge(temporary.memory, temporary.bytes, span, output));
    check(cudaDeviceSynchronize());
    CAPTURE(which, counts.size(), range, seed, offset, sizeof(Key), all.size());
    CHECK(same(out_keys.read(), want_keys));
    if constexpr (device::has_values<Value>) CHECK(same(out_values.read(), want_values));
  };
  merges("as the device prefers", [&](void* memory, std::size_t& bytes, auto span, auto output) {
    return device::merge_k(memory, bytes, span, output, nullptr, less);
  });
  merges("portably", [&](void* memory, std::size_t& bytes, auto span, auto output) {
    return merge_portably(memory, bytes, span, output, less);
  });
}

std::vector<std::size_t> random_counts(std::size_t k, std::size_t most, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::size_t> counts(k);
  for (auto& count : counts) count = random() % (most + 1);
  return counts;
}

}  // namespace

TEST_CASE("two sequences, lengths around tiles and granules", "[device]") {
  unsigned seed = 1;
  for (const std::size_t a : {0, 1, 3, 895, 896, 897, 1791, 1792, 1793, 3839, 3840, 3841, 20000})
    for (const std::size_t b : {0, 1, 2, 16, 896, 3840, 30001}) {
      merge_and_check<std::uint32_t, NoValue>({a, b}, 0, ++seed);
      merge_and_check<std::uint64_t, std::uint64_t>({a, b}, 1000, ++seed);
    }
}

TEST_CASE("two sequences of every type", "[device]") {
  const std::vector<std::size_t> counts = {200003, 150001};
  for (const std::uint64_t range : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{5000}}) {
    merge_and_check<std::uint8_t, NoValue>(counts, range, 1);
    merge_and_check<std::uint8_t, std::uint32_t>(counts, range, 2);
    merge_and_check<std::uint16_t, std::uint64_t>(counts, range, 3);
    merge_and_check<std::uint32_t, NoValue>(counts, range, 4);
    merge_and_check<std::uint32_t, std::uint32_t>(counts, range, 5);
    merge_and_check<std::uint64_t, NoValue>(counts, range, 6);
    merge_and_check<std::uint64_t, std::uint32_t>(counts, range, 7);
    merge_and_check<std::uint64_t, std::uint64_t>(counts, range, 8);
    merge_and_check<std::int32_t, std::uint32_t, Greater>(counts, range, 9);
    merge_and_check<Record, NoValue, ByKey>(counts, range, 10);
    merge_and_check<Odd, NoValue>(counts, range, 11);
    merge_and_check<Odd, std::uint64_t>(counts, range, 12);
  }
}

TEST_CASE("records of up to 64 bytes", "[device][sanitize]") {
  for (const auto& counts : {random_counts(2, 20000, 1), random_counts(13, 3000, 2)})
    for (const std::uint64_t range : {std::uint64_t{0}, std::uint64_t{40}}) {
      merge_and_check<Wide<3>, NoValue>(counts, range, 1);
      merge_and_check<Wide<4>, NoValue>(counts, range, 2);
      merge_and_check<Wide<4>, std::uint64_t>(counts, range, 3);
      merge_and_check<Wide<5>, NoValue>(counts, range, 4);
      merge_and_check<Wide<8>, NoValue>(counts, range, 5);
    }
}

TEST_CASE("every alignment", "[device][sanitize]") {
  for (std::size_t offset = 0; offset < 16; ++offset) {
    const auto seed = static_cast<unsigned>(offset);
    merge_and_check<std::uint8_t, std::uint32_t>({20011, 10007}, 50, seed, offset);
    merge_and_check<std::uint32_t, std::uint64_t>({20011, 10007}, 5000, seed, offset);
    merge_and_check<Record, std::uint32_t, ByKey>({10011, 10007}, 500, seed, offset);
    merge_and_check<std::uint8_t, std::uint32_t>({5011, 4007, 5, 7000, 3001}, 50, seed, offset);
    merge_and_check<std::uint32_t, std::uint64_t>({5011, 4007, 5, 7000, 3001}, 5000, seed, offset);
    merge_and_check<std::uint64_t, NoValue>({1, 2, 3, 4, 5, 6, 7}, 5, seed, offset);
  }
}

TEST_CASE("records that straddle granules", "[device][sanitize]") {
  // Records of 16 bytes that are aligned to 8 bytes only.
  const std::size_t count = 30011;
  std::vector<Record> host(2 * count);
  for (std::size_t n = 0; n < host.size(); ++n) host[n] = {n % count / 7, n};
  const DeviceArray<std::uint64_t> in(4 * count + 1), out(4 * count + 1);
  check(
      cudaMemcpy(in.get() + 1, host.data(), host.size() * sizeof(Record), cudaMemcpyHostToDevice));
  const auto* records = reinterpret_cast<const Record*>(in.get() + 1);
  Temporary temporary;
  const Sequence<Record> a{records, nullptr, count}, b{records + count, nullptr, count};
  const Output<Record> output{reinterpret_cast<Record*>(out.get() + 1)};
  check(device::merge(nullptr, temporary.bytes, a, b, output, nullptr, ByKey{}));
  temporary.take();
  check(device::merge(temporary.memory, temporary.bytes, a, b, output, nullptr, ByKey{}));
  std::stable_sort(host.begin(), host.end(), ByKey{});
  std::vector<Record> got(host.size());
  check(cudaMemcpy(got.data(), output.keys, got.size() * sizeof(Record), cudaMemcpyDeviceToHost));
  CHECK(same(got, host));
}

TEST_CASE("k sequences", "[device]") {
  for (const std::size_t k : {3, 4, 5, 8, 9, 15, 16, 17, 31, 64, 257, 1000}) {
    const auto seed = static_cast<unsigned>(k);
    for (const std::uint64_t range : {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{3000}}) {
      const auto counts = random_counts(k, 400000 / k, seed);
      merge_and_check<std::uint64_t, NoValue>(counts, range, seed);
      merge_and_check<std::uint64_t, std::uint64_t>(counts, range, seed);
      merge_and_check<std::uint32_t, std::uint32_t>(counts, range, seed);
    }
  }
}

TEST_CASE("k sequences of other types", "[device]") {
  const auto counts = random_counts(13, 60000, 1);
  for (const std::uint64_t range : {std::uint64_t{0}, std::uint64_t{40}}) {
    merge_and_check<std::uint8_t, std::uint32_t>(counts, range, 1);
    merge_and_check<std::uint16_t, NoValue>(counts, range, 2);
    merge_and_check<std::uint64_t, std::uint32_t>(counts, range, 3);
    merge_and_check<Record, NoValue, ByKey>(counts, range, 4);
    merge_and_check<Record, std::uint64_t, ByKey>(counts, range, 5);
    merge_and_check<Odd, std::uint32_t>(counts, range, 6);
    merge_and_check<std::int32_t, std::uint32_t, Greater>(counts, range, 7);
  }
}

TEST_CASE("one run far longer than the rest, and empty ones", "[device]") {
  merge_and_check<std::uint64_t, std::uint64_t>({3, 700001, 0, 5, 17, 0, 2, 90}, 0, 1);
  merge_and_check<std::uint64_t, std::uint64_t>({3, 700001, 0, 5, 17, 0, 2, 90}, 7, 2);
  merge_and_check<std::uint64_t, std::uint64_t>({0, 0, 0}, 7, 3);
  merge_and_check<std::uint64_t, std::uint64_t>({0, 0, 20000, 0}, 7, 4);
  merge_and_check<std::uint64_t, std::uint64_t>({}, 7, 5);
}

TEST_CASE("tiles that must be merged in two parts", "[device][sanitize]") {
  // If all runs have the same keys, some tiles contain all records of a run up to its next sample.
  // For some k, tiles of these keys are too large at every tile shape:
  // tests/unit/kernels/device_host_test.cpp shows it.
  for (std::size_t k = 5; k <= 16; ++k) {
    std::vector<std::uint64_t> keys(8000);
    for (std::size_t n = 0; n < keys.size(); ++n) keys[n] = n / 3;
    const DeviceArray<std::uint64_t> in(keys, 0), out(k * keys.size()), out_origins(out.size());
    std::vector<std::uint64_t> origins(k * keys.size());
    for (std::size_t n = 0; n < origins.size(); ++n) origins[n] = n;
    const DeviceArray<std::uint64_t> in_origins(origins, 0);
    std::stable_sort(origins.begin(), origins.end(), [&](std::uint64_t x, std::uint64_t y) {
      return keys[x % keys.size()] < keys[y % keys.size()];
    });
    std::vector<Sequence<std::uint64_t, std::uint64_t>> pairs;
    std::vector<Sequence<std::uint64_t>> bare;
    for (std::size_t r = 0; r < k; ++r) {
      pairs.push_back({in.get(), in_origins.get() + r * keys.size(), keys.size()});
      bare.push_back({in.get(), nullptr, keys.size()});
    }
    std::vector<std::uint64_t> want;
    for (const auto origin : origins) want.push_back(keys[origin % keys.size()]);
    const auto merges = [&](const auto& runs, auto output, auto merge) {
      Temporary temporary;
      check(merge(nullptr, temporary.bytes, std::span(runs), output));
      temporary.take();
      check(merge(temporary.memory, temporary.bytes, std::span(runs), output));
      CHECK(same(out.read(), want));
      if (output.values) CHECK(same(out_origins.read(), origins));
    };
    const auto portably = [](void* memory, std::size_t& bytes, auto runs, auto output) {
      return merge_portably(memory, bytes, runs, output, cuda::std::less<>{});
    };
    const auto preferred = [](void* memory, std::size_t& bytes, auto runs, auto output) {
      return device::merge_k(memory, bytes, runs, output);
    };
    const Output<std::uint64_t, std::uint64_t> output{out.get(), out_origins.get()};
    CAPTURE(k);
    merges(std::as_const(pairs), output, preferred);
    merges(std::as_const(pairs), output, portably);
    merges(std::as_const(bare), Output<std::uint64_t>{out.get()}, preferred);
    merges(std::as_const(bare), Output<std::uint64_t>{out.get()}, portably);
  }
}

TEST_CASE("sequences that are not sorted do no harm", "[device][sanitize][disorder]") {
  constexpr std::size_t margin = 1000;
  for (const std::size_t k : {2, 5, 16, 300}) {
    std::mt19937_64 random(k);
    std::vector<std::uint32_t> keys(90000);
    for (auto& key : keys) key = static_cast<std::uint32_t>(random());
    const DeviceArray<std::uint32_t> in(keys, 0), out(keys.size() + 2 * margin);
    const std::size_t count = keys.size() / k;
    std::vector<Sequence<std::uint32_t>> runs;
    for (std::size_t r = 0; r < k; ++r) runs.push_back({in.get() + r * count, nullptr, count});
    const auto survives = [&](auto merge) {
      Temporary temporary;
      const Output<std::uint32_t> output{out.get() + margin};
      const std::span<const Sequence<std::uint32_t>> span(runs);
      check(merge(nullptr, temporary.bytes, span, output));
      temporary.take();
      check(merge(temporary.memory, temporary.bytes, span, output));
      check(cudaDeviceSynchronize());
      const auto got = out.read();
      const auto untouched = [](std::uint32_t word) { return word == 0xA5A5A5A5u; };
      CHECK(std::all_of(got.begin(), got.begin() + margin, untouched));
      CHECK(std::all_of(got.begin() + margin + k * count, got.end(), untouched));
    };
    survives([](void* memory, std::size_t& bytes, auto span, auto output) {
      return device::merge_k(memory, bytes, span, output);
    });
    survives([](void* memory, std::size_t& bytes, auto span, auto output) {
      return merge_portably(memory, bytes, span, output, cuda::std::less<>{});
    });
  }
}

TEST_CASE("the example of the header", "[device][sanitize]") {
  const std::vector<std::uint64_t> host_keys = {1, 5, 5, 2, 5, 9, 0, 5};
  const std::vector<std::uint32_t> host_values = {10, 11, 12, 20, 21, 22, 30, 31};
  const DeviceArray<std::uint64_t> keys(host_keys, 0), out_keys(8);
  const DeviceArray<std::uint32_t> values(host_values, 0), out_values(8);
  check(merge_runs({{keys.get(), values.get(), 3},
                    {keys.get() + 3, values.get() + 3, 3},
                    {keys.get() + 6, values.get() + 6, 2}},
                   {out_keys.get(), out_values.get()}, nullptr));
  check(cudaDeviceSynchronize());
  CHECK(out_keys.read() == std::vector<std::uint64_t>{0, 1, 2, 5, 5, 5, 5, 9});
  CHECK(out_values.read() == std::vector<std::uint32_t>{30, 10, 20, 11, 12, 21, 31, 22});
}

TEST_CASE("all orders of few records", "[device]") {
  // All sets of three runs of up to three records with two distinct keys.
  for (unsigned code = 0; code < 4096; code += 5)
    merge_and_check<std::uint32_t, std::uint32_t>({code % 4, code / 4 % 4, code / 16 % 4},
                                                  1 + code / 64 % 3, code);
}

TEST_CASE("floats, with NaN, infinities and both zeros", "[device]") {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {-infinity, -1.f, -0.f, 0.f, 1e-42f, infinity, std::nanf("")};
  std::vector<float> all;
  std::vector<DeviceArray<float>> arrays;
  std::vector<Sequence<float>> runs;
  for (int r = 0; r < 6; ++r) {
    std::vector<float> run;
    for (const float value : special) run.insert(run.end(), 700 + r, value);
    all.insert(all.end(), run.begin(), run.end());
    arrays.emplace_back(run, 0);
    runs.push_back({arrays.back().get(), nullptr, run.size()});
  }
  std::stable_sort(all.begin(), all.end(), FloatLess{});
  for (const std::size_t k : {2u, 6u}) {
    const DeviceArray<float> out(all.size());
    Temporary temporary;
    const auto span = std::span<const Sequence<float>>(runs).first(k);
    check(device::merge_k(nullptr, temporary.bytes, span, Output<float>{out.get()}, nullptr,
                          FloatLess{}));
    temporary.take();
    check(device::merge_k(temporary.memory, temporary.bytes, span, Output<float>{out.get()},
                          nullptr, FloatLess{}));
    auto got = out.read();
    if (k == 6) {
      CHECK(same(got, all));
    } else {
      got.resize(runs[0].count + runs[1].count);
      CHECK(std::is_sorted(got.begin(), got.end(), FloatLess{}));
      CHECK(std::count_if(got.begin(), got.end(), [](float x) { return x != x; }) == 1401);
    }
  }
}

TEST_CASE("keys of all bits set or none are keys like others", "[device]") {
  const std::vector<std::uint64_t> ones(5000, ~std::uint64_t{0}), zeros(5000, 0);
  const DeviceArray<std::uint64_t> a(ones, 1), b(zeros, 0), c(ones, 0), out(15000);
  const std::vector<Sequence<std::uint64_t>> runs = {
      {a.get(), nullptr, 5000}, {b.get(), nullptr, 5000}, {c.get(), nullptr, 5000}};
  Temporary temporary;
  const Output<std::uint64_t> output{out.get()};
  check(device::merge_k(nullptr, temporary.bytes, std::span(runs), output));
  temporary.take();
  check(device::merge_k(temporary.memory, temporary.bytes, std::span(runs), output));
  std::vector<std::uint64_t> want = zeros;
  want.insert(want.end(), 10000, ~std::uint64_t{0});
  CHECK(same(out.read(), want));
}

TEST_CASE("more than 2^32 records", "[device][large]") {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  const std::uint64_t a_count = (std::uint64_t{1} << 32) + 12345, b_count = 54321;
  if (free < 3 * a_count) {
    WARN("skipped: too little device memory");
    return;
  }
  // Zeros, then ones: their boundary in the output shows whether a count was truncated.
  const DeviceArray<std::uint8_t> a(a_count), b(b_count), out(a_count + b_count);
  const std::uint64_t a_zeros = (std::uint64_t{1} << 32) + 777, b_zeros = 999;
  const auto fill = [](std::uint8_t* array, std::uint64_t zeros, std::uint64_t count) {
    check(cudaMemset(array, 0, zeros));
    check(cudaMemset(array + zeros, 1, count - zeros));
  };
  fill(a.get(), a_zeros, a_count);
  fill(b.get(), b_zeros, b_count);
  const std::uint64_t zeros = a_zeros + b_zeros, middle = a_count / 2;
  const auto check_output = [&] {
    check(cudaDeviceSynchronize());
    std::uint8_t at[4];
    const std::uint64_t places[] = {zeros - 1, zeros, a_count + b_count - 1, middle};
    for (int n = 0; n < 4; ++n)
      check(cudaMemcpy(&at[n], out.get() + places[n], 1, cudaMemcpyDeviceToHost));
    CHECK(at[0] == 0);
    CHECK(at[1] == 1);
    CHECK(at[2] == 1);
    CHECK(at[3] == 0);
    check(cudaMemset(out.get(), 0xA5, a_count + b_count));
  };
  const Output<std::uint8_t> output{out.get()};
  {
    Temporary temporary;
    const Sequence<std::uint8_t> first{a.get(), nullptr, a_count},
        second{b.get(), nullptr, b_count};
    check(device::merge(nullptr, temporary.bytes, first, second, output));
    temporary.take();
    check(device::merge(temporary.memory, temporary.bytes, first, second, output));
    check_output();
  }
  {
    Temporary temporary;
    const std::vector<Sequence<std::uint8_t>> runs = {
        {a.get(), nullptr, a_zeros},
        {a.get() + a_zeros, nullptr, a_count - a_zeros},
        {b.get(), nullptr, b_count}};
    check(device::merge_k(nullptr, temporary.bytes, std::span(runs), output));
    temporary.take();
    check(device::merge_k(temporary.memory, temporary.bytes, std::span(runs), output));
    check_output();
  }
}

TEST_CASE("partition_k names the exact, stable cut of every rank", "[device]") {
  for (const std::size_t k : {1, 2, 5, 16, 300}) {
    for (const std::uint64_t range : {std::uint64_t{1}, std::uint64_t{4}, std::uint64_t{0}}) {
      std::mt19937_64 random(k);
      std::vector<DeviceArray<std::uint32_t>> arrays;
      std::vector<Sequence<std::uint32_t>> runs;
      struct Origin {
        std::uint32_t key;
        std::size_t run;
      };
      std::vector<Origin> all;
      for (std::size_t r = 0; r < k; ++r) {
        std::vector<std::uint32_t> keys(random() % (20000 / k));
        for (auto& key : keys)
          key = static_cast<std::uint32_t>(range == 0 ? random() : random() % range);
        std::sort(keys.begin(), keys.end());
        for (const auto key : keys) all.push_back({key, r});
        arrays.emplace_back(keys, 0);
        runs.push_back({arrays.back().get(), nullptr, keys.size()});
      }
      std::stable_sort(all.begin(), all.end(),
                       [](const Origin& x, const Origin& y) { return x.key < y.key; });
      std::vector<std::uint64_t> ranks = {0, all.size()};
      for (int n = 0; n < 40; ++n) ranks.push_back(random() % (all.size() + 1));
      std::vector<std::uint64_t> want(ranks.size() * k);
      for (std::size_t r = 0; r < ranks.size(); ++r)
        for (std::uint64_t n = 0; n < ranks[r]; ++n) ++want[r * k + all[n].run];

      const DeviceArray<std::uint64_t> positions(want.size());
      Temporary temporary;
      const std::span<const Sequence<std::uint32_t>> span(runs);
      check(device::partition_k(nullptr, temporary.bytes, span, ranks, positions.get()));
      temporary.take();
      check(device::partition_k(temporary.memory, temporary.bytes, span, ranks, positions.get()));
      CHECK(same(positions.read(), want));

      const std::uint64_t beyond[] = {all.size() + 1};
      CHECK(device::partition_k(temporary.memory, temporary.bytes, span, beyond, positions.get()) ==
            cudaErrorInvalidValue);
    }
  }
}

TEST_CASE("bad arguments are refused", "[device]") {
  const DeviceArray<std::uint32_t> a(100), b(100), out(200);
  std::vector<Sequence<std::uint32_t>> runs = {{a.get(), nullptr, 100}, {b.get(), nullptr, 50}};
  const auto merge = [&](const std::vector<Sequence<std::uint32_t>>& sequences, std::uint32_t* to,
                         std::size_t bytes) {
    static const DeviceArray<std::uint64_t> temporary(100000);
    return device::merge_k(temporary.get(), bytes, std::span(sequences), Output<std::uint32_t>{to});
  };
  const std::size_t enough = 800000;
  CHECK(merge(runs, out.get(), enough) == cudaSuccess);
  CHECK(merge(runs, nullptr, enough) == cudaErrorInvalidValue);
  CHECK(merge(runs, a.get() + 99, enough) == cudaErrorInvalidValue);  // overlaps an input
  CHECK(merge({{nullptr, nullptr, 3}, runs[0]}, out.get(), enough) == cudaErrorInvalidValue);
  const auto* crooked =
      reinterpret_cast<const std::uint32_t*>(reinterpret_cast<const std::uint8_t*>(a.get()) + 1);
  CHECK(merge({{crooked, nullptr, 3}, runs[0]}, out.get(), enough) == cudaErrorInvalidValue);
  CHECK(merge({{a.get(), nullptr, ~std::uint64_t{0}}, runs[0]}, out.get(), enough) ==
        cudaErrorInvalidValue);
  CHECK(merge(runs, out.get(), 1) == cudaErrorInvalidValue);  // too little storage
  runs.push_back({b.get() + 50, nullptr, 50});
  CHECK(merge(runs, out.get(), 1) == cudaErrorInvalidValue);
  CHECK(merge(runs, out.get(), enough) == cudaSuccess);
  check(cudaDeviceSynchronize());
}

TEST_CASE("more records than merge_k can count are refused", "[device]") {
  const auto storage_of = [](std::uint64_t records, std::size_t& bytes) {
    const std::vector<Sequence<std::uint8_t>> runs(3, {nullptr, nullptr, records / 3});
    return device::merge_k(nullptr, bytes, std::span(runs), Output<std::uint8_t>{});
  };
  std::size_t bytes = 0;
  CHECK(storage_of(std::uint64_t{1} << 36, bytes) == cudaSuccess);
  CHECK(bytes > std::uint64_t{1} << 30);  // at least the samples
  CHECK(storage_of(std::uint64_t{1} << 40, bytes) == cudaErrorInvalidValue);
}

TEST_CASE("a merge can be captured in a graph", "[device]") {
  std::vector<std::uint32_t> host(9000);
  for (std::size_t n = 0; n < host.size(); ++n) host[n] = static_cast<std::uint32_t>(n % 3000);
  const DeviceArray<std::uint32_t> in(host, 0), out(host.size());
  Temporary temporary;
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  {
    const std::vector<Sequence<std::uint32_t>> runs = {{in.get(), nullptr, 3000},
                                                       {in.get() + 3000, nullptr, 3000},
                                                       {in.get() + 6000, nullptr, 3000}};
    const Output<std::uint32_t> output{out.get()};
    check(device::merge_k(nullptr, temporary.bytes, std::span(runs), output, stream));
    temporary.take();
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    check(device::merge_k(temporary.memory, temporary.bytes, std::span(runs), output, stream));
  }
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  std::sort(host.begin(), host.end());
  for (int replay = 0; replay < 2; ++replay) {
    check(cudaMemset(out.get(), 0xA5, host.size() * 4));
    check(cudaGraphLaunch(executable, stream));
    check(cudaStreamSynchronize(stream));
    CHECK(same(out.read(), host));
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_CASE("the rungs of the ladder", "[device]") {
  namespace ladder = corank::ladder;
  for (const std::size_t a_count : {0, 1, 1000, 1025, 30000})
    for (const std::size_t b_count : {0, 1, 1024, 7777}) {
      std::vector<Record> host(a_count + b_count);
      for (std::size_t n = 0; n < host.size(); ++n)
        host[n] = {(n < a_count ? n : n - a_count) / 3, n};
      if (host.empty()) continue;
      const DeviceArray<Record> in(host, 0);
      const Record* const a = in.get();
      const Record* const b = a + a_count;
      std::stable_sort(host.begin(), host.end(), ByKey{});
      const auto total = static_cast<unsigned>(host.size());
      const auto run = [&](const char* rung, auto launch) {
        const DeviceArray<Record> out(host.size());
        launch(out.get());
        check(cudaGetLastError());
        check(cudaDeviceSynchronize());
        CAPTURE(rung, a_count, b_count);
        CHECK(same(out.read(), host));
      };
      run("sequential",
          [&](Record* out) { ladder::sequential<<<1, 1>>>(a, a_count, b, b_count, out, ByKey{}); });
      run("one thread an output", [&](Record* out) {
        ladder::one_thread_an_output<<<(total + 255) / 256, 256>>>(a, a_count, b, b_count, out,
                                                                   ByKey{});
      });
      run("coarsened", [&](Record* out) {
        ladder::coarsened<<<(total + 2047) / 2048, 256>>>(a, a_count, b, b_count, out, 8, ByKey{});
      });
      run("tiled", [&](Record* out) {
        ladder::tiled<<<(total + 4999) / 5000, 256, 2 * 1024 * sizeof(Record)>>>(
            a, a_count, b, b_count, out, 5000, 1024, ByKey{});
      });
      run("circular buffer", [&](Record* out) {
        ladder::circular_buffer<<<(total + 4999) / 5000, 256>>>(a, a_count, b, b_count, out, 5000,
                                                                ByKey{});
      });
    }
}
