// Tests of word merging, of prefix merges of records, and of the kernels that they use.
#include "merge/word_merger.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "merge/nontemporal_copy.hpp"
#include "merge/record_sort.hpp"
#include "merge/tile_merger.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

namespace corank {
namespace {

using Random = std::mt19937_64;
using Words = std::vector<Word>;

// Sorts and merges the runs; returns the number of wrong merges.
int wrong_merges(const WordKernel& kernel, std::vector<Words> runs) {
  Words expected;
  for (Words& run : runs) {
    std::ranges::sort(run);
    expected.insert(expected.end(), run.begin(), run.end());
  }
  std::ranges::sort(expected);
  WordMerger merger(kernel);
  const auto fill = [&] {
    merger.reset(expected.size(), runs.size());
    for (const Words& run : runs)
      if (!run.empty()) std::ranges::copy(run, merger.add(run.front(), run.size()));
  };
  fill();
  int wrong = !std::ranges::equal(merger.merge(), expected);
  // The words before and after the output must stay untouched. One position is aligned for
  // non-temporal stores, the others are not.
  constexpr std::ptrdiff_t places = streamed_bytes / sizeof(Word);
  for (const Word flip : {Word{0}, Word{INT64_MIN}, Word{-1}})
    for (const bool streams : {false, true})
      for (std::ptrdiff_t before = 1; before <= places; ++before) {
        fill();
        Words out(expected.size() + places + 1, 42);
        merger.merge_into(out.data() + before, flip, streams);
        const auto merged =
            std::span(out).subspan(static_cast<std::size_t>(before), expected.size());
        wrong += std::ranges::count(out.begin(), out.begin() + before, 42) != before ||
                 std::ranges::count(merged.data() + merged.size(), out.data() + out.size(), 42) !=
                     places + 1 - before;
        for (Word& word : merged) word ^= flip;
        wrong += !std::ranges::equal(merged, expected);
      }
  return wrong;
}

struct WordPair {
  std::uint64_t key, id;
};
struct WideWords {
  std::uint64_t high, low;
  std::uint64_t id;
};

// Returns true if the sorted runs merge as std::stable_sort() sorts them and the fingerprint is
// that of the expected output.
template <class Record, class Less>
bool merges_tile(const WordKernel& kernel, const detail::KeyWords& keys,
                 std::vector<std::vector<Record>> runs, Less less) {
  std::vector<Record> expected;
  std::vector<SortedSpan> spans;
  for (auto& run : runs) {
    std::stable_sort(run.begin(), run.end(), less);
    expected.insert(expected.end(), run.begin(), run.end());
    spans.push_back({reinterpret_cast<const std::byte*>(run.data()), run.size(), false});
  }
  std::stable_sort(expected.begin(), expected.end(), less);
  const auto merges = [&](Output output) {
    std::vector<Record> out(expected.size());
    const auto fingerprint =
        make_tile_merger(keys, output, kernel)
            ->merge(spans, reinterpret_cast<std::byte*>(out.data()), nullptr, portable_fingerprint);
    return fingerprint ==
               portable_fingerprint(std::as_bytes(std::span(expected)), sizeof(Record)) &&
           std::memcmp(out.data(), expected.data(), out.size() * sizeof(Record)) == 0;
  };
  return merges(Output::read_next) && merges(Output::read_later);
}

}  // namespace

TEST_CASE("words: all of up to three runs of up to five words are merged", "[word]") {
  // Every sorted run over the three maximum words.
  std::vector<Words> runs;
  const auto extend = [&](auto&& self, const Words& run) -> void {
    runs.push_back(run);
    if (run.size() == 5) return;
    for (Word back = run.empty() ? 2 : INT64_MAX - run.back(); back >= 0; --back) {
      Words longer = run;
      longer.push_back(INT64_MAX - back);
      self(self, longer);
    }
  };
  extend(extend, {});
  REQUIRE(runs.size() == 56);
  for (const WordKernel* kernel : word_kernels()) {
    int wrong = 0;
    for (const Words& a : runs)
      for (const Words& b : runs) {
        wrong += wrong_merges(*kernel, {a, b});
        for (std::size_t c = (a.size() + b.size()) % corank::test::exhaustive_step; c < runs.size();
             c += corank::test::exhaustive_step)
          wrong += wrong_merges(*kernel, {a, b, runs[c]});
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("words: long and lopsided runs are merged", "[word]") {
  Random random(1);
  for (const WordKernel* kernel : word_kernels())
    for (const std::size_t k : {1u, 2u, 3u, 16u, 100u, 1'000u})
      for (const unsigned shift : {0u, 40u, 61u})
        for (const bool lopsided : {false, true}) {
          std::vector<Words> runs(k);
          for (int i = 0; i < 50'000; ++i)
            runs[lopsided && random() % 64 ? k - 1 : random() % k].push_back(
                static_cast<Word>(random()) >> shift);
          CAPTURE(kernel->carries, k, shift, lopsided);
          CHECK(wrong_merges(*kernel, runs) == 0);
        }
}

TEST_CASE("words: a short run behind many words that are the greatest is merged", "[word]") {
  const Words greatest(10'000, INT64_MAX);
  for (const WordKernel* kernel : word_kernels())
    for (const std::vector<Words>& runs : {std::vector{greatest, {1, 2, INT64_MAX}},
                                           {greatest, {1, INT64_MAX}, {0, 2}},
                                           {greatest, greatest, {3}, greatest, {1, 2}}})
      CHECK(wrong_merges(*kernel, runs) == 0);
}

TEST_CASE("words: keys are read and packed alike by every kernel", "[word]") {
  Random random(4);
  for (const WordKernel* kernel : word_kernels())
    for (const std::uint64_t stride : {8u, 16u, 24u, 100u})
      for (const std::uint64_t count : {0u, 1u, 2u, 7u, 64u, 101u})
        for (const bool swap : {false, true})
          for (const std::uint64_t flip :
               {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
            CAPTURE(kernel->carries, stride, count, swap, flip);
            // Random, ascending, or ascending with equal values.
            const std::uint64_t kind = random() % 3;
            std::vector<std::byte> bytes(stride * count + 8);
            std::vector<std::uint64_t> values(count), expected, packed(count);
            for (std::uint64_t& value : values) value = random() >> (kind == 2 ? 58 : 1);
            if (kind != 0) std::ranges::sort(values);
            for (std::uint64_t i = 0; i < count; ++i) {
              const std::uint64_t raw = values[i] ^ flip;
              const std::uint64_t stored = swap ? __builtin_bswap64(raw) : raw;
              std::memcpy(bytes.data() + i * stride, &stored, 8);
              expected.push_back(values[i] >> 7 << 5 | 19);
            }
            Order order{.last = 3};
            kernel->read_packed(bytes.data(), stride, count, swap, flip, {0, 7, 5}, 19, order,
                                packed.data());
            CHECK(packed == expected);
            // The kernel compares words as signed.
            CHECK(kernel->ascend(bytes.data(), stride, count, swap, flip ^ 1ull << 63) ==
                  std::ranges::is_sorted(values));
            values.insert(values.begin(), 3);
            CHECK(order.last == values.back());
            CHECK(order.descends == !std::ranges::is_sorted(values));
            CHECK(order.equals == (std::ranges::adjacent_find(values) != values.end()));
          }
}

TEST_CASE("words: neighbours that only their runs tell apart are found", "[word]") {
  const Packing packing{0, 0, 3};
  for (const WordKernel* kernel : word_kernels())
    for (std::size_t count = 0; count < 40; ++count) {
      Words words(count);
      for (std::size_t i = 0; i < count; ++i) words[i] = static_cast<Word>(i << 3 | i % 8);
      CHECK_FALSE(kernel->tied(words.data(), count, packing, true));
      for (std::size_t i = 1; i < count; ++i) {
        CAPTURE(kernel->carries, count, i);
        Words tied = words;
        tied[i] = (tied[i - 1] & ~Word{7}) | 5;
        CHECK(kernel->tied(tied.data(), count, packing, true));
        CHECK(kernel->tied(tied.data(), count, packing, false) == (tied[i] != tied[i - 1]));
      }
    }
}

// A record with a key of three words, whose size does not divide a window.
struct Long {
  std::uint64_t first, second, third, id, payload[8];
};

TEST_CASE("what ties is merged stably, in order as it is or not", "[word]") {
  const auto key_of = [](const Long& record) {
    return Key<4>{{record.first, record.second, record.third, 0}};
  };
  const detail::ExtractedWords<Long, decltype(key_of)> keys(key_of);
  Random random(7);
  for (const WordKernel* kernel : word_kernels())
    for (const std::size_t k : {2u, 50u})
      // The number of distinct values of each word: many groups of equal keys, few long groups, and
      // equal prefixes that the second or the third word decides.
      for (const auto& [firsts, seconds, thirds] : {std::array{4'000u, 1u, 1u},
                                                    {3u, 1u, 1u},
                                                    {3u, 2u, 1u},
                                                    {3u, 1u, 2u},
                                                    {400u, 3u, 1u},
                                                    {400u, 1u, 3u},
                                                    {4'000u, 2u, 2u}}) {
        CAPTURE(kernel->carries, k, firsts, seconds, thirds);
        std::vector<std::vector<Long>> runs(k);
        for (std::uint64_t id = 0; id < 20'000; ++id)
          runs[random() % k].push_back({random() % firsts * 0x9e3779b97f4a7c15u,
                                        random() % seconds,
                                        random() % thirds,
                                        id,
                                        {}});
        CHECK(merges_tile(*kernel, keys, runs, [](const Long& a, const Long& b) {
          return std::tie(a.first, a.second, a.third) < std::tie(b.first, b.second, b.third);
        }));
      }
}

TEST_CASE("records of a run that tie and are out of order are found", "[word]") {
  const auto key_of = [](const Long& record) {
    return Key<4>{{record.first, record.second, record.third, 0}};
  };
  const auto key = [](const Long& record) {
    return std::tie(record.first, record.second, record.third);
  };
  const detail::ExtractedWords<Long, decltype(key_of)> keys(key_of);
  Random random(8);
  int tried = 0;
  for (const WordKernel* kernel : word_kernels())
    for (const std::size_t k : {1u, 2u, 50u})
      // Equal prefixes whose records are already in order across the runs, mostly, and some that
      // are not.
      for (const auto& [firsts, seconds, thirds] : {std::array{4'000u, 4'000'000'000u, 1u},
                                                    {40u, 1u, 4'000'000'000u},
                                                    {400u, 3u, 1u},
                                                    {3u, 1u, 2u},
                                                    {4'000u, 2u, 2u}}) {
        std::vector<std::vector<Long>> runs(k);
        for (std::uint64_t id = 0; id < 10'000; ++id) {
          const std::uint64_t first = random() % firsts;
          const bool last = first % 2 == 0 && thirds != 2;
          runs[last ? k - 1 : random() % k].push_back(
              {first * 0x9e3779b97f4a7c15u, random() % seconds, random() % thirds, id, {}});
        }
        std::vector<SortedSpan> spans;
        for (auto& run : runs) {
          std::ranges::stable_sort(run, {}, key);
          spans.push_back({reinterpret_cast<const std::byte*>(run.data()), run.size(), false});
        }
        std::vector<Long> out(10'000);
        const auto merges = [&](Output output) {
          return make_tile_merger(keys, output, *kernel)
              ->merge(spans, reinterpret_cast<std::byte*>(out.data()))
              .has_value();
        };
        for (int trial = 0; trial < 200; ++trial) {
          std::vector<Long>& run = runs[random() % k];
          if (run.size() < 2) continue;
          const std::size_t at = random() % (run.size() - 1);
          if (run[at].first != run[at + 1].first || !(key(run[at]) < key(run[at + 1]))) continue;
          CAPTURE(kernel->carries, k, firsts, seconds, thirds, at);
          std::swap(run[at], run[at + 1]);
          CHECK(!merges(Output::read_next));
          CHECK(!merges(Output::read_later));
          std::swap(run[at], run[at + 1]);
          ++tried;
        }
        CHECK(merges(Output::read_next));
      }
  CHECK(tried > 1'000);
}

TEST_CASE("ties that are out of order are found wherever the first run of them ends", "[word]") {
  const auto key_of = [](const Long& record) { return Key<2>{{record.first, record.second}}; };
  const detail::ExtractedWords<Long, decltype(key_of)> keys(key_of);
  for (std::uint64_t count = 1; count < 400; ++count) {
    CAPTURE(count);
    std::vector<std::vector<Long>> runs(2);
    for (std::uint64_t id = 0; id < count; ++id) {
      runs[0].push_back({1, 5, 0, id, {}});
      runs[1].push_back({1, 4, 0, id, {}});
    }
    runs[1].push_back({2, 0, 0, 0, {}});
    CHECK(merges_tile(best_word_kernel(), keys, runs, [](const Long& a, const Long& b) {
      return std::tie(a.first, a.second) < std::tie(b.first, b.second);
    }));
  }
}

TEMPLATE_TEST_CASE("tiles are merged by every kernel", "[word]", WordPair, WideWords) {
  const auto key_of = [](const TestType& record) {
    if constexpr (std::is_same_v<TestType, WideWords>)
      return Key<2>{{record.high, record.low}};
    else
      return record.key;
  };
  const auto less = [&](const TestType& a, const TestType& b) {
    if constexpr (std::is_same_v<TestType, WideWords>)
      return std::pair(a.high, a.low) < std::pair(b.high, b.low);
    else
      return a.key < b.key;
  };
  const detail::ExtractedWords<TestType, decltype(key_of)> keys(key_of);
  Random random(3);
  for (const WordKernel* kernel : word_kernels())
    for (const std::size_t k : {1u, 2u, 30u, 700u})
      for (const unsigned bits : {0u, 3u, 20u, 64u}) {
        CAPTURE(kernel->carries, k, bits);
        std::vector<std::vector<TestType>> runs(k);
        for (std::uint64_t id = 0; id < 40'000; ++id) {
          TestType record{};
          // Keys that differ in their last bits only, in their first bits, or in both.
          const std::uint64_t key = bits == 64 ? random() : random() & ((1ull << bits) - 1);
          if constexpr (std::is_same_v<TestType, WideWords>) {
            record.high = k == 30 ? key << 44 : 7;
            record.low = k == 30 ? random() % 3 : key;
          } else {
            // With 700 runs, the keys vary in ten high bits and two low bits, which do not fit
            // beside the run id.
            record.key = k == 30 && bits == 20    ? key << 44
                         : k == 700 && bits == 64 ? key & (std::uint64_t{0x3ff} << 54 | 3)
                                                  : key;
          }
          record.id = id;
          runs[std::max(random() % k, random() % k)].push_back(record);
        }
        CHECK(merges_tile(*kernel, keys, runs, less));
      }
}

TEST_CASE("pieces of every size are streamed to where they belong", "[word]") {
  const auto index = GENERATE(range(std::size_t{0}, word_kernels().size()));
  const WordKernel* const kernel = word_kernels()[index];
  Random random(5);
  std::vector<std::byte> from(40'000), out(from.size() + 64);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  for (const std::size_t most : {1u, 16u, 100u, 5'000u})
    for (const std::size_t offset : {0u, 1u, 40u, 63u}) {
      std::ranges::fill(out, std::byte{0});
      const std::size_t bytes = std::min<std::size_t>(from.size(), 1'000 * most) - random() % 100;
      {
        NontemporalWriter writer(out.data() + offset, kernel->stream_lines);
        for (std::size_t at = 0; at < bytes;) {
          const std::size_t piece = std::min<std::size_t>(random() % most + 1, bytes - at);
          if (random() % 2 == 0 && piece <= NontemporalWriter::window_bytes) {
            // A new window discards unwritten bytes of the previous one.
            std::byte* const window = writer.window();
            std::memset(window, 0xff, NontemporalWriter::window_bytes);
            std::memcpy(window, from.data() + at, piece);
            writer.advance(piece);
          } else {
            writer.write(from.data() + at, piece);
          }
          at += piece;
          if (random() % 4 == 0) {
            const std::size_t again = random() % std::min(at, 2 * most);
            writer.go_back(again);
            at -= again;
          }
        }
      }
      CAPTURE(most, offset, bytes);
      const auto begin = out.begin() + static_cast<std::ptrdiff_t>(offset);
      CHECK(std::equal(begin, begin + static_cast<std::ptrdiff_t>(bytes), from.begin()));
      CHECK(std::ranges::count(out, std::byte{0}) ==
            static_cast<std::ptrdiff_t>(out.size() - bytes) +
                std::count(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes),
                           std::byte{0}));
    }
}

template <class KeyOf>
void check_sorted_stably(const KeyOf& key_of) {
  Random random(4);
  const detail::ExtractedWords<WideWords, KeyOf> keys(key_of);
  for (const std::uint64_t range : {1ull, 5ull, 1ull << 40}) {
    std::vector<WideWords> records(3'000);
    std::vector<RecordRef> sorted, expected;
    for (std::uint64_t i = 0; i < records.size(); ++i) {
      // Some records differ only in bits that do not fit beside an index.
      records[i] = {(random() % 3 << 62) + random() % 4, random() % range, i};
      sorted.push_back({reinterpret_cast<const std::byte*>(&records[i]), i});
    }
    expected = sorted;
    std::stable_sort(expected.begin(), expected.end(), [&](const RecordRef& a, const RecordRef& b) {
      return keys.less(a.record, b.record);
    });
    RecordSorter(keys, best_word_kernel()).sort(sorted, 0);
    CHECK(std::ranges::equal(sorted, expected, {}, &RecordRef::run, &RecordRef::run));
  }
}

TEST_CASE("records that are few runs are sorted stably", "[word]") {
  check_sorted_stably([](const WideWords& record) { return record.high; });
  check_sorted_stably([](const WideWords& record) { return Key<2>{{record.high, record.low}}; });
  check_sorted_stably([](const WideWords& record) {
    return Key<2>{{record.high & 1, record.low}};
  });
  check_sorted_stably([](const WideWords& record) { return Key<2>{{7, record.low}}; });
  check_sorted_stably([](const WideWords& record) {
    return Key<3>{{record.high & 1, record.high, record.low}};
  });
}

}  // namespace corank
