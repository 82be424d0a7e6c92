// Tests of co-rank, for two and for many runs, against a merge of one record at a time.
#include "corank/algorithm/co_rank.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "run/rank_search.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

using Runs = std::vector<std::vector<int>>;

// Reference: merges one record at a time and counts how many came from each run.
std::vector<std::uint64_t> naive_cut(const Runs& runs, std::uint64_t rank) {
  std::vector<std::uint64_t> position(runs.size(), 0);
  for (; rank != 0; --rank) {
    std::size_t smallest = runs.size();
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (position[i] < runs[i].size() &&
          (smallest == runs.size() || runs[i][position[i]] < runs[smallest][position[smallest]]))
        smallest = i;
    ++position[smallest];
  }
  return position;
}

std::uint64_t total(const Runs& runs) {
  std::uint64_t sum = 0;
  for (const auto& run : runs) sum += run.size();
  return sum;
}

std::vector<std::uint64_t> counts_of(const Runs& runs) {
  std::vector<std::uint64_t> counts;
  for (const auto& run : runs) counts.push_back(run.size());
  return counts;
}

Cut cut(const Runs& runs, std::uint64_t rank, std::uint64_t* probes = nullptr) {
  const auto counts = counts_of(runs);
  return co_rank(
      rank, counts,
      [&](std::size_t run, std::uint64_t index) {
        if (probes) ++*probes;
        return runs[run].at(index);
      },
      std::less<>());
}

// Returns all sorted runs of up to four keys from three values.
std::vector<std::vector<int>> all_short_runs() {
  std::vector<std::vector<int>> runs{{}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].size() == 4) continue;
    for (int key = runs[i].empty() ? 0 : runs[i].back(); key < 3; ++key) {
      auto longer = runs[i];
      longer.push_back(key);
      runs.push_back(longer);
    }
  }
  return runs;
}

// A view that starts in the middle of a ring, as the buffers of a kernel do.
struct Ring {
  const std::vector<int>& values;
  std::uint64_t head;
  int operator[](std::uint64_t i) const { return values[(head + i) % values.size()]; }
};

}  // namespace

TEST_CASE("co-rank of two runs is the merge's split, exhaustively") {
  const auto runs = all_short_runs();
  REQUIRE(runs.size() == 35);
  for (const auto& a : runs)
    for (const auto& b : runs)
      for (std::uint64_t rank = 0; rank <= a.size() + b.size(); ++rank)
        REQUIRE(co_rank(rank, a.data(), a.size(), b.data(), b.size(), std::less<>()) ==
                naive_cut({a, b}, rank)[0]);
}

TEST_CASE("co-rank reads rings as it reads arrays") {
  const std::vector<int> a{5, 7, 1, 3, 3}, b{3, 9, 0, 2};  // from their heads: 1 3 3 5 7, 0 2 3 9
  for (std::uint64_t rank = 0; rank <= 9; ++rank)
    CHECK(co_rank(rank, Ring{a, 2}, 5, Ring{b, 2}, 4, std::less<>()) ==
          naive_cut({{1, 3, 3, 5, 7}, {0, 2, 3, 9}}, rank)[0]);
}

TEST_CASE("co-rank of two runs counts in 64 bits") {
  struct Even {
    std::uint64_t operator[](std::uint64_t i) const { return 2 * i; }
  };
  struct Odd {
    std::uint64_t operator[](std::uint64_t i) const { return 2 * i + 1; }
  };
  const std::uint64_t many = std::uint64_t{1} << 40;
  CHECK(co_rank(many + 1, Even{}, many, Odd{}, many, std::less<>()) == many / 2 + 1);
}

TEST_CASE("co-rank of k runs counts in 64 bits") {
  const auto index = [](std::size_t, std::uint64_t i) { return i; };
  constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t few : {0, 10})
    for (const std::uint64_t rank : {std::uint64_t{100}, all / 4, all / 4 * 3 + 1, all - 1, all}) {
      const std::array<std::uint64_t, 2> counts{all - few, few};
      const Cut cut = co_rank(rank, counts, index, std::less<>());
      CHECK(cut.position == std::vector<std::uint64_t>{rank - few, few});
    }
}

TEST_CASE("co-rank of up to three runs is the merge's split, exhaustively") {
  const auto runs = all_short_runs();
  for (const auto& a : runs)
    for (const auto& b : runs)
      for (const auto& c : runs) {
        const Runs three{a, b, c};
        for (std::uint64_t rank = 0; rank <= total(three); ++rank)
          if (cut(three, rank).position != naive_cut(three, rank)) FAIL("rank " << rank);
      }
}

TEST_CASE("co-rank of many runs is the merge's split") {
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    Runs runs(1 + below(random, 40));
    const int keys = static_cast<int>(1 + below(random, round % 2 ? 4 : 1000));
    const std::uint64_t longest = 1 + below(random, round % 3 ? 30 : 300);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      runs[i].resize(below(random, 10) == 0 ? 10 * longest : below(random, longest));
      for (int& value : runs[i])
        value = static_cast<int>(below(random, static_cast<std::uint64_t>(keys)));
      if (round % 5 == 0)
        for (int& value : runs[i]) value += static_cast<int>(i) * keys;  // disjoint runs
      std::ranges::sort(runs[i]);
    }
    for (int i = 0; i < 10; ++i) {
      const std::uint64_t rank = i == 0 ? total(runs) : below(random, total(runs) + 1);
      if (cut(runs, rank).position != naive_cut(runs, rank))
        FAIL("round " << round << ", rank " << rank);
    }
  }
}

TEST_CASE("co-rank of k runs probes near 2 k log2 n times") {
  Random random(4);
  Runs runs(256, std::vector<int>(4096));
  for (auto& run : runs) {
    for (int& value : run) value = static_cast<int>(random() >> 40);
    std::ranges::sort(run);
  }
  std::uint64_t probes = 0;
  cut(runs, total(runs) / 2, &probes);
  CHECK(probes > 0);
  CHECK(probes < 2 * 256 * 12);
}

TEST_CASE("co-rank probes little more often where a run's place says nothing of the others") {
  Random random(9);
  Runs runs(256, std::vector<int>(4096));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (int& value : runs[i])
      value = static_cast<int>(random() >> (40 + i % 24)) + (i % 3 == 0 ? 1 << 25 : 0);
    std::ranges::sort(runs[i]);
  }
  for (const std::uint64_t part : {1, 7, 8, 9, 15}) {
    std::uint64_t probes = 0;
    cut(runs, total(runs) / 16 * part, &probes);
    CHECK(probes < 3 * 256 * 12);
  }
}

TEST_CASE("a cut of files is the cut of their records") {
  const TemporaryFolder folder;
  Random random(5);
  for (const char* text : {"a:u16,b:u64", "a:bytes35,b:bytes5", "x:u8,a:bytes2000"}) {
    const Schema schema = Schema::parse(text);
    const auto keys = parse_keys("a", schema);
    const KeyEncoding encoding(schema, keys);
    std::vector<Run> runs;
    std::vector<Bytes> contents;
    for (int i = 0; i < 20; ++i) {
      contents.push_back(stably_sorted(schema, keys,
                                       random_records(schema, i == 7 ? 0 : 1 + below(random, 500),
                                                      i % 2 ? Values::any : Values::few, random)));
      const auto path = folder / ("run" + std::to_string(i));
      write_file(path, contents.back());
      runs.emplace_back(path, schema.record_bytes, Run::Opening{.keep_open = i % 3 != 0});
    }
    std::vector<std::uint64_t> counts;
    std::uint64_t records = 0;
    for (const Run& run : runs) {
      counts.push_back(run.records());
      records += run.records();
    }
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t rank = i == 0 ? records : below(random, records);
      const Cut in_memory = co_rank(
          rank, counts,
          [&](std::size_t run, std::uint64_t index) {
            return contents[run].data() + index * schema.record_bytes;
          },
          [&](const std::byte* a, const std::byte* b) {
            return reference_less(schema, keys, a, b);
          });
      ProbeThreads threads;
      CHECK(cut_runs(rank, runs, encoding, threads).position == in_memory.position);
    }
  }
}
