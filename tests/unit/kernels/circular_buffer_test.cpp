// Tests of the circular-buffer merge on the host, with a simulated thread block.
#include "kernels/ladder/circular_buffer.cuh"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "support/catch.hpp"

namespace corank {
namespace {

struct Item {
  std::uint32_t key;
  std::uint32_t origin;  // distinguishes equal keys
  friend bool operator==(const Item& x, const Item& y) {
    return x.key == y.key && x.origin == y.origin;
  }
};

struct ByKey {
  bool operator()(const Item& x, const Item& y) const { return x.key < y.key; }
};

// A bounds-checked view that counts the reads and writes of each item.
struct Watched {
  std::vector<Item>* items;
  std::vector<unsigned>* reads;
  std::vector<unsigned>* writes;
  std::uint64_t base = 0;

  Item operator[](std::uint64_t i) const {
    ++reads->at(base + i);
    return items->at(base + i);
  }
  void put(std::uint64_t i, const Item& item) const {
    ++writes->at(base + i);
    items->at(base + i) = item;
  }
  Watched operator+(std::uint64_t i) const { return {items, reads, writes, base + i}; }
};

struct Memory {
  explicit Memory(std::vector<Item> content)
      : items(std::move(content)), reads(items.size()), writes(items.size()) {}
  Watched view() { return {&items, &reads, &writes}; }

  std::vector<Item> items;
  std::vector<unsigned> reads, writes;
};

// Simulates a thread block: between barriers, its threads run one after another in random order.
template <class Policy>
std::vector<Item> merge_by_block(Memory& a, Memory& b, std::mt19937& random) {
  Memory slots(std::vector<Item>(Policy::slots));
  Memory out(std::vector<Item>(a.items.size() + b.items.size()));
  std::vector<std::uint16_t> order(Policy::tile);
  std::uint32_t a_used = 0;
  using Thread = CircularMerge<Policy, Watched, ByKey>;
  std::vector<Thread> threads(
      Policy::threads, Thread(a.view(), a.items.size(), b.view(), b.items.size(), slots.view(),
                              order.data(), &a_used, ByKey{}));
  std::vector<Watched> to(Policy::threads, out.view());
  std::vector<std::uint32_t> turn(Policy::threads);
  for (std::uint32_t t = 0; t < Policy::threads; ++t) turn[t] = t;
  const auto parallel_for = [&](auto step) {
    std::shuffle(turn.begin(), turn.end(), random);
    for (std::uint32_t t : turn) step(threads[t], t);
  };
  while (!threads[0].done()) {
    parallel_for([](Thread& thread, std::uint32_t t) { thread.fill(t); });
    parallel_for([](Thread& thread, std::uint32_t t) { thread.merge(t); });
    parallel_for([&](Thread& thread, std::uint32_t t) { thread.store(t, to[t]); });
  }
  for (const Thread& thread : threads) CHECK(thread.done());
  CHECK(out.writes == std::vector<unsigned>(out.items.size(), 1));
  return out.items;
}

std::vector<Item> run_of(std::vector<std::uint32_t> keys, std::uint32_t origin) {
  std::sort(keys.begin(), keys.end());
  std::vector<Item> run;
  for (std::uint32_t key : keys) run.push_back({key, origin++});
  return run;
}

template <class Policy>
void check_merge(const std::vector<Item>& a, const std::vector<Item>& b, std::mt19937& random) {
  Memory a_memory(a), b_memory(b);
  const std::vector<Item> merged = merge_by_block<Policy>(a_memory, b_memory, random);
  std::vector<Item> expected = a;
  expected.insert(expected.end(), b.begin(), b.end());
  std::stable_sort(expected.begin(), expected.end(), ByKey{});
  CHECK(merged == expected);
  CHECK(a_memory.reads == std::vector<unsigned>(a.size(), 1));
  CHECK(b_memory.reads == std::vector<unsigned>(b.size(), 1));
}

}  // namespace

TEST_CASE("a circular-buffer merge of all small runs is stable and loads everything once",
          "[circular_buffer]") {
  // Every sorted run of up to nine items over three keys; nine items exceed a tile of eight.
  std::vector<std::vector<std::uint32_t>> runs;
  for (std::uint32_t zeros = 0; zeros <= 9; ++zeros)
    for (std::uint32_t ones = 0; zeros + ones <= 9; ++ones)
      for (std::uint32_t twos = 0; zeros + ones + twos <= 9; ++twos) {
        std::vector<std::uint32_t> run(zeros, 0);
        run.insert(run.end(), ones, 1);
        run.insert(run.end(), twos, 2);
        runs.push_back(run);
      }
  std::mt19937 random(1);
  for (const auto& a : runs)
    for (const auto& b : runs)
      check_merge<CircularBufferPolicy<4, 2>>(run_of(a, 0), run_of(b, 100), random);
}

TEMPLATE_TEST_CASE("a circular-buffer merge wraps its rings at every size", "[circular_buffer]",
                   (CircularBufferPolicy<1, 1>), (CircularBufferPolicy<1, 4>),
                   (CircularBufferPolicy<4, 1>), (CircularBufferPolicy<8, 4>),
                   (CircularBufferPolicy<32, 8>)) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    const std::uint32_t keys = static_cast<std::uint32_t>(1 + random() % (trial % 2 ? 5 : 100'000));
    const auto content = [&](std::uint32_t low) {
      std::vector<std::uint32_t> result(random() % (random() % 4 ? 1'000 : 10));
      for (auto& key : result) key = low + random() % keys;
      return result;
    };
    // Shifts the keys of one run, so that all or most of the other run comes first.
    const std::uint32_t shift = trial % 3 == 2 ? keys / 2 + trial % 5 : 0;
    const auto a = run_of(content(trial % 2 ? shift : 0), 0);
    const auto b = run_of(content(trial % 2 ? 0 : shift), 1'000'000);
    check_merge<TestType>(a, b, random);
  }
}

}  // namespace corank
