#include "tile_merge.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "corank/co_rank.hpp"

namespace corank {
namespace {

using detail::KeyWords;
using detail::WholeWord;

// What travels through a merge: a word of the key, and the record or where it is.
struct WordItem {
  std::uint64_t word;
};
struct PairItem {
  std::uint64_t word;
  std::uint64_t rest;  // of the record
};
struct PointerItem {
  std::uint64_t word;
  const std::byte* record;
};

constexpr std::uint64_t greatest_word = ~std::uint64_t{0};

// What is fetched ahead of its use.
constexpr std::size_t prefetch_records = 16;
constexpr std::uint32_t most_fetched_bytes = 4096;

// Independent two-way merges that one thread runs in lockstep, so that the latency of one step,
// about ten cycles, hides behind the steps of the others.
constexpr int lanes = 5;

// The next `left` outputs of a two-way merge.
template <class Item>
struct Job {
  const Item* a;
  const Item* b;
  Item* out;
  std::uint64_t left;
};

// GCC's -fsplit-paths, part of -O3, would make a jump of one of the lanes' choices, half of which
// are mispredicted.
#if defined(__GNUC__) && !defined(__clang__)
#define CORANK_CONDITIONAL_MOVES __attribute__((optimize("no-split-paths")))
#else
#define CORANK_CONDITIONAL_MOVES
#endif

// `steps` outputs of each of N jobs, without a branch on the data and without a bound check: what
// stands behind the last item of either input must not sort before the other's items.
template <int N, class Item>
CORANK_CONDITIONAL_MOVES void advance(Job<Item>* jobs, std::uint64_t steps) {
  const Item *a[N], *b[N];
  Item* out[N];
  std::uint64_t from_b[N];
  for (int l = 0; l < N; ++l) {
    a[l] = jobs[l].a;
    b[l] = jobs[l].b;
    out[l] = jobs[l].out;
    from_b[l] = 0;
  }
  for (std::uint64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 8
    for (int l = 0; l < N; ++l) {
      const Item* x = a[l] + (step - from_b[l]);
      const Item* y = b[l] + from_b[l];
      const bool take_b = y->word < x->word;
      out[l][step] = *(take_b ? y : x);
      from_b[l] += take_b;
    }
  }
  for (int l = 0; l < N; ++l) {
    jobs[l].a += steps - from_b[l];
    jobs[l].b += from_b[l];
    jobs[l].out += steps;
    jobs[l].left -= steps;
  }
}

template <class Item>
void run(std::span<const Job<Item>> jobs) {
  std::array<Job<Item>, lanes> lane;
  std::size_t next = std::min<std::size_t>(jobs.size(), lanes);
  std::copy_n(jobs.begin(), next, lane.begin());
  const auto finished = [](const Job<Item>& job) { return job.left == 0; };
  if (next == lanes) {
    for (;;) {
      advance<lanes>(lane.data(), std::ranges::min(lane, {}, &Job<Item>::left).left);
      bool drained = false;
      for (Job<Item>& job : lane) {
        if (!finished(job)) continue;
        if (next == jobs.size())
          drained = true;
        else
          job = jobs[next++];
      }
      if (drained) break;
    }
  }
  for (std::size_t l = 0; l < std::min<std::size_t>(jobs.size(), lanes); ++l)
    if (!finished(lane[l])) advance<1>(&lane[l], lane[l].left);
}

// Merges runs of items by a tree of stable two-way merges of neighbours, from one buffer to
// another and back.
template <class Item>
class RunMerger {
 public:
  void reset(std::uint64_t items, std::uint64_t runs) {
    runs_.clear();
    end_ = 0;
    for (auto& buffer : buffers_)
      if (buffer.size() < items + runs) buffer.resize(items + runs);
  }

  // The place of `count` more items, to be filled in; `first_word` is the word of the first. They
  // prolong the last run where they can: so runs that follow one another, or are all equal, are
  // never merged.
  Item* add(std::uint64_t first_word, std::uint64_t count) {
    Item* const items = buffers_[0].data();
    if (runs_.empty() || first_word < items[end_ - 1].word) {
      if (!runs_.empty()) items[end_++].word = greatest_word;
      runs_.push_back({end_, 0});
    }
    runs_.back().count += count;
    end_ += count;
    return items + end_ - count;
  }

  // Two runs or more are merged into `out` if that is given, else into one of the buffers.
  std::span<Item> merge(Item* out = nullptr) {
    if (runs_.empty()) return {};
    Item* from = buffers_[0].data();
    Item* to = buffers_[1].data();
    from[end_].word = greatest_word;
    if (runs_.size() > 2) {
      // First each group of runs that fits into the innermost caches is merged into one.
      const std::uint64_t group = std::bit_floor(
          std::clamp<std::uint64_t>(runs_.size() * group_items / end_, 1, runs_.size() - 1));
      std::size_t groups = 0;
      for (std::size_t first = 0; first < runs_.size(); first += group) {
        const auto begin = runs_.begin() + static_cast<std::ptrdiff_t>(first);
        group_.assign(begin, begin + static_cast<std::ptrdiff_t>(
                                         std::min<std::uint64_t>(group, runs_.size() - first)));
        Item *x = from, *y = to;
        for (std::uint64_t size = group; size > 1; size /= 2, std::swap(x, y))
          merge_level(x, y, group_);
        runs_[groups++] = group_.front();
      }
      runs_.resize(groups);
      if (std::countr_zero(group) % 2 != 0) std::swap(from, to);
    }
    for (; runs_.size() > 2; std::swap(from, to)) merge_level(from, to, runs_);
    if (runs_.size() == 2) {
      if (!out) out = to;
      merge_pairs(from, out, runs_);
      return {out, runs_.front().count + runs_.back().count};
    }
    return {from, runs_.front().count};
  }

 private:
  struct Run {
    std::uint64_t begin, count;  // the item behind its last is a sentinel
  };

  static constexpr std::uint64_t group_items = (std::uint64_t{128} << 10) / sizeof(Item);
  static constexpr std::uint64_t part_items = 2048;

  // Halves the number of runs.
  void merge_level(const Item* from, Item* to, std::vector<Run>& runs) {
    merge_pairs(from, to, runs);
    std::size_t merged = 0;
    for (std::size_t r = 0; r < runs.size(); r += 2) {
      Run result = runs[r];
      if (r + 1 == runs.size())
        std::copy_n(from + result.begin, result.count, to + result.begin);
      else
        result.count += runs[r + 1].count;
      to[result.begin + result.count].word = greatest_word;
      runs[merged++] = result;
    }
    runs.resize(merged);
  }

  void merge_pairs(const Item* from, Item* to, const std::vector<Run>& runs) {
    jobs_.clear();
    // Cutting costs time, but is needed where there are few merges for the lanes.
    const std::uint64_t least_cut_items = lanes * (runs.size() > 16 * lanes ? part_items / 2 : 64);
    for (std::size_t r = 0; r + 1 < runs.size(); r += 2)
      add_jobs(from + runs[r].begin, runs[r].count, from + runs[r + 1].begin, runs[r + 1].count,
               to + runs[r].begin, least_cut_items);
    run(std::span<const Job<Item>>(jobs_));
    for (std::size_t r = 0; r + 1 < runs.size(); r += 2) {
      // Items that equal the sentinel are the last of the merge, and those of b the last of all;
      // the sentinel of a may have gone out in their place.
      const Run &a = runs[r], &b = runs[r + 1];
      const Item* last = from + b.begin + b.count;
      for (Item* out = to + a.begin + a.count + b.count;
           last != from + b.begin && (last - 1)->word == greatest_word;)
        *--out = *--last;
    }
  }

  void add_jobs(const Item* a, std::uint64_t a_count, const Item* b, std::uint64_t b_count,
                Item* out, std::uint64_t least_cut_items) {
    if (a[a_count - 1].word <= b[0].word) {
      std::copy_n(b, b_count, std::copy_n(a, a_count, out));
      return;
    }
    // Long merges are cut into equal parts, a multiple of the lanes. The last one starts early
    // enough to be as long as the others; what two parts both put out is the same.
    const std::uint64_t count = a_count + b_count;
    const std::uint64_t parts =
        count < least_cut_items ? 1
                                : (count + lanes * part_items - 1) / (lanes * part_items) * lanes;
    const std::uint64_t part = (count + parts - 1) / parts;
    for (std::uint64_t p = 0; p < parts; ++p) {
      const std::uint64_t rank = std::min(p * part, count - part);
      const std::uint64_t split =
          rank == 0 ? 0 : co_rank(rank, a, a_count, b, b_count, [](const Item& x, const Item& y) {
            return x.word < y.word;
          });
      jobs_.push_back({a + split, b + (rank - split), out + rank, part});
    }
  }

  std::array<std::vector<Item>, 2> buffers_;
  std::uint64_t end_ = 0;  // of the items in the first buffer
  std::vector<Run> runs_, group_;
  std::vector<Job<Item>> jobs_;
};

// What is known of the order of words that follow one another.
struct Order {
  std::uint64_t last;
  bool descends = false;
  bool equals = false;

  void next(std::uint64_t word) {
    descends |= word < last;
    equals |= word == last;
    last = word;
  }
};

// Calls `use` with a copy of what a loop needs of the key, the byte order being a constant.
template <class Use>
void with_key(const WholeWord& key, Use use) {
  const std::uint64_t flip = key.flip;
  if (key.big_endian)
    use([flip](const std::byte* at) {
      return detail::byte_swap(detail::load_little(at, 8)) ^ flip;
    });
  else
    use([flip](const std::byte* at) { return detail::load_little(at, 8) ^ flip; });
}

std::uint64_t to_word(const WholeWord& key, const std::byte* at) {
  const std::uint64_t value = detail::load_little(at, 8);
  return (key.big_endian ? detail::byte_swap(value) : value) ^ key.flip;
}
void put_word(const WholeWord& key, std::uint64_t word, std::byte* at) {
  const std::uint64_t value = key.big_endian ? detail::byte_swap(word ^ key.flip) : word ^ key.flip;
  std::memcpy(at, &value, 8);
}

// How records become items, and items records. Items of a key that is one word can be merged right
// into the output, to become records there.

class WordFormat {
 public:
  using Item = WordItem;
  static constexpr bool in_place = true;

  explicit WordFormat(const KeyWords& keys) : key_(*keys.whole_word()) {}
  static bool fits(const KeyWords& keys) { return keys.whole_word() && keys.record_bytes() == 8; }

  std::uint64_t word(const std::byte* record) const { return to_word(key_, record); }
  void encode(const std::byte* records, std::uint64_t count, Item* items, Order& order) const {
    with_key(key_, [&, known = order](auto word) mutable {
      for (std::uint64_t i = 0; i < count; ++i) known.next(items[i].word = word(records + 8 * i));
      order = known;
    });
  }
  void decode(std::span<Item> items, std::byte* out) const {
    if (!key_.big_endian && key_.flip == 0) return;
    const WholeWord key = key_;
    for (std::uint64_t i = 0; i < items.size(); ++i) put_word(key, items[i].word, out + 8 * i);
  }

 private:
  WholeWord key_;
};

class PairFormat {
 public:
  using Item = PairItem;
  static constexpr bool in_place = true;

  explicit PairFormat(const KeyWords& keys) : key_(*keys.whole_word()) {}
  static bool fits(const KeyWords& keys) {
    return keys.whole_word() && keys.record_bytes() == 16 && keys.whole_word()->offset % 8 == 0;
  }

  std::uint64_t word(const std::byte* record) const { return to_word(key_, record + key_.offset); }
  void encode(const std::byte* records, std::uint64_t count, Item* items, Order& order) const {
    with_key(key_, [&, known = order, at = key_.offset](auto word) mutable {
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::byte* record = records + 16 * i;
        items[i] = {word(record + at), detail::load_little(record + (8 - at), 8)};
        known.next(items[i].word);
      }
      order = known;
    });
  }
  void decode(std::span<Item> items, std::byte* out) const {
    if (!key_.big_endian && key_.flip == 0 && key_.offset == 0) return;
    const WholeWord key = key_;
    for (std::uint64_t i = 0; i < items.size(); ++i) {
      const Item item = items[i];
      put_word(key, item.word, out + 16 * i + key.offset);
      std::memcpy(out + 16 * i + (8 - key.offset), &item.rest, 8);
    }
  }

 private:
  WholeWord key_;
};

void fetch(const std::byte* from, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

class PointerFormat {
 public:
  using Item = PointerItem;
  static constexpr bool in_place = false;

  explicit PointerFormat(const KeyWords& keys) : keys_(keys), record_bytes_(keys.record_bytes()) {}

  std::uint64_t word(const std::byte* record) const {
    std::uint64_t result;
    keys_.read(0, record, 1, &result);
    return result;
  }
  void encode(const std::byte* records, std::uint64_t count, Item* items, Order& order) const {
    std::array<std::uint64_t, 256> words;
    Order known = order;
    while (count > 0) {
      const std::uint64_t batch = std::min<std::uint64_t>(count, words.size());
      keys_.read(0, records, batch, words.data());
      for (std::uint64_t i = 0; i < batch; ++i, records += record_bytes_) {
        items[i] = {words[i], records};
        known.next(words[i]);
      }
      items += batch;
      count -= batch;
    }
    order = known;
  }

  void decode(std::span<Item> items, std::byte* out) const {
    for (std::size_t i = 0; i < items.size(); ++i, out += record_bytes_) {
      if (i + prefetch_records < items.size())
        fetch(items[i + prefetch_records].record, std::min(record_bytes_, most_fetched_bytes));
      std::memcpy(out, items[i].record, record_bytes_);
    }
  }

 private:
  const KeyWords& keys_;
  std::uint32_t record_bytes_;
};

// Sorts items whose first words are in order, but not what follows them in the key.
class Settler {
 public:
  explicit Settler(const KeyWords& keys) : keys_(keys) {}

  // Stable: equal items keep their order, which is that of their runs.
  void settle(std::span<PointerItem> items) {
    push_equal(items, 1);
    while (!pending_.empty()) {
      auto [equal, word] = pending_.back();
      pending_.pop_back();
      read_words(equal, word);
      sort(equal);
      push_equal(equal, word + 1);
    }
  }

 private:
  struct Pending {
    std::span<PointerItem> items;
    std::uint32_t word;
  };

  void push_equal(std::span<PointerItem> items, std::uint32_t word) {
    if (word == keys_.words()) return;
    for (std::size_t first = 0, end; first < items.size(); first = end) {
      end = first + 1;
      while (end < items.size() && items[end].word == items[first].word) ++end;
      if (end - first > 1) pending_.push_back({items.subspan(first, end - first), word});
    }
  }

  void read_words(std::span<PointerItem> items, std::uint32_t word) const {
    std::array<const std::byte*, 64> records;
    std::array<std::uint64_t, records.size()> words;
    for (; !items.empty(); items = items.subspan(std::min(items.size(), records.size()))) {
      const std::size_t count = std::min(items.size(), records.size());
      for (std::size_t i = 0; i < count; ++i) records[i] = items[i].record;
      keys_.gather(word, std::span(records).first(count), words.data());
      for (std::size_t i = 0; i < count; ++i) items[i].word = words[i];
    }
  }

  // The items are a few ascending stretches, at most one of each run.
  void sort(std::span<PointerItem> items) {
    const auto descent = [&](std::size_t i) { return items[i].word < items[i - 1].word; };
    std::size_t runs = 1;
    for (std::size_t i = 1; i < items.size(); ++i) runs += descent(i);
    if (runs == 1) return;
    merger_.reset(items.size(), runs);
    for (std::size_t first = 0, end; first < items.size(); first = end) {
      end = first + 1;
      while (end < items.size() && !descent(end)) ++end;
      std::copy(items.begin() + static_cast<std::ptrdiff_t>(first),
                items.begin() + static_cast<std::ptrdiff_t>(end),
                merger_.add(items[first].word, end - first));
    }
    std::ranges::copy(merger_.merge(), items.begin());
  }

  const KeyWords& keys_;
  RunMerger<PointerItem> merger_;
  std::vector<Pending> pending_;
};

// Of the part of a tile that is merged at once, lest it leave the caches.
constexpr std::uint64_t block_bytes = std::uint64_t{1} << 20;
constexpr std::uint64_t most_block_records = std::uint64_t{1} << 15;
// Where the runs are many, larger blocks cost less than taking very little from every run.
constexpr std::uint64_t least_records_from_run = 32;
constexpr std::uint64_t most_wide_block_records = std::uint64_t{1} << 17;

// While a run is cut, another one's part of the block is fetched, so many runs ahead.
constexpr std::size_t prefetch_runs = 8;

template <class Format>
class FormatMerger final : public TileMerger {
 public:
  explicit FormatMerger(const KeyWords& keys) : keys_(keys), format_(keys), settler_(keys) {}

  bool merge(std::span<const Stretch> stretches, std::byte* out) override {
    std::uint64_t records = 0;
    for (const Stretch& stretch : stretches) records += stretch.count;
    block_.assign(stretches.begin(), stretches.end());
    const std::uint64_t block_records = std::clamp(
        std::clamp<std::uint64_t>(block_bytes / keys_.record_bytes(), 1, most_block_records),
        std::min(least_records_from_run * stretches.size(), most_wide_block_records),
        most_wide_block_records);
    if (records > block_records + block_records / 2) {
      for (Stretch& stretch : block_) stretch.count = 0;
      for (const std::byte* splitter : splitters(stretches, block_records)) {
        cut(stretches, splitter);
        if (!merge_block(out)) return false;
      }
      for (std::size_t i = 0; i < block_.size(); ++i) {
        next(block_[i]);
        block_[i].count = stretches[i].count -
                          static_cast<std::uint64_t>(block_[i].records - stretches[i].records) /
                              keys_.record_bytes();
      }
    }
    return merge_block(out);
  }

 private:
  using Item = typename Format::Item;

  // Records that cut the merge into blocks. Of every run each `step`-th record is a sample; a block
  // ends at each `samples`-th sample in the order of the merge. So a block has about block_records
  // records, give or take `step` - 1 of each run.
  std::span<const std::byte* const> splitters(std::span<const Stretch> runs,
                                              std::uint64_t block_records) {
    const std::uint64_t step = std::clamp<std::uint64_t>(block_records / runs.size(), 4, 1024);
    const std::uint64_t samples = block_records / step;
    std::uint64_t count = 0;
    for (const Stretch& run : runs) count += run.count / step;
    sampler_.reset(count, count);
    for (const Stretch& run : runs) {
      for (std::uint64_t i = step; i <= run.count; i += step) {
        const std::byte* record = run.records + (i - 1) * keys_.record_bytes();
        const PointerItem sample{format_.word(record), record};
        *sampler_.add(sample.word, 1) = sample;
      }
    }
    const std::span<PointerItem> merged = sampler_.merge();
    settler_.settle(merged);
    splitters_.clear();
    for (std::uint64_t i = samples; i <= count; i += samples)
      splitters_.push_back(merged[i - 1].record);
    return splitters_;
  }

  void next(Stretch& block) const {
    block.records += block.count * keys_.record_bytes();
    block.predecessor |= block.count != 0;
  }

  // Moves the block on to what sorts up to and including the splitter.
  void cut(std::span<const Stretch> runs, const std::byte* splitter) {
    const std::less<const std::byte*> lower;
    const std::uint32_t record_bytes = keys_.record_bytes();
    const std::uint64_t splitter_word = format_.word(splitter);
    const bool more_words = keys_.words() > 1;
    bool behind = false;  // the run that the splitter is from
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (i + prefetch_runs < runs.size()) prefetch(block_[i + prefetch_runs]);
      const std::uint64_t guess = block_[i].count;  // as many as last time
      next(block_[i]);
      Stretch& block = block_[i];
      const std::byte* end = runs[i].records + runs[i].count * record_bytes;
      const std::uint64_t left = static_cast<std::uint64_t>(end - block.records) / record_bytes;
      if (!behind && !lower(splitter, runs[i].records) && lower(splitter, end)) {
        behind = true;
        // Only an unsorted run may have the splitter among what is taken already.
        block.count = lower(splitter, block.records)
                          ? 0
                          : static_cast<std::uint64_t>(splitter - block.records) / record_bytes + 1;
        continue;
      }
      block.count = gallop(left, guess, [&](std::uint64_t index) {
        const std::byte* record = block.records + index * record_bytes;
        const std::uint64_t word = format_.word(record);
        if (word != splitter_word || !more_words)
          return behind ? word < splitter_word : word <= splitter_word;
        return behind ? keys_.less(record, splitter) : !keys_.less(splitter, record);
      });
    }
  }

  // Fetches what the run is likely to give to the next block.
  void prefetch(const Stretch& last) const {
    const std::byte* next = last.records + last.count * keys_.record_bytes();
    const std::uint64_t bytes = std::min((last.count + last.count / 4 + 1) * keys_.record_bytes(),
                                         std::uint64_t{most_fetched_bytes});
    fetch(next, bytes);
  }

  // How many of `count` records, those of the front, fulfil `take`; best near `guess`.
  template <class Take>
  static std::uint64_t gallop(std::uint64_t count, std::uint64_t guess, Take take) {
    std::uint64_t low = 0;
    std::uint64_t high = std::max<std::uint64_t>(guess, 1);
    while (high <= count && take(high - 1)) {
      low = high;
      high *= 2;
    }
    high = std::min(high - 1, count);
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (take(middle))
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  bool merge_block(std::byte*& out) {
    if (joins_ascend()) return copy_block(out);
    std::uint64_t records = 0;
    for (const Stretch& stretch : block_) records += stretch.count;
    merger_.reset(records, block_.size());
    for (const Stretch& stretch : block_) {
      if (stretch.count == 0) continue;
      if (!encode(stretch, merger_.add(format_.word(stretch.records), stretch.count))) return false;
    }
    if constexpr (Format::in_place) {
      format_.decode(merger_.merge(reinterpret_cast<Item*>(out)), out);
    } else {
      const std::span<Item> merged = merger_.merge();
      settler_.settle(merged);
      format_.decode(merged, out);
    }
    out += records * keys_.record_bytes();
    return true;
  }

  // For stretches that follow one another. Each piece is copied while it is in the first cache.
  bool copy_block(std::byte*& out) {
    std::array<Item, 256> items;
    for (const Stretch& stretch : block_) {
      Stretch piece{stretch.records, 0, stretch.predecessor};
      for (std::uint64_t left = stretch.count; left > 0; left -= piece.count) {
        piece.count = std::min<std::uint64_t>(left, items.size());
        if (!encode(piece, items.data())) return false;
        const std::uint64_t bytes = piece.count * keys_.record_bytes();
        std::memcpy(out, piece.records, bytes);
        out += bytes;
        piece.records += bytes;
        piece.predecessor = true;
      }
    }
    return true;
  }

  // False if the stretch is out of order.
  bool encode(const Stretch& stretch, Item* items) const {
    Order order{stretch.predecessor ? format_.word(stretch.records - keys_.record_bytes()) : 0};
    format_.encode(stretch.records, stretch.count, items, order);
    return !order.descends &&
           (!order.equals || keys_.words() == 1 || ascends_by_other_words(stretch, items));
  }

  // Whether no stretch starts before the end of the one before it.
  bool joins_ascend() const {
    const std::byte* last = nullptr;
    for (const Stretch& stretch : block_) {
      if (stretch.count == 0) continue;
      if (last && keys_.less(stretch.records, last)) return false;
      last = stretch.records + (stretch.count - 1) * keys_.record_bytes();
    }
    return true;
  }

  // For items whose words ascend already.
  bool ascends_by_other_words(const Stretch& stretch, const Item* items) const {
    const std::uint32_t record_bytes = keys_.record_bytes();
    if (stretch.predecessor && keys_.less(stretch.records, stretch.records - record_bytes))
      return false;
    std::array<std::uint64_t, 64> words;
    std::array<bool, words.size()> equal;  // to its predecessor, as far as is known
    for (std::uint64_t first = 0; first + 1 < stretch.count; first += words.size() - 1) {
      const std::uint64_t count = std::min<std::uint64_t>(stretch.count - first, words.size());
      bool undecided = false;
      for (std::uint64_t i = 1; i < count; ++i) {
        equal[i] = items[first + i].word == items[first + i - 1].word;
        undecided |= equal[i];
      }
      for (std::uint32_t word = 1; word < keys_.words() && undecided; ++word) {
        keys_.read(word, stretch.records + first * record_bytes, count, words.data());
        undecided = false;
        for (std::uint64_t i = 1; i < count; ++i) {
          if (!equal[i]) continue;
          if (words[i] < words[i - 1]) return false;
          equal[i] = words[i] == words[i - 1];
          undecided |= equal[i];
        }
      }
    }
    return true;
  }

  const KeyWords& keys_;
  Format format_;
  RunMerger<Item> merger_;
  RunMerger<PointerItem> sampler_;
  Settler settler_;
  std::vector<Stretch> block_;
  std::vector<const std::byte*> splitters_;
};

}  // namespace

std::unique_ptr<TileMerger> make_tile_merger(const KeyWords& keys) {
  if (WordFormat::fits(keys)) return std::make_unique<FormatMerger<WordFormat>>(keys);
  if (PairFormat::fits(keys)) return std::make_unique<FormatMerger<PairFormat>>(keys);
  return std::make_unique<FormatMerger<PointerFormat>>(keys);
}

}  // namespace corank
