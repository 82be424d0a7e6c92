// Tests of the block partitioner: blocks must be contiguous, ordered and of balanced size.
#include "merge/block_partitioner.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "support/catch.hpp"
#include "support/support.hpp"

namespace corank {
namespace {

using test::Random;

struct Wide {
  std::uint64_t high, low;
};

bool less(const Wide& a, const Wide& b) {
  return std::tie(a.high, a.low) < std::tie(b.high, b.low);
}

// Returns the blocks of the runs, each as its number of records per run.
std::vector<std::vector<std::uint64_t>> blocks_of(const std::vector<std::vector<Wide>>& runs,
                                                  std::uint64_t block_records) {
  const auto key_of = [](const Wide& record) { return Key<2>{{record.high, record.low}}; };
  const detail::ExtractedWords<Wide, decltype(key_of)> keys(key_of);
  std::vector<SortedSpan> spans, block;
  for (const auto& run : runs)
    spans.push_back({reinterpret_cast<const std::byte*>(run.data()), run.size(), false});
  RecordSorter sorter(keys, best_word_kernel());
  BlockPartitioner cutter(keys, sorter);
  cutter.begin(spans, block_records);
  std::vector<std::vector<std::uint64_t>> blocks;
  std::vector<std::uint64_t> taken(runs.size(), 0);
  while (cutter.next(block)) {
    REQUIRE(block.size() == runs.size());
    blocks.emplace_back();
    for (std::size_t r = 0; r < runs.size(); ++r) {
      // The spans of a run are contiguous.
      REQUIRE(block[r].records == reinterpret_cast<const std::byte*>(runs[r].data() + taken[r]));
      REQUIRE(block[r].predecessor == (taken[r] != 0));
      REQUIRE(block[r].count <= runs[r].size());
      blocks.back().push_back(block[r].count);
      taken[r] += block[r].count;
      REQUIRE(taken[r] <= runs[r].size());
    }
  }
  for (std::size_t r = 0; r < runs.size(); ++r) REQUIRE(taken[r] == runs[r].size());
  return blocks;
}

}  // namespace

TEST_CASE("blocks are merged one after another", "[block]") {
  Random random(1);
  for (const std::size_t k : {2u, 3u, 16u, 300u})
    for (const std::uint64_t block_records : {100u, 5'000u})
      // The number of distinct values of each word.
      for (const auto& [highs, lows] :
           {std::pair{~0ull, ~0ull}, {50ull, 1'000ull}, {1ull, 3ull}, {40ull, 1ull}}) {
        CAPTURE(k, block_records, highs, lows);
        std::vector<std::vector<Wide>> runs(k);
        for (int i = 0; i < 30'000; ++i)
          runs[std::max(random() % k, random() % k)].push_back({random() % highs, random() % lows});
        for (auto& run : runs) std::ranges::stable_sort(run, less);
        const auto blocks = blocks_of(runs, block_records);
        CHECK(blocks.size() > 1);
        std::vector<std::uint64_t> ends(k, 0);
        std::uint64_t wrong = 0;
        for (const auto& block : blocks) {
          const std::uint64_t records = std::reduce(block.begin(), block.end());
          CHECK(records <= 2 * block_records + 1'024 + 4 * k);
          for (std::size_t r = 0; r < k; ++r) ends[r] += block[r];
          // No record after the block may sort before a record in it.
          for (std::size_t a = 0; a < k; ++a)
            for (std::size_t b = 0; b < k; ++b) {
              if (a == b || ends[a] == 0 || ends[b] == runs[b].size()) continue;
              const Wide &last = runs[a][ends[a] - 1], &next = runs[b][ends[b]];
              wrong += a < b ? less(next, last) : !less(last, next);
            }
        }
        CHECK(wrong == 0);
      }
}

TEST_CASE("a key that many records have is a block of its own", "[block]") {
  Random random(3);
  for (const std::size_t k : {2u, 16u, 100u})
    // The number of records with the key, and its position among the other keys.
    for (const std::uint64_t equal : {8'000u, 25'000u})
      for (const std::uint64_t key : {0ull, 1ull << 62, ~0ull}) {
        CAPTURE(k, equal, key);
        std::vector<std::vector<Wide>> runs(k);
        // The first run has so few that they may lie between two samples.
        for (std::uint64_t i = 0; i < equal; ++i)
          runs[i < 3 ? 0 : 1 + random() % (k - 1)].push_back({key, key});
        for (std::uint64_t i = equal; i < 40'000; ++i)
          runs[random() % k].push_back({random(), random()});
        for (auto& run : runs) std::ranges::stable_sort(run, less);
        std::uint64_t alone = 0;
        std::vector<std::uint64_t> begins(k, 0);
        for (const auto& block : blocks_of(runs, 5'000)) {
          const std::uint64_t records = std::reduce(block.begin(), block.end());
          CHECK(records <= 10'000);
          bool all = true;
          for (std::size_t r = 0; r < k; ++r) {
            for (std::uint64_t i = 0; i < block[r]; ++i) all &= runs[r][begins[r] + i].high == key;
            begins[r] += block[r];
          }
          alone += all ? records : 0;
        }
        CHECK(alone == equal);
      }
}

TEST_CASE("no block is much smaller than the others", "[block]") {
  Random random(4);
  for (std::uint64_t records = 20'000; records < 30'000; records += 500) {
    CAPTURE(records);
    std::vector<std::vector<Wide>> runs(16);
    for (std::uint64_t i = 0; i < records; ++i) runs[i % 16].push_back({random(), random()});
    for (auto& run : runs) std::ranges::stable_sort(run, less);
    for (const auto& block : blocks_of(runs, 5'000))
      CHECK(std::reduce(block.begin(), block.end()) > 1'500);
  }
}

TEST_CASE("what is little is one block", "[block]") {
  CHECK(blocks_of({{{1, 1}, {2, 2}}, {}, {{1, 1}}}, 2) ==
        std::vector<std::vector<std::uint64_t>>{{2, 0, 1}});
  CHECK(blocks_of({{}, {}}, 2) == std::vector<std::vector<std::uint64_t>>{{0, 0}});
}

TEST_CASE("of runs that are out of order every record is in one block", "[block]") {
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::vector<Wide>> runs(1 + random() % 20);
    for (int record = 0; record < 5'000; ++record)
      runs[random() % runs.size()].push_back({random() % 100, random()});
    for (auto& run : runs) {
      if (random() % 2) std::ranges::sort(run, less);
      for (int swaps = 0; swaps < 3 && !run.empty(); ++swaps)
        std::swap(run[random() % run.size()], run[random() % run.size()]);
    }
    blocks_of(runs, 200 + random() % 1'000);
  }
}

}  // namespace corank
