// Tests of fronts: common prefixes of two runs that are merged without bounds checks.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "merge/front_merge.hpp"
#include "merge/tile_merger.hpp"
#include "merge/word_merger.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

namespace corank {
namespace {

using test::Random;
using Words = std::vector<Word>;

struct FrontPair {
  std::uint64_t key, id;
};

// Copies values to memory that ends at an inaccessible page.
template <class T>
class Guarded {
 public:
  explicit Guarded(const std::vector<T>& values) : count_(values.size()) {
    const std::size_t bytes = (count_ * sizeof(T) / page_bytes + 1) * page_bytes;
    mapped_bytes_ = bytes + page_bytes;
    void* const mapped =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    pages_ = static_cast<std::byte*>(mapped);
    REQUIRE(mprotect(pages_ + bytes, page_bytes, PROT_NONE) == 0);
    values_ = pages_ + bytes - count_ * sizeof(T);
    std::ranges::copy(std::as_bytes(std::span(values)), values_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(pages_, mapped_bytes_); }

  std::span<const T> values() const { return {reinterpret_cast<const T*>(values_), count_}; }
  SortedSpan span() const { return {values_, count_, false}; }

 private:
  static constexpr std::size_t page_bytes = std::size_t{64} << 10;  // the largest page size

  std::size_t count_, mapped_bytes_;
  std::byte *pages_, *values_;
};

// Reads the key of 16-byte records that a SingleWordKey describes.
class WordAt final : public detail::KeyWords {
 public:
  explicit WordAt(const detail::SingleWordKey& key) : key_(key) {}

  std::uint32_t record_bytes() const override { return 16; }
  std::uint32_t words() const override { return 1; }
  void read(std::uint32_t, const std::byte* records, std::size_t count,
            std::uint64_t* to) const override {
    for (std::size_t i = 0; i < count; ++i) to[i] = word(records + 16 * i);
  }
  void gather(std::uint32_t, std::span<const std::byte* const> records,
              std::uint64_t* to) const override {
    for (const std::byte* record : records) *to++ = word(record);
  }
  bool less(const std::byte* a, const std::byte* b) const override { return word(a) < word(b); }
  std::optional<detail::SingleWordKey> single_word_key() const override { return key_; }

  std::uint64_t word(const std::byte* record) const {
    std::uint64_t value;
    std::memcpy(&value, record + key_.offset, 8);
    return (key_.big_endian ? __builtin_bswap64(value) : value) ^ key_.flip;
  }

 private:
  detail::SingleWordKey key_;
};

constexpr std::uint64_t sign = std::uint64_t{1} << 63;

}  // namespace

TEST_CASE("fronts of two runs of words are merged, and what is left is little", "[front]") {
  Random random(2);
  for (const WordKernel* kernel : word_kernels())
    for (const bool unsigned_order : {false, true})
      for (const std::size_t a_count : {0u, 8u, 9u, 100u, 300u, 70'000u})
        for (const std::size_t b_count : {1u, 50u, 70u, 60'001u})
          for (const unsigned shift : {0u, 58u, 62u}) {
            CAPTURE(kernel->carries, unsigned_order, a_count, b_count, shift);
            const auto less = [&](Word x, Word y) {
              return unsigned_order ? static_cast<std::uint64_t>(x) < static_cast<std::uint64_t>(y)
                                    : x < y;
            };
            Words a(a_count), b(b_count);
            for (Words* run : {&a, &b}) {
              for (Word& word : *run) word = static_cast<Word>(random()) >> shift;
              std::ranges::sort(*run, less);
            }
            Words expected(a_count + b_count), place(a_count + b_count + 1, 42);
            std::ranges::merge(a, b, expected.begin(), less);
            WordMerger merger(*kernel);
            // The output may be unaligned to vectors.
            const auto out = place.begin() + static_cast<std::ptrdiff_t>(random() % 2);
            CAPTURE(out - place.begin());
            const auto merge_all = [&] {
              Front done;
              for (;;) {
                const auto front =
                    merger.merge_front(std::span(a).subspan(done.a), std::span(b).subspan(done.b),
                                       unsigned_order, &*out + done.count());
                if (!front) return Front{~std::uint64_t{0}, 0};
                if (front->count() == 0) return done;
                done.a += front->a;
                done.b += front->b;
              }
            };
            const Front done = merge_all();
            REQUIRE(done.count() <= expected.size());
            CHECK(
                std::equal(out, out + static_cast<std::ptrdiff_t>(done.count()), expected.begin()));
            // No front exists if equal words extend to near the end of `b`.
            constexpr std::size_t most = std::size_t{4} * 1024;
            const bool ties =
                shift != 0 && b_count > word_margin && a_count != 0 &&
                !less(a[std::min(done.a + most, a_count) - 1], b[b_count - word_margin]);
            CHECK((ties || done.count() + 4 * word_margin + 16 > expected.size() ||
                   done.a + 9 + 16 > a_count || done.b + 9 + 16 > b_count));
            if (a_count < 30'000 || b_count < 20'000 || shift != 0) continue;
            const std::size_t at = random() % 50'000;
            std::swap(b[at], b[at + 1]);
            CHECK(merge_all().a == ~std::uint64_t{0});
          }
}

TEST_CASE("two runs of 16-byte records are merged stably, whatever their key", "[front]") {
  Random random(3);
  const auto all_kernels = word_kernels();
  for (const std::uint32_t offset : {0u, 3u, 8u})
    for (const bool big_endian : {false, true})
      for (const std::uint64_t flip : {std::uint64_t{0}, sign, ~std::uint64_t{0}, ~sign})
        for (const auto& [a_count, b_count] : {std::pair{0u, 5u},
                                               {1u, 1u},
                                               {2u, 2u},
                                               {6u, 9u},
                                               {1u, 500u},
                                               {2'000u, 30u},
                                               {40'000u, 45'000u}})
          for (const unsigned shift : {0u, 50u, 62u}) {
            CAPTURE(offset, big_endian, flip, a_count, b_count, shift);
            const WordAt keys({offset, big_endian, flip});
            using Record = std::array<std::byte, 16>;
            const auto less = [&](const Record& x, const Record& y) {
              return keys.less(x.data(), y.data());
            };
            std::vector<Record> runs[2], expected;
            std::uint64_t id = 0;
            for (const std::uint64_t count : {a_count, b_count}) {
              auto& run = runs[id != 0 || a_count == 0 ? 1 : 0];
              for (std::uint64_t i = 0; i < count; ++i) {
                const std::uint64_t key = random() >> shift;
                Record record;
                std::memcpy(record.data(), &++id, 8);
                std::memcpy(record.data() + 8, &id, 8);
                std::memcpy(record.data() + offset, &key, 8);
                run.push_back(record);
              }
              std::ranges::stable_sort(run, less);
              expected.insert(expected.end(), run.begin(), run.end());
            }
            std::ranges::stable_sort(expected, less);
            const Guarded a(runs[0]), b(runs[1]);
            const SortedSpan spans[] = {a.span(), b.span()};
            std::vector<Record> out(expected.size());
            const auto fingerprint = make_tile_merger(keys, Output::read_later,
                                                      *all_kernels[random() % all_kernels.size()])
                                         ->merge(spans, reinterpret_cast<std::byte*>(out.data()),
                                                 nullptr, portable_fingerprint);
            CHECK(fingerprint == portable_fingerprint(std::as_bytes(std::span(expected)), 16));
            CHECK(out == expected);
          }
}

TEST_CASE("what much of one run has before all of the other goes out as it is", "[front]") {
  Random random(6);
  const auto key_of = &FrontPair::key;
  const detail::ExtractedWords<FrontPair, decltype(key_of)> keys(key_of);
  for (int i = 0; i < 100; ++i) {
    // The runs alternate: the last key of one is the first key of the other.
    std::vector<FrontPair> runs[2], expected;
    std::uint64_t key = 1, id = 0;
    for (std::uint64_t turn = random() % 2, turns = 2 + random() % 6; turns > 0; --turns, ++turn) {
      const std::uint64_t count = 4'094 + random() % 4 + random() % 2 * (random() % 20'000);
      for (std::uint64_t at = 0; at < count; ++at)
        runs[turn % 2].push_back({key += at != 0 && random() % 2, id++});
    }
    for (const auto& run : runs) expected.insert(expected.end(), run.begin(), run.end());
    std::ranges::stable_sort(expected, {}, &FrontPair::key);
    std::vector<FrontPair> out(expected.size());
    const auto merged = [&] {
      const Guarded a(runs[0]), b(runs[1]);
      const SortedSpan spans[] = {a.span(), b.span()};
      return make_tile_merger(keys, Output::read_later)
          ->merge(spans, reinterpret_cast<std::byte*>(out.data()), nullptr, portable_fingerprint);
    };
    CHECK(merged() == portable_fingerprint(std::as_bytes(std::span(expected)), sizeof(FrontPair)));
    CHECK(std::memcmp(out.data(), expected.data(), out.size() * sizeof(FrontPair)) == 0);
    auto& run = runs[random() % 2];
    run[random() % run.size()].key = random() % 2 ? 0 : key + 1;
    CHECK(merged().has_value() == std::ranges::is_sorted(run, {}, &FrontPair::key));
  }
}

TEST_CASE("fronts are merged as far as both runs have a record behind them", "[front]") {
  Random random(4);
  for (const std::uint64_t count : {1u, 2u, 7u, 100u, 50'000u}) {
    std::vector<FrontPair> a(count), b(count);
    for (auto* run : {&a, &b}) {
      for (FrontPair& pair : *run) pair = {random(), random()};
      std::ranges::sort(*run, {}, &FrontPair::key);
    }
    const detail::SingleWordKey key{0, false, 0};
    const FrontKeys a_keys{key, reinterpret_cast<const std::byte*>(a.data())};
    const FrontKeys b_keys{key, reinterpret_cast<const std::byte*>(b.data())};
    const Front front = cut_front(a_keys, count, b_keys, count);
    CAPTURE(count, front.a, front.b);
    CHECK(is_front(front, a_keys, b_keys, std::less{}));
    CHECK(front.count() >= (count < 10 ? 0 : std::min<std::uint64_t>(2 * count - 40, 20'000)));
    CHECK(front.a < count);
    CHECK(front.b < count);
    CHECK_FALSE(
        (front.count() > 0 && is_front({front.a + 1, front.b - 1}, a_keys, b_keys, std::less{})));
  }
}

TEST_CASE("a run that descends where a front of it ends is refused", "[front]") {
  std::vector<FrontPair> a(50'000), b(50'000), out(100'000);
  for (std::uint64_t i = 0; i < a.size(); ++i) {
    b[i] = {8 * i, 0};
    a[i] = {8 * i + 4, 0};
  }
  const detail::SingleWordKey key{0, false, 0};
  const WordAt keys(key);
  const auto keys_of = [&](const std::vector<FrontPair>& run) {
    return FrontKeys{key, reinterpret_cast<const std::byte*>(run.data())};
  };
  const Front front = cut_front(keys_of(a), a.size(), keys_of(b), b.size());
  // The rest of `a` precedes the rest of `b`, so it is copied.
  for (std::uint64_t i = front.b; i < b.size(); ++i) b[i].key += std::uint64_t{1} << 40;
  const SortedSpan spans[] = {{keys_of(a).records, a.size(), false},
                              {keys_of(b).records, b.size(), false}};
  const auto ordered = [&] {
    return make_tile_merger(keys, Output::read_later)
        ->merge(spans, reinterpret_cast<std::byte*>(out.data()))
        .has_value();
  };
  CHECK(ordered());
  REQUIRE(b[front.b - 1].key + 1 < a[front.a - 1].key);
  a[front.a].key = a[front.a - 1].key - 1;
  CHECK_FALSE(ordered());
}

TEST_CASE("of two runs that are out of order nothing is read that is not theirs", "[front]") {
  // The zero misleads the cut into a front with nothing of `a`, while a lane would take all of `a`.
  const auto mislead = [](auto& a, auto& b, std::size_t zero, const auto& make) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = make(i + 1);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = make(i == zero ? 0 : 1'000 + i);
  };
  SECTION("words") {
    Words a(9), b(1'015), out(a.size() + b.size());
    mislead(a, b, 1'007, [](std::size_t i) { return static_cast<Word>(i); });
    const Guarded a_run(a), b_run(b);
    for (const WordKernel* kernel : word_kernels())
      for (const bool unsigned_order : {false, true})
        CHECK_FALSE(WordMerger(*kernel).merge_front(a_run.values(), b_run.values(), unsigned_order,
                                                    out.data()));
  }
  std::vector<FrontPair> a(2), b(100'004), out;
  const auto detail_key = &FrontPair::key;
  const detail::ExtractedWords<FrontPair, decltype(detail_key)> keys(detail_key);
  const auto ordered = [&] {
    const Guarded a_run(a), b_run(b);
    const SortedSpan spans[] = {a_run.span(), b_run.span()};
    out.resize(a.size() + b.size());
    return make_tile_merger(keys, Output::read_later)
        ->merge(spans, reinterpret_cast<std::byte*>(out.data()))
        .has_value();
  };
  SECTION("records") {
    b.resize(1'004);
    mislead(a, b, 1'003, [](std::size_t i) { return FrontPair{i, 0}; });
    // Makes the runs overlap; otherwise they would be concatenated.
    a.back().key = 3;
    b.front().key = 2;
    CHECK_FALSE(ordered());
  }
  SECTION("records, anywhere") {
    Random random(5);
    for (int i = 0; i < 300; ++i) {
      a.resize(1 + random() % 3'000);
      b.resize(1 + random() % 30'000);
      for (auto* run : {&a, &b}) {
        for (FrontPair& pair : *run) pair = {random() >> random() % 60, random()};
        std::ranges::sort(*run, {}, &FrontPair::key);
      }
      CHECK(ordered());
      auto& run = random() % 2 ? a : b;
      for (std::uint64_t swaps = random() % 4 + 1; swaps > 0; --swaps)
        std::swap(run[random() % run.size()], run[random() % run.size()]);
      const bool sorted = std::ranges::is_sorted(run, {}, &FrontPair::key);
      CHECK(ordered() == sorted);
    }
  }
}

}  // namespace corank
