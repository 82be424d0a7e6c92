// Tests of the host-callable parts of the device merges: one thread's work in a tile, and the plan
// of a k-way merge.
#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "corank/device/detail/plan.hpp"
#include "corank/device/detail/tile.cuh"
#include "support/catch.hpp"

namespace {

namespace device = corank::device;

struct Record {
  std::uint32_t key;
  std::uint32_t origin;
  bool operator==(const Record&) const = default;
};
struct ByKey {
  bool operator()(const Record& x, const Record& y) const { return x.key < y.key; }
};

std::vector<Record> sorted_records(std::mt19937& random, std::uint32_t count, std::uint32_t range,
                                   std::uint32_t first_origin) {
  std::vector<Record> records(count);
  for (auto& record : records) record.key = random() % range;
  std::sort(records.begin(), records.end(), ByKey{});
  for (auto& record : records) record.origin = first_origin++;
  return records;
}

}  // namespace

TEST_CASE("threads that merge a tile's parts make the stable merge", "[device]") {
  constexpr int items = 5;
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::uint32_t a_count = random() % 40, b_count = random() % 40;
    const auto a = sorted_records(random, a_count, 1 + random() % 12, 0);
    const auto b = sorted_records(random, b_count, 1 + random() % 12, a_count);
    std::vector<Record> want(a);
    want.insert(want.end(), b.begin(), b.end());
    std::stable_sort(want.begin(), want.end(), ByKey{});

    // A ring of 64 slots for `a`, then one for `b`, each starting anywhere. Unused slots must not
    // be compared.
    constexpr std::uint32_t mask = 63;
    std::vector<Record> keys(2 * (mask + 1), Record{0, ~0u});
    const std::uint32_t head_a = random() % 64, head_b = random() % 64;
    const auto slot_a = [&](std::uint32_t n) { return (head_a + n) & mask; };
    const auto slot_b = [&](std::uint32_t n) { return (mask + 1) | ((head_b + n) & mask); };
    for (std::uint32_t n = 0; n < a_count; ++n) keys[slot_a(n)] = a[n];
    for (std::uint32_t n = 0; n < b_count; ++n) keys[slot_b(n)] = b[n];

    std::vector<Record> got;
    const std::uint32_t count = a_count + b_count;
    for (std::uint32_t rank = 0; rank < count; rank += items) {
      const std::uint32_t i = device::detail::tile_co_rank(
          rank, [&](std::uint32_t n) { return a.at(n); }, a_count,
          [&](std::uint32_t n) { return b.at(n); }, b_count, ByKey{});
      const std::uint32_t j = rank - i;
      const std::uint32_t end = std::min(rank + items, count);
      Record merged[items];
      std::uint32_t slots[items];
      const device::detail::Wrapping next{mask};
      const bool bounded = a_count - i < items || b_count - j < items;
      const std::uint32_t next_a =
          bounded
              ? device::detail::serial_merge<true>(keys.data(), next, slot_a(i), a_count - i,
                                                   slot_b(j), b_count - j, merged, slots, ByKey{})
              : device::detail::serial_merge<false>(keys.data(), next, slot_a(i), 0, slot_b(j), 0,
                                                    merged, slots, ByKey{});
      for (std::uint32_t n = 0; n < end - rank; ++n) {
        got.push_back(merged[n]);
        CHECK(keys[slots[n]] == merged[n]);
      }
      if (!bounded) {
        const std::uint32_t after = device::detail::tile_co_rank(
            rank + items, [&](std::uint32_t n) { return a.at(n); }, a_count,
            [&](std::uint32_t n) { return b.at(n); }, b_count, ByKey{});
        CHECK(next_a == slot_a(after));
      }
    }
    CHECK(got == want);
  }
}

TEST_CASE("the fan-in of a k-way merge", "[device]") {
  CHECK(device::detail::fan_in(2) == 2);
  CHECK(device::detail::fan_in(3) == 3);
  CHECK(device::detail::fan_in(16) == 16);
  CHECK(device::detail::fan_in(17) == 5);
  CHECK(device::detail::fan_in(64) == 8);
  CHECK(device::detail::fan_in(256) == 16);
  CHECK(device::detail::fan_in(257) == 7);
  CHECK(device::detail::fan_in(1'000'000) == 16);
}

namespace {

// Statistics of the tiles of a level, with samples merged and borders searched on the host.
struct Tiles {
  std::uint64_t count = 0, too_large = 0;  // tiles merged in two parts
  std::uint64_t max_part = 0;
};

Tiles cut_group(const std::vector<std::vector<Record>>& runs, const device::detail::Level& level,
                std::size_t g, const device::detail::LevelShape& shape, std::uint64_t most) {
  const auto& group = level.groups[g];
  const std::uint64_t tiles = level.groups[g + 1].first_tile - group.first_tile;
  // The stable merge of the group; the flag marks the last record of each whole stride.
  std::vector<std::pair<Record, bool>> merge;
  for (std::uint32_t r = group.first_run; r < group.first_run + group.runs; ++r)
    for (std::uint64_t n = 0; n < runs[r].size(); ++n)
      merge.push_back({runs[r][n], (n + 1) % shape.stride == 0});
  std::stable_sort(merge.begin(), merge.end(),
                   [](const auto& x, const auto& y) { return x.first.key < y.first.key; });
  CHECK(merge.size() == level.groups[g + 1].first_output - group.first_output);

  Tiles result;
  std::uint64_t records = 0, samples = 0, first_part = 0;  // in this tile
  const auto end_tile = [&] {
    ++result.count;
    const bool fits = records <= most;
    result.too_large += !fits;
    result.max_part = std::max(
        {result.max_part, fits ? records : first_part, fits ? records : records - first_part});
    records = samples = first_part = 0;
  };
  for (const auto& [record, sampled] : merge) {
    ++records;
    if (!sampled) continue;
    if (samples++ == (level.samples_per_tile - 1) / 2) first_part = records;
    if (samples == level.samples_per_tile && result.count + 1 < tiles) end_tile();
  }
  end_tile();
  CHECK(result.count == tiles);
  return result;
}

}  // namespace

TEST_CASE("tiles cut at merged samples fit or have halves that do", "[device]") {
  std::mt19937 random(2);
  const device::detail::LevelShape shape{8, 260, 230};
  std::uint64_t tiles = 0, too_large = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const std::uint32_t fan = 2 + random() % 15;
    REQUIRE(device::detail::halves_fit(shape.sample_records, shape.stride, fan));
    const std::uint32_t k = 1 + random() % 30;
    std::vector<std::vector<Record>> runs(k);
    std::vector<std::uint64_t> counts;
    std::uint32_t total = 0;
    const std::uint32_t range = 1 + random() % 300;
    for (auto& run : runs) {
      run = sorted_records(random, random() % (random() % 4 == 0 ? 2000 : 50), range, total);
      total += static_cast<std::uint32_t>(run.size());
      counts.push_back(run.size());
    }
    const auto levels = device::detail::plan_pass(counts, fan, shape);
    REQUIRE(levels.front().counts == counts);
    CHECK(levels.front().records() == total);
    for (std::size_t l = 0; l < levels.size(); ++l) {
      const auto& level = levels[l];
      REQUIRE(level.groups.size() == (k + fan - 1) / fan + 1);
      for (std::size_t g = 0; g + 1 < level.groups.size(); ++g) {
        const std::uint64_t most = l == 0 ? shape.tile_records : shape.sample_records;
        const Tiles cut = cut_group(runs, level, g, shape, most);
        CHECK(cut.max_part <= most);
        tiles += cut.count;
        too_large += cut.too_large;
      }
      if (l + 1 == levels.size()) {
        CHECK(level.borders() == 0);
        continue;
      }
      for (std::size_t r = 0; r < k; ++r) {
        std::vector<Record> samples;
        for (std::size_t n = shape.stride; n <= runs[r].size(); n += shape.stride)
          samples.push_back(runs[r][n - 1]);
        runs[r] = samples;
        CHECK(levels[l + 1].counts[r] == samples.size());
      }
    }
  }
  CHECK(too_large > 0);
  CHECK(too_large < tiles / 10);
}

TEST_CASE("runs that all have the same keys make tiles that are too large", "[device]") {
  for (const device::detail::LevelShape shape : {device::detail::LevelShape{96, 7192, 4712},
                                                 {96, 5928, 4712},
                                                 {64, 3720, 2728},
                                                 {32, 2232, 2728}}) {
    std::uint64_t too_large = 0;
    for (std::uint32_t k = 5; k <= 16; ++k) {
      std::vector<Record> run(8000);
      for (std::uint32_t n = 0; n < run.size(); ++n) run[n] = {n / 3, n};
      const std::vector<std::vector<Record>> runs(k, run);
      const auto levels =
          device::detail::plan_pass(std::vector<std::uint64_t>(k, run.size()), k, shape);
      const Tiles cut = cut_group(runs, levels[0], 0, shape, shape.tile_records);
      too_large += cut.too_large;
      CHECK(cut.max_part <= shape.tile_records);
    }
    CAPTURE(shape.stride, shape.tile_records);
    CHECK(too_large > 0);
  }
}
