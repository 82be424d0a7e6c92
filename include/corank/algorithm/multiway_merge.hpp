// Stable merging of sorted runs in memory, on all cores, by a key or by a comparator. Runs and
// output belong to the caller. Calls are thread-safe if their outputs do not overlap. Errors are
// std::invalid_argument.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "corank/algorithm/co_rank.hpp"
#include "corank/algorithm/merge_tree.hpp"
#include "corank/key.hpp"

namespace corank {
namespace detail {

// Presents keys as sequences of words, most significant first; comparing these word by word orders
// the records. Implementations are thread-safe.
class KeyWords {
 public:
  virtual ~KeyWords() = default;
  virtual std::uint32_t record_bytes() const = 0;
  virtual std::uint32_t words() const = 0;
  // Returns the next word that may distinguish records that are equal up to `word`, which is
  // `value` in them. Returns words() if only less() may distinguish them, and more if nothing can.
  virtual std::uint32_t next_word(std::uint32_t word, std::uint64_t /*value*/) const {
    return word + 1 + (word + 1 == words());
  }
  // Returns whether next_word() exceeds words() for every value.
  virtual bool is_last(std::uint32_t word) const { return word + 1 == words(); }
  // Reads word `word` of the keys of `count` contiguous records.
  virtual void read(std::uint32_t word, const std::byte* records, std::size_t count,
                    std::uint64_t* to) const = 0;
  // Reads word `word` of the keys of scattered records.
  virtual void gather(std::uint32_t word, std::span<const std::byte* const> records,
                      std::uint64_t* to) const = 0;
  virtual bool less(const std::byte* a, const std::byte* b) const = 0;
  // Returns whether `count` contiguous records are in order, and follow `before` unless that is
  // null. Returns nothing if reading and comparing words one after another is faster.
  virtual std::optional<bool> ascend(const std::byte* /*before*/, const std::byte* /*records*/,
                                     std::size_t /*count*/) const {
    return std::nullopt;
  }
  // Returns the word that best distinguishes records between `a` and `b`, usually the first in
  // which these differ. All records between them agree on the words before it.
  virtual std::uint32_t first_distinguishing_word(const std::byte* a, const std::byte* b) const {
    std::uint64_t x, y;
    for (std::uint32_t word = 0;; word = next_word(word, x)) {
      read(word, a, 1, &x);
      read(word, b, 1, &y);
      if (x != y || is_last(word)) return word;
    }
  }
  // Returns whether `count` contiguous records have the words of record `one` before `word`.
  virtual bool share_words(std::uint32_t word, const std::byte* records, std::size_t count,
                           const std::byte* one) const {
    std::array<std::uint64_t, 64> words;
    std::uint64_t shared;
    for (std::uint32_t before = 0; before < word; before = next_word(before, shared)) {
      read(before, one, 1, &shared);
      for (std::size_t first = 0; first < count; first += words.size()) {
        const std::size_t in_batch = std::min(count - first, words.size());
        read(before, records + first * record_bytes(), in_batch, words.data());
        if (std::any_of(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(in_batch),
                        [&](std::uint64_t value) { return value != shared; }))
          return false;
      }
    }
    return true;
  }
  virtual std::optional<SingleWordKey> single_word_key() const { return std::nullopt; }
  // Returns the layout of the records to emit if the rows are prefix references to them; null if
  // the rows are the records.
  virtual const TextLayout* ref_layout() const { return nullptr; }
  bool are_refs() const { return ref_layout() != nullptr; }
};

// Merges `runs` stably into `out` by `keys`; throws std::invalid_argument if a run is not sorted.
void merge_by_words(std::span<const std::span<const std::byte>> runs, const KeyWords& keys,
                    std::byte* out, unsigned threads);

// Calls task(0) to task(tasks - 1) in parallel; 0 threads means all cores.
void run_parallel(std::uint64_t tasks, unsigned threads,
                  const std::function<void(std::uint64_t)>& task);
unsigned thread_count(unsigned threads);

template <class T>
concept Number = std::is_arithmetic_v<T> && sizeof(T) <= 8;

template <class T>
struct KeyTraits {};
template <Number T>
struct KeyTraits<T> {
  static constexpr std::uint32_t words = 1;
  static std::uint64_t word(T key, std::uint32_t) {
    constexpr auto bytes = static_cast<std::uint8_t>(sizeof(T));
    constexpr Transform transform = std::is_floating_point_v<T> ? Transform::floating
                                    : std::is_signed_v<T>       ? Transform::sign
                                                                : Transform::none;
    std::byte raw[sizeof(T)];
    std::memcpy(raw, &key, sizeof(T));
    return normalise({0, bytes, 0, 0, transform, false, false}, raw);
  }
};
template <int W>
struct KeyTraits<Key<W>> {
  static constexpr std::uint32_t words = W;
  static std::uint64_t word(const Key<W>& key, std::uint32_t word) { return key.word[word]; }
};

template <class T, class KeyOf>
class ExtractedWords final : public KeyWords {
 public:
  using Value = std::remove_cvref_t<std::invoke_result_t<const KeyOf&, const T&>>;
  explicit ExtractedWords(const KeyOf& key_of) : key_of_(key_of) {}

  std::uint32_t record_bytes() const override { return sizeof(T); }
  std::uint32_t words() const override { return KeyTraits<Value>::words; }
  void read(std::uint32_t word, const std::byte* records, std::size_t count,
            std::uint64_t* to) const override {
    // Compilers generate better code for a constant word.
    const auto read_word = [&](std::uint32_t known) __attribute__((always_inline)) {
      for (std::size_t i = 0; i < count; ++i) to[i] = word_of(known, records + i * sizeof(T));
    };
    word == 0 ? read_word(0) : word == 1 ? read_word(1) : read_word(word);
  }
  void gather(std::uint32_t word, std::span<const std::byte* const> records,
              std::uint64_t* to) const override {
    for (const std::byte* record : records) *to++ = word_of(word, record);
  }
  bool less(const std::byte* a, const std::byte* b) const override {
    for (std::uint32_t word = 0; word < words(); ++word) {
      const std::uint64_t x = word_of(word, a);
      const std::uint64_t y = word_of(word, b);
      if (x != y) return x < y;
    }
    return false;
  }
  std::optional<bool> ascend(const std::byte* before, const std::byte* records,
                             std::size_t count) const override {
    if constexpr (KeyTraits<Value>::words == 2)
      return two_words_ascend(
          before, records, count, sizeof(T),
          [this](const std::byte* record) { return word_of(0, record); },
          [this](const std::byte* record) { return word_of(1, record); });
    else
      return KeyWords::ascend(before, records, count);
  }
  std::optional<SingleWordKey> single_word_key() const override {
    if constexpr (std::integral<Value> && sizeof(Value) == 8) {
      const std::uint64_t flip = std::is_signed_v<Value> ? std::uint64_t{1} << 63 : 0;
      if constexpr (std::same_as<KeyOf, std::identity>) return SingleWordKey{0, false, flip};
      if constexpr (requires(const T& record) { &(record.*std::declval<const KeyOf&>()); }) {
        alignas(T) std::byte raw[sizeof(T)]{};
        const auto* member =
            reinterpret_cast<const std::byte*>(&(reinterpret_cast<const T*>(raw)->*key_of_));
        return SingleWordKey{static_cast<std::uint32_t>(member - raw), false, flip};
      }
    }
    return std::nullopt;
  }

 private:
  std::uint64_t word_of(std::uint32_t word, const std::byte* record) const {
    return KeyTraits<Value>::word(std::invoke(key_of_, *reinterpret_cast<const T*>(record)), word);
  }

  const KeyOf& key_of_;
};

[[noreturn]] void throw_unsorted();
[[noreturn]] void throw_not_strict();

template <class T>
void require_room(std::span<const std::span<const T>> runs, std::span<T> out) {
  std::size_t records = 0;
  for (const auto& run : runs) records += run.size();
  if (records != out.size())
    throw std::invalid_argument("corank::multiway_merge: `out` must hold exactly all records");
}

// Merges by a comparator. Records of up to 16 bytes move through the merge themselves, larger ones
// as pointers, and so do those that a std::vector does not hold or packs.
template <class T, class Compare>
void merge_by_compare(std::span<const std::span<const T>> runs, std::span<T> out, Compare& given,
                      unsigned threads) {
  const auto compare = [&given](const T& a, const T& b) -> bool {
    return std::invoke(given, a, b);
  };
  for (const auto& run : runs)
    if (!run.empty() && compare(run.front(), run.front())) throw_not_strict();
  constexpr bool small = sizeof(T) <= 16 && std::semiregular<T> && !std::same_as<T, bool>;
  using Item = std::conditional_t<small, T, const T*>;
  const auto item_less = [&compare](const Item& a, const Item& b) -> bool {
    if constexpr (small)
      return compare(a, b);
    else
      return compare(*a, *b);
  };
  // One count of records per run. cut() returns the co-rank of `rank` in the `counts` records after
  // `from`.
  using Positions = std::vector<std::uint64_t>;
  const auto cut = [&](std::uint64_t rank, const Positions& from, const Positions& counts) {
    return co_rank(
               rank, counts,
               [&](std::size_t run, std::uint64_t i) { return &runs[run][from[run] + i]; },
               [&](const T* a, const T* b) -> bool { return compare(*a, *b); })
        .position;
  };
  Positions lengths;
  for (const auto& run : runs) lengths.push_back(run.size());
  const Positions start(runs.size(), 0);

  constexpr std::uint64_t min_tile_records = 1 << 14;
  const std::uint64_t tiles = std::clamp<std::uint64_t>(
      out.size() / std::max(min_tile_records, 16 * runs.size()), 1, 4 * thread_count(threads));
  // Records per block: a block fits in cache, but takes more than a few records of each run.
  const std::uint64_t block_records = std::max<std::uint64_t>(
      {(std::uint64_t{1} << 19) / std::max(sizeof(T), sizeof(Item)), 64, 32 * runs.size()});
  const auto tile_rank = [&](std::uint64_t t) {
    return out.size() / tiles * t + std::min(out.size() % tiles, t);
  };
  std::vector<Positions> cuts(tiles + 1);
  run_parallel(tiles + 1, threads,
               [&](std::uint64_t t) { cuts[t] = cut(tile_rank(t), start, lengths); });
  run_parallel(tiles, threads, [&](std::uint64_t t) {
    MergeTree<Item, decltype(item_less)> tree(item_less);
    std::uint64_t left = tile_rank(t + 1) - tile_rank(t);
    T* to = out.data() + tile_rank(t);
    Positions from = cuts[t], counts(runs.size());
    while (left > 0) {
      // Cuts of unsorted runs may cross, which leaves other records than those of the tile: the
      // merge would drop some and repeat others.
      std::uint64_t there = 0;
      for (std::size_t r = 0; r < runs.size(); ++r) {
        if (cuts[t + 1][r] < from[r]) throw_unsorted();
        there += counts[r] = cuts[t + 1][r] - from[r];
      }
      if (there != left) throw_unsorted();
      const Positions block =
          there > block_records + block_records / 2 ? cut(block_records, from, counts) : counts;
      tree.clear();
      for (std::size_t r = 0; r < runs.size(); ++r) {
        if (block[r] == 0) continue;
        const std::span<const T> part = runs[r].subspan(from[r], block[r]);
        // Two comparisons per part are cheap and detect most unsorted runs.
        if (compare(part.back(), part.front()) ||
            (from[r] != 0 && compare(part.front(), runs[r][from[r] - 1])))
          throw_unsorted();
        for (const T& record : part) {
          if constexpr (small)
            tree.add(record);
          else
            tree.add(&record);
        }
        tree.end_run();
        from[r] += block[r];
      }
      const std::span<const Item> merged = tree.merge();
      left -= merged.size();
      if constexpr (small) {
        to = std::copy(merged.begin(), merged.end(), to);
      } else {
        for (std::size_t i = 0; i < merged.size(); ++i) {
          if (i + 16 < merged.size()) __builtin_prefetch(merged[i + 16]);
          *to++ = *merged[i];
        }
      }
    }
  });
}

}  // namespace detail

// A function or data member that yields a record's key: a number, or a corank::Key of several
// words. Numbers are ordered by <, except that floats have a total order: -0.0 equals +0.0, and NaN
// sorts last.
template <class KeyOf, class T>
concept KeyExtractor = std::invocable<const KeyOf&, const T&> && requires {
  detail::KeyTraits<std::remove_cvref_t<std::invoke_result_t<const KeyOf&, const T&>>>::words;
};

// A record that merges copy by its bytes.
template <class T>
concept Mergeable = std::is_trivially_copyable_v<T> && std::is_copy_assignable_v<T>;

// Merges `runs` into `out`, stably: equal records keep the order of the runs. Each run must be
// sorted by the key that `key_of` extracts, a function or a pointer to a data member. Runs may be
// empty; `out` must not overlap them. Throws std::invalid_argument if `out` is not as large as all
// runs together, or if a run is not sorted; the contents of `out` are then undefined. 0 threads
// means all cores.
template <Mergeable T, KeyExtractor<T> KeyOf>
void multiway_merge(std::span<const std::span<const T>> runs, std::span<T> out, const KeyOf& key_of,
                    unsigned threads = 0) {
  detail::require_room(runs, out);
  std::vector<std::span<const std::byte>> bytes;
  for (const auto& run : runs) bytes.push_back(std::as_bytes(run));
  detail::merge_by_words(bytes, detail::ExtractedWords<T, KeyOf>(key_of),
                         std::as_writable_bytes(out).data(), threads);
}

// Merges `runs` into `out`, stably. Each run must be sorted by `compare`, a strict weak order. Runs
// may be empty; `out` must not overlap them. Throws std::invalid_argument if `out` is not as large
// as all runs together, if `compare` holds for a record and itself, as <= does, or if a run is
// found not to be sorted. Not every unsorted run is detected: if the function returns, `out` holds
// each record exactly once, but records of an unsorted run may be in any order. 0 threads means all
// cores. Slower than merging by a key, unless the records are integers in natural order.
template <Mergeable T, class Compare>
requires std::predicate<Compare&, const T&, const T&>
void multiway_merge(std::span<const std::span<const T>> runs, std::span<T> out, Compare compare,
                    unsigned threads = 0) {
  constexpr bool natural =
      std::same_as<Compare, std::less<>> || std::same_as<Compare, std::less<T>>;
  if constexpr (natural && std::integral<T> && sizeof(T) <= 8) {
    multiway_merge(runs, out, std::identity{}, threads);
  } else {
    detail::require_room(runs, out);
    detail::merge_by_compare(runs, out, compare, threads);
  }
}

}  // namespace corank
