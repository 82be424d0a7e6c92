// Tests of multiway_merge() against std::stable_sort.
#include "corank/algorithm/multiway_merge.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/support.hpp"

namespace corank {
namespace {

using Random = std::mt19937_64;

template <class T>
using Runs = std::vector<std::vector<T>>;

// Sorts the runs, merges them and compares the bytes with a stable sort of their concatenation.
// `order` is a key extractor or a comparator; `less` is the equivalent comparator.
template <class T, class Order, class Less>
bool merges(Runs<T> runs, const Order& order, Less less, unsigned threads) {
  std::vector<T> expected;
  std::vector<std::span<const T>> spans;
  for (auto& run : runs) {
    std::stable_sort(run.begin(), run.end(), less);
    expected.insert(expected.end(), run.begin(), run.end());
    spans.emplace_back(run);
  }
  std::stable_sort(expected.begin(), expected.end(), less);
  std::vector<T> out(expected.size());
  multiway_merge<T>(spans, out, order, threads);
  return out.empty() || std::memcmp(out.data(), expected.data(), out.size() * sizeof(T)) == 0;
}

struct Pair {
  std::uint64_t key;
  std::uint64_t id;
};
struct PayloadFirst {
  std::uint64_t id;
  std::int64_t key;
};
struct Small {
  std::uint8_t key;
  std::uint8_t id;
};
struct Wide {
  std::array<unsigned char, 12> key;
  std::array<unsigned char, 23> id;
};
constexpr auto wide_key = [](const Wide& record) {
  Key<2> key{};
  for (std::size_t i = 0; i < record.key.size(); ++i)
    key.word[i / 8] |= std::uint64_t{record.key[i]} << (56 - i % 8 * 8);
  return key;
};
constexpr auto by_key = [](const auto& a, const auto& b) { return a.key < b.key; };

template <class T>
void set_id(T& record, std::uint64_t id) {
  if constexpr (requires { record.id.size(); })
    std::memcpy(record.id.data(), &id, sizeof id);
  else
    record.id = static_cast<decltype(record.id)>(id);
}

}  // namespace

TEST_CASE("multiway_merge merges all of up to four runs of up to four records", "[multiway]") {
  // Every sorted run over the three maximum keys.
  std::vector<std::string> runs;
  const auto extend = [&](auto&& self, const std::string& run) -> void {
    runs.push_back(run);
    if (run.size() == 4) return;
    for (char key = run.empty() ? '\xfd' : run.back(); key != 0; ++key) self(self, run + key);
  };
  extend(extend, "");
  REQUIRE(runs.size() == 35);

  std::uint64_t wrong = 0;
  std::vector<Pair> records, out(16), expected;
  std::array<std::span<const Pair>, 4> spans;
  for (std::size_t code = 0; code < runs.size() * runs.size() * runs.size() * runs.size();
       code += corank::test::exhaustive_step) {
    records.clear();
    std::array<std::size_t, 5> ends{};
    for (std::size_t r = 0, rest = code; r < 4; ++r, rest /= runs.size()) {
      for (char key : runs[rest % runs.size()])
        records.push_back({~0xffull | static_cast<unsigned char>(key), records.size()});
      ends[r + 1] = records.size();
    }
    for (std::size_t r = 0; r < 4; ++r)
      spans[r] = std::span<const Pair>(records).subspan(ends[r], ends[r + 1] - ends[r]);
    expected = records;
    std::stable_sort(expected.begin(), expected.end(), by_key);
    const std::span<Pair> to = std::span(out).first(records.size());
    multiway_merge<Pair>(spans, to, &Pair::key, 1);
    wrong += !records.empty() &&
             std::memcmp(out.data(), expected.data(), expected.size() * sizeof(Pair)) != 0;
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("multiway_merge is stable for records of every kind", "[multiway]", Pair,
                   PayloadFirst, Small, Wide) {
  Random random(1);
  for (const std::size_t k : {0u, 1u, 2u, 3u, 5u, 16u, 100u, 1'500u})
    for (const std::uint64_t records : {0u, 1u, 100u, 20'000u, 150'000u})
      for (const unsigned bits : {0u, 3u, 64u})
        for (const unsigned threads : {1u, 3u}) {
          if (k == 0 && records > 0) continue;
          if (records > 100'000 && k != 2 && k != 100) continue;
          CAPTURE(k, records, bits, threads);
          Runs<TestType> runs(k);
          for (std::uint64_t id = 0; id < records; ++id) {
            // Few distinct keys: they lie around the minimum and the maximum.
            std::uint64_t key = bits == 64 ? random() : (random() >> 1 & ((1u << bits) - 1)) - 4;
            TestType record{};
            std::memcpy(&record.key, &key, std::min(sizeof key, sizeof record.key));
            if constexpr (std::is_same_v<TestType, Wide>) record.key[11] = random() % 3;
            set_id(record, id);
            // Later runs are longer, and one in eight is empty.
            const std::size_t run = std::max(random() % k, random() % k);
            runs[run % 8 == 5 ? 0 : run].push_back(record);
          }
          if constexpr (std::is_same_v<TestType, Wide>)
            CHECK(merges(runs, wide_key, by_key, threads));
          else
            CHECK(merges(runs, &TestType::key, by_key, threads));
          CHECK(merges(runs, by_key, by_key, threads));
        }
}

TEMPLATE_TEST_CASE("multiway_merge merges numbers in their order", "[multiway]", std::uint8_t,
                   std::int16_t, std::int32_t, std::uint64_t, std::int64_t) {
  Random random(2);
  for (const std::size_t k : {1u, 2u, 40u, 700u}) {
    Runs<TestType> runs(k);
    for (int i = 0; i < 200'000; ++i)
      runs[random() % k].push_back(static_cast<TestType>(random() >> (random() % 64)));
    CHECK(merges(runs, std::identity{}, std::less<>{}, 2));
    CHECK(merges(runs, std::less<TestType>{}, std::less<>{}, 2));
    CHECK(merges(runs, std::greater<>{}, std::greater<>{}, 2));
  }
}

TEST_CASE("multiway_merge orders floats totally", "[multiway]") {
  struct Record {
    double key;
    std::uint64_t id;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const double values[] = {-infinity, -1.5, -0.0, 0.0, 5e-324, 2, infinity, nan, -nan};
  Random random(3);
  Runs<Record> runs(9);
  for (std::uint64_t id = 0; id < 5'000; ++id)
    runs[random() % runs.size()].push_back({values[random() % std::size(values)], id});
  CHECK(merges(
      runs, &Record::key,
      [](const Record& a, const Record& b) {
        return a.key < b.key || (!std::isnan(a.key) && std::isnan(b.key));
      },
      2));
}

TEST_CASE("multiway_merge merges disjoint, interleaved and lopsided runs", "[multiway]") {
  Random random(4);
  Runs<Pair> runs(20);
  std::uint64_t id = 0;
  SECTION("disjoint, in order") {
    for (std::uint64_t r = 0; r < 20; ++r)
      for (int i = 0; i < 10'000; ++i) runs[r].push_back({r * 1'000 + random() % 1'000, id++});
  }
  SECTION("disjoint, in reverse") {
    for (std::uint64_t r = 0; r < 20; ++r)
      for (int i = 0; i < 10'000; ++i) runs[19 - r].push_back({r * 1'000 + random() % 999, id++});
  }
  SECTION("interleaved") {
    for (std::uint64_t i = 0; i < 200'000; ++i) runs[i % 20].push_back({i, id++});
  }
  SECTION("all equal") {
    for (std::uint64_t i = 0; i < 200'000; ++i) runs[i % 20].push_back({~0ull, id++});
  }
  SECTION("one long run and many of one record") {
    for (std::uint64_t i = 0; i < 200'000; ++i) runs[7].push_back({random() % 100, id++});
    for (auto& run : runs)
      if (run.empty()) run.push_back({random() % 100, id++});
  }
  SECTION("few keys in long stretches") {
    for (std::uint64_t i = 0; i < 200'000; ++i)
      runs[i % 20].push_back({i / 50'000 * (~0ull / 3), id++});
  }
  CHECK(merges(runs, &Pair::key, by_key, 1));
  CHECK(merges(runs, &Pair::key, by_key, 2));
  CHECK(merges(
      runs, [](const Pair& record) { return record.key; }, by_key, 2));
  CHECK(merges(runs, by_key, by_key, 2));
}

TEST_CASE("multiway_merge takes comparators that move only and records without a default",
          "[multiway]") {
  struct Number {
    explicit Number(int number) : value(number) {}
    int value;
  };
  struct Less {
    Less() = default;
    Less(Less&&) = default;
    bool operator()(const Number& a, const Number& b) const { return a.value < b.value; }
  };
  const std::vector<Number> odd{Number(1), Number(3)}, even{Number(0), Number(2)};
  const std::array<std::span<const Number>, 2> runs{odd, even};
  std::vector<Number> out(4, Number(7));
  multiway_merge<Number>(runs, out, Less());
  for (int i = 0; i < 4; ++i) CHECK(out[static_cast<std::size_t>(i)].value == i);
}

TEST_CASE("multiway_merge by a comparator takes bool and records that only assignment copies",
          "[multiway]") {
  const std::array<bool, 3> some{true, true, false};
  const std::array<bool, 2> more{true, false};
  const std::array<std::span<const bool>, 2> runs{some, more};
  std::array<bool, 5> out{};
  multiway_merge<bool>(runs, out, std::greater<>());
  CHECK(out == std::array<bool, 5>{true, true, true, false, false});

  struct Assigned {
    Assigned() = default;
    Assigned(const Assigned&) = delete;
    Assigned& operator=(const Assigned&) = default;
    int value = 1;
  };
  static_assert(Mergeable<Assigned>);
  std::array<Assigned, 2> low, high;
  high[1].value = 2;
  std::array<Assigned, 4> all;
  const std::array<std::span<const Assigned>, 2> both{high, low};
  multiway_merge<Assigned>(both, all,
                           [](const Assigned& a, const Assigned& b) { return a.value < b.value; });
  CHECK(all[2].value == 1);
  CHECK(all[3].value == 2);
}

// A run that is merged in parts is checked across their boundaries as well.
TEST_CASE("multiway_merge refuses a run wherever it is not sorted", "[multiway]") {
  constexpr std::size_t records = 1'200;  // 35 bytes each, copied in several pieces
  std::vector<Wide> sorted(records), out(records);
  for (std::size_t i = 0; i < records; ++i) {
    sorted[i].key[10] = static_cast<unsigned char>(i / 256);
    sorted[i].key[11] = static_cast<unsigned char>(i % 256);
  }
  std::uint64_t refused = 0;
  for (std::size_t at = 1; at < records; ++at) {
    std::vector<Wide> run = sorted;
    std::swap(run[at - 1], run[at]);
    const std::array whole{std::span<const Wide>(run)};
    try {
      multiway_merge<Wide>(whole, out, wide_key, 1);
    } catch (const std::invalid_argument&) {
      ++refused;
    }
  }
  CHECK(refused == records - 1);
}

// Merges `runs` by a comparator; returns false if the merge throws. Fails the test if a record is
// lost or repeated, or is written beyond the output.
template <class T, class Less>
bool merges_all_records(const Runs<T>& runs, Less less) {
  std::vector<T> expected;
  std::vector<std::span<const T>> spans;
  for (const auto& run : runs) {
    expected.insert(expected.end(), run.begin(), run.end());
    spans.emplace_back(run);
  }
  const T guard = expected.front();
  std::vector<T> out(expected.size() + 1, guard);
  const auto merged = std::span(out).first(expected.size());
  try {
    multiway_merge<T>(spans, merged, less, 2);
  } catch (const std::invalid_argument&) {
    return false;
  }
  const auto bytes_less = [](const T& a, const T& b) { return std::memcmp(&a, &b, sizeof(T)) < 0; };
  std::ranges::sort(expected, bytes_less);
  CHECK(std::memcmp(&out.back(), &guard, sizeof(T)) == 0);
  std::ranges::sort(merged, bytes_less);
  CHECK(std::memcmp(merged.data(), expected.data(), expected.size() * sizeof(T)) == 0);
  return true;
}

TEST_CASE("multiway_merge by a comparator loses no record of unsorted runs", "[multiway]") {
  Random random(29);
  const auto runs_of = [&](std::size_t count, std::size_t records) {
    Runs<double> runs(count, std::vector<double>(records));
    for (auto& run : runs) {
      for (double& number : run) number = static_cast<double>(random() >> 11);
      std::ranges::sort(run);
    }
    return runs;
  };
  const std::size_t count = GENERATE(1, 2, 4, 33);
  Runs<double> runs = runs_of(count, 80'000 / count);
  const auto less = std::less<double>();

  SECTION("sorted") {
    CHECK(merges_all_records(runs, less));
  }
  SECTION("descending") {
    for (auto& run : runs) std::ranges::reverse(run);
    CHECK(!merges_all_records(runs, less));
  }
  SECTION("one run descends") {
    std::ranges::reverse(runs.back());
    CHECK(!merges_all_records(runs, less));
  }
  SECTION("random") {
    for (auto& run : runs) std::ranges::shuffle(run, random);
    merges_all_records(runs, less);
  }
  SECTION("one swap") {
    for (int i = 0; i < 50; ++i) {
      auto swapped = runs;
      auto& run = swapped[random() % count];
      std::swap(run[random() % run.size()], run[random() % run.size()]);
      merges_all_records(swapped, less);
    }
  }
  SECTION("numbers that are none") {
    for (int part = 2; part < 100'000; part *= 7) {
      auto holed = runs;
      for (auto& run : holed)
        for (double& number : run)
          if (random() % static_cast<unsigned>(part) == 0) number = std::nan("");
      merges_all_records(holed, less);
    }
  }
  SECTION("saws") {
    for (auto& run : runs)
      for (std::size_t i = 0; i < run.size(); ++i) run[i] = static_cast<double>(i % 977);
    merges_all_records(runs, less);
  }
  SECTION("wide records") {
    Runs<Wide> wide(count, std::vector<Wide>(80'000 / count));
    for (auto& run : wide)
      for (Wide& record : run) {
        set_id(record, random());
        for (auto& byte : record.key) byte = static_cast<unsigned char>(random());
      }
    merges_all_records(wide, by_key);
  }
}

TEST_CASE("multiway_merge refuses what it can't merge", "[multiway]") {
  Random random(5);
  std::vector<std::uint64_t> run(100'000);
  for (auto& key : run) key = random();
  std::ranges::sort(run);
  std::vector<std::uint64_t> out(run.size());
  const std::span<const std::uint64_t> span = run;
  const std::array halves{span.first(50'000), span.subspan(50'000)};
  using Halves = std::span<const std::span<const std::uint64_t>>;

  SECTION("a run that is not sorted") {
    const std::size_t at = random() % (run.size() - 1);
    std::swap(run[at], run[at + 1]);
    const std::array whole{span};
    CHECK_THROWS_AS(multiway_merge<std::uint64_t>(whole, out, std::identity{}),
                    std::invalid_argument);
  }
  SECTION("an output that is too small") {
    CHECK_THROWS_AS(multiway_merge<std::uint64_t>(Halves(halves), std::span(out).first(99'999),
                                                  std::identity{}),
                    std::invalid_argument);
  }
  SECTION("an output that is too large") {
    out.push_back(0);
    CHECK_THROWS_AS(multiway_merge<std::uint64_t>(halves, out, std::less<>{}),
                    std::invalid_argument);
  }
}

namespace {

struct Item {
  std::uint64_t key;
  bool before(const Item& other) const { return key < other.key; }
};
struct Constant {
  const int value;
};
using Items = std::span<const std::span<const Item>>;
template <class T, class By>
concept CanMerge = requires(std::span<const std::span<const T>> runs, std::span<T> out, By by) {
  multiway_merge<T>(runs, out, by);
};
static_assert(CanMerge<int, std::less<>> && CanMerge<Item, bool (Item::*)(const Item&) const>);
static_assert(CanMerge<Item, std::uint64_t Item::*> && CanMerge<Item*, std::uint64_t Item::*>);
static_assert(!CanMerge<Item, std::less<>> && !CanMerge<int, int>);
static_assert(!CanMerge<Constant, bool (*)(const Constant&, const Constant&)>);

}  // namespace

TEST_CASE("multiway_merge refuses a comparator that is not strict", "[multiway]") {
  const std::vector<double> a{1.0, 2.0, 2.0}, b{2.0};
  const std::array<std::span<const double>, 2> runs{a, b};
  std::array<double, 4> out{};
  CHECK_THROWS_AS((multiway_merge<double>(runs, out, std::less_equal<>{})), std::invalid_argument);
  const std::vector<std::uint64_t> counts(5, 1000);
  CHECK_THROWS_AS(
      co_rank(
          2500, counts, [](std::size_t, std::uint64_t i) { return i / 10; }, std::less_equal<>{}),
      std::invalid_argument);
}

TEST_CASE("multiway_merge takes whatever std::invoke does", "[multiway]") {
  const std::vector<Item> a{{1}, {3}, {5}}, b{{2}, {3}, {4}};
  const std::vector<std::span<const Item>> runs{a, b};
  std::vector<Item> out(6);
  const auto keys = [](const auto& items) {
    std::vector<std::uint64_t> found;
    for (const auto& item : items) found.push_back(std::invoke(&Item::key, item));
    return found;
  };
  const std::vector<std::uint64_t> expected{1, 2, 3, 3, 4, 5};
  multiway_merge<Item>(Items(runs), out, &Item::before);
  CHECK(keys(out) == expected);
  multiway_merge<Item>(Items(runs), out, &Item::key);
  CHECK(keys(out) == expected);
  std::vector<const Item*> x, y;
  for (const Item& item : a) x.push_back(&item);
  for (const Item& item : b) y.push_back(&item);
  const std::vector<std::span<const Item* const>> pointers{x, y};
  std::vector<const Item*> merged(6);
  multiway_merge<const Item*>(pointers, merged, &Item::key);
  CHECK(keys(merged) == expected);
  CHECK(merged[2] == &a[1]);
}

}  // namespace corank
