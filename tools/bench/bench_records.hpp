// Shared by the benchmarks in memory: kinds of records, how they are made and checked, and buffers
// that a device can copy from.
#pragma once

#include <tbb/parallel_for.h>
#include <tbb/parallel_reduce.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "kernels/backend/cuda_backend.hpp"
#include "util/buffer_pool.hpp"

namespace corank::bench {

// Hashes `x`.
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44d;
  return x ^ (x >> 33);
}

struct Kind {
  std::uint32_t record_bytes;
  const char* schema;
  bool big_endian;  // the key's first eight bytes
};

inline constexpr Kind kinds[] = {{8, "key:u64", false},
                                 {16, "key:u64,value:u64", false},
                                 {100, "key:bytes10,value:bytes90", true}};

inline std::uint64_t key_of(const std::byte* record, const Kind& kind) {
  std::uint64_t key;
  std::memcpy(&key, record, sizeof key);
  return kind.big_endian ? __builtin_bswap64(key) : key;
}

// Fills `records`. `key(i)` returns the key of record `i`; the rest depends on `seed`.
inline void fill(std::span<std::byte> records, std::uint64_t seed, const Kind& kind,
                 const auto& key) {
  tbb::parallel_for(std::uint64_t{0}, records.size() / kind.record_bytes, [&](std::uint64_t i) {
    std::byte* const record = records.data() + i * kind.record_bytes;
    const std::uint64_t word = kind.big_endian ? __builtin_bswap64(key(i)) : key(i);
    std::memcpy(record, &word, sizeof word);
    for (std::uint32_t at = sizeof word; at < kind.record_bytes; at += sizeof word) {
      const std::uint64_t rest = mix(seed + i * at);
      std::memcpy(record + at, &rest, std::min<std::size_t>(sizeof rest, kind.record_bytes - at));
    }
  });
}

// Fills a sorted run with random keys, each within its own range.
inline void fill_sorted(std::span<std::byte> run, std::uint64_t seed, const Kind& kind) {
  const std::uint64_t range = ~std::uint64_t{0} / (run.size() / kind.record_bytes);
  fill(run, seed, kind, [&](std::uint64_t i) { return i * range + mix(i ^ mix(seed)) % range; });
}

// Fills `records` with random keys.
inline void fill_random(std::span<std::byte> records, std::uint64_t seed, const Kind& kind) {
  fill(records, seed, kind, [&](std::uint64_t i) { return mix(i ^ mix(seed)); });
}

inline std::uint64_t sum_of_keys(std::span<const std::byte> records, const Kind& kind) {
  return tbb::parallel_reduce(
      tbb::blocked_range<std::uint64_t>(0, records.size() / kind.record_bytes), std::uint64_t{0},
      [&](const auto& range, std::uint64_t sum) {
        for (std::uint64_t i = range.begin(); i != range.end(); ++i)
          sum += mix(key_of(records.data() + i * kind.record_bytes, kind));
        return sum;
      },
      std::plus<>());
}

inline bool is_sorted(std::span<const std::byte> records, const Kind& kind) {
  return tbb::parallel_reduce(
      tbb::blocked_range<std::uint64_t>(1, records.size() / kind.record_bytes), true,
      [&](const auto& range, bool sorted) {
        for (std::uint64_t i = range.begin(); i != range.end(); ++i)
          sorted &= key_of(records.data() + (i - 1) * kind.record_bytes, kind) <=
                    key_of(records.data() + i * kind.record_bytes, kind);
        return sorted;
      },
      std::logical_and<>());
}

inline double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Two buffers of `bytes`, rounded up to pages. They are registered once with the device, as a
// program that sorts or merges often would.
struct TwoBuffers {
  TwoBuffers(std::uint64_t bytes, bool cuda) {
    const Schema any = Schema::parse("key:u64");
    const KeyEncoding encoding(any, {});
    if (cuda) registrar = make_cuda_backend(0, {&encoding, 1024, 1, 16});
    pool.emplace(round_up(bytes, page_bytes()), 2, registrar ? registrar->pin_memory() : nullptr);
    first = pool->lease();
    second = pool->lease();
  }

  std::unique_ptr<Backend> registrar;
  std::optional<BufferPool> pool;
  Buffer first, second;
};

}  // namespace corank::bench
