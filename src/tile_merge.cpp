#include "tile_merge.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "gallop.hpp"
#include "gather.hpp"
#include "record_sort.hpp"
#include "stream_copy.hpp"
#include "text_words.hpp"
#include "word_merge.hpp"

namespace corank {
namespace {

using detail::KeyWords;
using detail::WholeWord;

constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63;

// What is fetched ahead of its use.
constexpr std::size_t prefetch_records = 16;
constexpr std::uint32_t line_bytes = 64;
constexpr std::uint32_t most_fetched_bytes = 4096;
constexpr std::uint32_t prefetched_ahead_bytes = 256;  // of one run, where records are small

void fetch(const std::byte* from, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

// Without its first `count` records.
void drop(Stretch& stretch, std::uint64_t count, std::uint32_t record_bytes) {
  stretch.records += count * record_bytes;
  stretch.count -= count;
  stretch.predecessor |= count != 0;
}

// Records that are their key, a word.
class WholeWords {
 public:
  WholeWords(const KeyWords& keys, const WordKernel& kernel)
      : key_(*keys.whole_word()), kernel_(kernel), merger_(kernel) {}
  static bool fits(const KeyWords& keys) { return keys.whole_word() && keys.record_bytes() == 8; }

  std::uint64_t word(const std::byte* record) const { return detail::word_of(key_, record); }

  bool ascends(const Stretch& stretch) const {
    return kernel_.ascend(stretch.records - 8 * stretch.predecessor,
                          stretch.count + stretch.predecessor, key_.big_endian,
                          key_.flip ^ sign_bit);
  }

  // Calls look(stretch) for each, while it is in the first cache.
  template <class Look>
  bool merge(std::span<const Stretch> block, std::uint64_t records, std::byte*& out,
             const std::byte* /*end*/, TextShaper* /*shaper*/, Look look) {
    merger_.reset(records, block.size());
    for (const Stretch& stretch : block) {
      if (stretch.count == 0) continue;
      const std::uint64_t first = word(stretch.records);
      if (stretch.predecessor && first < word(stretch.records - 8)) return false;
      if (!kernel_.read_ascending(stretch.records, stretch.count, key_.big_endian,
                                  key_.flip ^ sign_bit,
                                  merger_.add(static_cast<Word>(first ^ sign_bit), stretch.count)))
        return false;
      look(stretch);
    }
    if (!key_.big_endian) {
      merger_.merge_into(reinterpret_cast<Word*>(out), static_cast<Word>(key_.flip ^ sign_bit));
      out += 8 * records;
      return true;
    }
    for (const Word merged : merger_.merge()) {
      const std::uint64_t value =
          detail::byte_swap(static_cast<std::uint64_t>(merged) ^ key_.flip ^ sign_bit);
      std::memcpy(out, &value, 8);
      out += 8;
    }
    return true;
  }

  // Merges the fronts of two runs straight from where they are. False if a run is out of order.
  bool merge_fronts(Stretch& a, Stretch& b, std::byte*& out) {
    if (key_.big_endian || (key_.flip != 0 && key_.flip != sign_bit)) return true;
    for (const Stretch* stretch : {&a, &b})
      if (stretch->predecessor && word(stretch->records) < word(stretch->records - 8)) return false;
    const auto words = [](const Stretch& stretch) {
      return std::span(reinterpret_cast<const Word*>(stretch.records), stretch.count);
    };
    const auto front =
        merger_.merge_fronts(words(a), words(b), key_.flip == 0, reinterpret_cast<Word*>(out));
    if (!front) return false;
    drop(a, front->a, 8);
    drop(b, front->b, 8);
    out += 8 * (front->a + front->b);
    return true;
  }

 private:
  WholeWord key_;
  const WordKernel& kernel_;
  WordMerger merger_;
};

// Records of any kind. What is merged of them is as many bits of a word of the key as tell the
// records of a block apart, and the number of the run; the record is then the run's next.
class PackedWords {
 public:
  PackedWords(const KeyWords& keys, const WordKernel& kernel)
      : keys_(keys),
        whole_word_(keys.whole_word()),
        text_(dynamic_cast<const TextWords*>(&keys)),
        kernel_(kernel),
        merger_(kernel),
        sorter_(keys, kernel) {}

  std::uint64_t word(const std::byte* record) const {
    if (whole_word_) return detail::word_of(*whole_word_, record);
    if (text_) return reinterpret_cast<const Entry*>(record)->word;
    std::uint64_t result;
    keys_.read(0, record, 1, &result);
    return result;
  }

  bool ascends(const Stretch& stretch) {
    std::array<std::uint64_t, batch> words;
    return joins(stretch) && read(stretch, 0, {}, 0, [&](std::uint64_t) { return words.data(); });
  }

  // What goes out ends at `end` or before, unless there is a shaper for it.
  template <class Look>
  bool merge(std::span<const Stretch> block, std::uint64_t records, std::byte*& out,
             const std::byte* end, TextShaper* shaper, Look look) {
    merger_.reset(records, block.size());
    choose_word(block);
    const bool squeezed = text_ && !keys_.is_last(word_) && ties_often(block);
    if (!(squeezed ? read_squeezed(block, records, look) : read_block(block, look))) return false;
    next_.clear();
    for (const Stretch& stretch : block) next_.push_back(stretch.records);
    if (shaper) {
      put_records<sizeof(Entry)>(merger_.merge(), *shaper);
      return true;
    }
    if (text_) {
      GatherWriter writer(*text_->text(), out, end);
      put_records<sizeof(Entry)>(merger_.merge(), writer);
      out = writer.position();
      return true;
    }
    if (streaming_overlaps())
      put(merger_.merge(), StreamWriter(out));
    else
      put(merger_.merge(), PlainWriter(out));
    out += records * keys_.record_bytes();
    return true;
  }

  bool merge_fronts(Stretch&, Stretch&, std::byte*&) { return true; }

 private:
  static constexpr std::uint64_t batch = 64;
  static constexpr std::size_t put_words = 512;          // that are looked at for ties at a time
  static constexpr std::uint64_t most_copied_apart = 8;  // of records of a size known beforehand

  // Gives the merger the packed words of the block's records. False if they are out of order.
  template <class Look>
  bool read_block(std::span<const Stretch> block, Look look) {
    // Reading keys brings the whole of short records into the cache; of long ones, what reads all
    // of them in a row is faster where it is the first.
    const bool looks_first = keys_.record_bytes() > line_bytes;
    may_tie_ = packing_.shift != 0 || !keys_.is_last(word_);
    for (std::size_t run = 0; run < block.size(); ++run) {
      const Stretch& stretch = block[run];
      if (stretch.count == 0) continue;
      if (looks_first) look(stretch);
      if (!joins(stretch) || !keys_.share_words(word_, stretch.records, stretch.count, shared_))
        return false;
      std::uint64_t first;
      keys_.read(word_, stretch.records, 1, &first);
      kernel_.pack(&first, 1, packing_, run, ignored_);
      auto* to =
          reinterpret_cast<std::uint64_t*>(merger_.add(static_cast<Word>(first), stretch.count));
      if (!read(stretch, word_, packing_, run, [&](std::uint64_t at) { return to + at; }))
        return false;
      if (!looks_first) look(stretch);
    }
    return true;
  }

  // The same of text, for which two words are read. Most of their bits are the same in all of the
  // block: of what ASCII spells, a packed word has room for more bytes than a word has.
  template <class Look>
  bool read_squeezed(std::span<const Stretch> block, std::uint64_t records, Look look) {
    firsts_.resize(std::max(firsts_.size(), records));
    seconds_.resize(firsts_.size());
    bool whole = true;
    std::uint64_t at = 0;
    for (const Stretch& stretch : block) {
      if (stretch.count == 0) continue;
      if (!joins(stretch) || !keys_.share_words(word_, stretch.records, stretch.count, shared_))
        return false;
      const bool stretch_whole =
          text_->read_two(word_, {reinterpret_cast<const Entry*>(stretch.records), stretch.count},
                          &firsts_[at], &seconds_[at]);
      if (!words_ascend(stretch, at, stretch_whole)) return false;
      whole = whole && stretch_whole;
      at += stretch.count;
      look(stretch);
    }
    const bool fits = squeeze_into(63 - packing_.run_bits, records);
    may_tie_ = !fits || !whole;
    packing_.shift = 1;  // as if bits of the word had been lost: ties are sorted by it again
    at = 0;
    for (std::size_t run = 0; run < block.size(); ++run) {
      const std::uint64_t count = block[run].count;
      if (count == 0) continue;
      const std::span firsts = std::span(firsts_).subspan(at, count);
      const std::span seconds = std::span(seconds_).subspan(at, count);
      std::uint64_t first;
      squeeze(firsts.first(1), seconds.first(1), run, &first);
      squeeze(firsts, seconds, run,
              reinterpret_cast<std::uint64_t*>(merger_.add(static_cast<Word>(first), count)));
      at += count;
    }
    return true;
  }

  // Whether the word does not tell many records apart, by a sample of the longest run: what is
  // equal in one run is so in all of them.
  bool ties_often(std::span<const Stretch> block) const {
    const Stretch& longest = *std::ranges::max_element(block, {}, &Stretch::count);
    std::array<std::uint64_t, batch> words;
    const std::uint64_t count = std::min(longest.count, batch);
    keys_.read(word_, longest.records, count, words.data());
    std::uint64_t ties = 0;
    for (std::uint64_t i = 1; i < count; ++i) ties += words[i] == words[i - 1];
    return 4 * ties * block.size() >= count;
  }

  // Whether the two words of each of a run do, and where they are equal and not the `whole` of the
  // keys, these.
  bool words_ascend(const Stretch& stretch, std::uint64_t at, bool whole) const {
    for (std::uint64_t i = 1; i < stretch.count; ++i) {
      const std::uint64_t a = firsts_[at + i - 1], b = firsts_[at + i];
      if (a < b) continue;
      const std::uint64_t next_a = seconds_[at + i - 1], next_b = seconds_[at + i];
      const std::byte* const record = stretch.records + i * keys_.record_bytes();
      if (b < a || next_b < next_a ||
          (next_a == next_b && !whole && descends(record - keys_.record_bytes(), record)))
        return false;
    }
    return true;
  }

  // Of the bits that are not the same in all records, takes as many as there is room for, from the
  // first on. Whether these are all.
  bool squeeze_into(unsigned room, std::uint64_t records) {
    std::uint64_t any[2] = {0, 0}, all[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
    for (std::uint64_t i = 0; i < records; ++i) {
      any[0] |= firsts_[i], all[0] &= firsts_[i];
      any[1] |= seconds_[i], all[1] &= seconds_[i];
    }
    const auto bits =
        static_cast<unsigned>(std::popcount(any[0] ^ all[0]) + std::popcount(any[1] ^ all[1]));
    unsigned left = std::min(bits, room);
    for (int half = 0; half < 2; ++half) {
      groups_[half].clear();
      for (std::uint64_t differ = any[half] ^ all[half]; differ != 0 && left != 0;) {
        const auto top = static_cast<unsigned>(std::countl_zero(differ));
        const unsigned size = std::min(static_cast<unsigned>(std::countl_one(differ << top)), left);
        const unsigned from = 64 - top - size;
        const std::uint64_t ones = ~std::uint64_t{0} >> (64 - size);
        left -= size;
        groups_[half].push_back({from, left + packing_.run_bits, ones});
        differ &= ~(ones << from);
      }
    }
    return bits <= room;
  }

  void squeeze(std::span<const std::uint64_t> firsts, std::span<const std::uint64_t> seconds,
               std::uint64_t run, std::uint64_t* to) const {
    for (std::size_t first = 0; first < firsts.size(); first += batch) {
      const std::size_t end = std::min(first + batch, firsts.size());
      std::fill(to + first, to + end, run);
      for (int half = 0; half < 2; ++half) {
        const std::uint64_t* const words = half == 0 ? firsts.data() : seconds.data();
        for (const auto [from, place, ones] : groups_[half])
          for (std::size_t i = first; i < end; ++i) to[i] |= (words[i] >> from & ones) << place;
      }
    }
  }

  bool joins(const Stretch& stretch) const {
    return !stretch.predecessor ||
           !descends(stretch.records - keys_.record_bytes(), stretch.records);
  }

  bool descends(const std::byte* record, const std::byte* next) const {
    if (!whole_word_) return keys_.less(next, record);
    return detail::word_of(*whole_word_, next) < detail::word_of(*whole_word_, record);
  }

  // The first word in which the block's least record and its greatest differ.
  void choose_word(std::span<const Stretch> block) {
    const std::byte *least = nullptr, *greatest = nullptr;
    for (const Stretch& stretch : block) {
      if (stretch.count == 0) continue;
      const std::byte* last = stretch.records + (stretch.count - 1) * keys_.record_bytes();
      if (!least || descends(least, stretch.records)) least = stretch.records;
      if (!greatest || descends(last, greatest)) greatest = last;
    }
    word_ = keys_.telling_word(least, greatest);
    shared_ = least;
    std::uint64_t low, high;
    keys_.read(word_, least, 1, &low);
    keys_.read(word_, greatest, 1, &high);
    packing_ = packing_of(low, high, static_cast<unsigned>(std::bit_width(block.size() - 1)));
  }

  // Puts a word of each record, packed, where `place` says for its index. False if the records are
  // out of order, those before them in the key being equal.
  template <class Place>
  bool read(const Stretch& stretch, std::uint32_t word, const Packing& packing, std::uint64_t run,
            Place place) const {
    Order order{};
    for (std::uint64_t first = 0; first < stretch.count; first += batch) {
      const std::uint64_t count = std::min(stretch.count - first, batch);
      const std::byte* records = stretch.records + first * keys_.record_bytes();
      std::uint64_t* to = place(first);
      order.equals = false;
      if (whole_word_) {
        kernel_.read_packed(records + whole_word_->offset, keys_.record_bytes(), count,
                            whole_word_->big_endian, whole_word_->flip, packing, run, order, to);
      } else if (word == 0 && keys_.text()) {
        kernel_.read_packed(records + offsetof(Entry, word), sizeof(Entry), count, false, 0,
                            packing, run, order, to);
      } else {
        keys_.read(word, records, count, to);
        kernel_.pack(to, count, packing, run, order);
      }
      if (order.descends) return false;
      if (order.equals && !keys_.is_last(word)) {
        if (first != 0 && descends(records - keys_.record_bytes(), records)) return false;
        if (!ties_ascend(records, count, word + (packing.shift == 0), to, 0)) return false;
      }
    }
    return true;
  }

  // Whether records are in order where their packed words >> `shift` are those of their
  // predecessors. They may differ in the key's words from `word` on.
  bool ties_ascend(const std::byte* records, std::uint64_t count, std::uint32_t word,
                   const std::uint64_t* packed, unsigned shift) const {
    if (!text_) {
      std::array<std::uint64_t, put_words> words;
      read_words(word, records, count, words.data());
      const Order order = kernel_.order_ties(packed, shift, words.data(), count);
      if (order.descends) return false;
      if (!order.equals || word + 1 == keys_.words()) return true;
    }
    const std::uint32_t record_bytes = keys_.record_bytes();
    for (std::uint64_t i = 1; i < count; ++i)
      if ((packed[i] ^ packed[i - 1]) >> shift == 0 &&
          descends(records + (i - 1) * record_bytes, records + i * record_bytes))
        return false;
    return true;
  }

  void read_words(std::uint32_t word, const std::byte* records, std::uint64_t count,
                  std::uint64_t* to) const {
    if (!whole_word_) return keys_.read(word, records, count, to);
    Order ignored{};
    kernel_.read_packed(records + whole_word_->offset, keys_.record_bytes(), count,
                        whole_word_->big_endian, whole_word_->flip, {}, 0, ignored, to);
  }

  template <class Writer>
  void put(std::span<const Word> words, Writer&& writer) {
    // A copy of a size known beforehand is much faster where it is small.
    if (keys_.record_bytes() == 16)
      put_records<16>(words, writer);
    else
      put_records<0>(words, writer);
  }

  // Puts the records out in the order of their words. Bytes: of a record, 0 if known only now.
  template <std::uint32_t Bytes, class Writer>
  void put_records(std::span<const Word> words, Writer& writer) {
    const std::uint32_t record_bytes = Bytes != 0 ? Bytes : keys_.record_bytes();
    const std::uint64_t run_mask = (std::uint64_t{1} << packing_.run_bits) - 1;
    const auto next_of = [&](std::size_t i) -> const std::byte*& {
      return next_[static_cast<std::uint64_t>(words[i]) & run_mask];
    };
    const auto take = [&](std::size_t i) {
      const std::byte*& record = next_of(i);
      if (Bytes == 0 && i + prefetch_records < words.size()) {
        const std::byte*& later = next_of(i + prefetch_records);
        fetch(later + (&later == &record ? prefetch_records * record_bytes : 0),
              std::min(record_bytes, most_fetched_bytes));
      }
      if (Bytes != 0) __builtin_prefetch(record + prefetched_ahead_bytes);
      const std::byte* taken = record;
      record += record_bytes;
      return taken;
    };
    const auto write = [&](const std::byte* records, std::uint64_t count) {
      if (Bytes == 0 || count > most_copied_apart)
        return writer.write(records, count * record_bytes);
      for (std::uint64_t i = 0; i < count; ++i)
        writer.write(records + i * record_bytes, record_bytes);
    };
    // Ties are mostly of equal keys, and in order as they are: that is looked at when they are
    // together where they go, until it is not so.
    bool ordered = true;
    for (std::size_t first = 0; first < words.size();) {
      const std::size_t end = std::min(first + put_words, words.size());
      if (!may_tie_ ||
          !kernel_.tied(&words[first], std::min(end + 1, words.size()) - first, packing_)) {
        for (; first < end; ++first) write(take(first), 1);
        continue;
      }
      if constexpr (requires { writer.window(); }) {
        const std::size_t most = ordered ? Writer::window_bytes / record_bytes : 0;
        const auto window =
            words.subspan(first, whole_ties(words, first, std::min(end, first + most)));
        if (!window.empty()) {
          std::byte* to = writer.window();
          for (std::size_t i = 0; i < window.size(); ++i)
            std::memcpy(to + i * record_bytes, take(first + i), record_bytes);
          ordered =
              ties_ascend(to, window.size(), word_ + (packing_.shift == 0),
                          reinterpret_cast<const std::uint64_t*>(window.data()), packing_.run_bits);
          if (ordered) {
            writer.advance(window.size() * record_bytes);
            first += window.size();
            continue;
          }
          for (std::size_t i = 0; i < window.size(); ++i) next_of(first + i) -= record_bytes;
        }
      }
      while (first < end) first = put_equal(words, first, take, write);
    }
  }

  // How many words there are up to `end` without those that tie with what is behind.
  std::size_t whole_ties(std::span<const Word> words, std::size_t first, std::size_t end) const {
    if (end < words.size())
      while (end > first && tie(words[end - 1], words[end])) --end;
    return end - first;
  }

  bool tie(Word a, Word b) const {
    return static_cast<std::uint64_t>(a ^ b) >> packing_.run_bits == 0;
  }

  // Puts out the records that the packed words do not tell apart from the first one's, a piece of
  // each of a few runs, and says where they end.
  template <class Take, class Write>
  std::size_t put_equal(std::span<const Word> words, std::size_t first, Take take, Write write) {
    const std::uint32_t record_bytes = keys_.record_bytes();
    const auto ties = [&](std::size_t i) {
      return i < words.size() && tie(words[first], words[i]);
    };
    if (!ties(first + 1)) {
      write(take(first), 1);
      return first + 1;
    }
    pieces_.clear();
    bool ordered = true;
    std::size_t end = first;
    for (std::size_t i = first; ties(i); i = end) {
      const std::byte* records = take(i);
      for (end = i + 1; end < words.size() && words[end] == words[i]; ++end) take(end);
      if (!pieces_.empty()) {
        const Stretch& last = pieces_.back();
        ordered = ordered && !descends(last.records + (last.count - 1) * record_bytes, records);
      }
      pieces_.push_back({records, end - i, true});
    }
    if (ordered) {
      for (const Stretch& piece : pieces_) write(piece.records, piece.count);
      return end;
    }
    ties_.clear();
    for (const Stretch& piece : pieces_)
      for (std::uint64_t i = 0; i < piece.count; ++i)
        ties_.push_back({piece.records + i * record_bytes, 0});
    std::uint64_t value;
    keys_.read(word_, ties_.front().record, 1, &value);
    sorter_.sort(ties_, packing_.shift != 0 ? word_ : keys_.next_word(word_, value));
    for (const RecordRef& tie : ties_) write(tie.record, 1);
    return end;
  }

  const KeyWords& keys_;
  const std::optional<WholeWord> whole_word_;
  const TextWords* const text_;
  const WordKernel& kernel_;
  WordMerger merger_;
  RecordSorter sorter_;
  // Of the block that is merged: the word of the key, a record whose words before it are those of
  // all of the block, the next record of each run.
  std::uint32_t word_ = 0;
  const std::byte* shared_ = nullptr;
  Packing packing_;
  bool may_tie_ = false;  // whether equal packed words may stand for different keys
  std::vector<const std::byte*> next_;
  // Of text: two words of each record, and where bits of them go in the packed ones.
  struct BitGroup {
    unsigned from, to;
    std::uint64_t ones;
  };
  std::vector<std::uint64_t> firsts_, seconds_;
  std::array<std::vector<BitGroup>, 2> groups_;
  std::vector<Stretch> pieces_;
  std::vector<RecordRef> ties_;
  Order ignored_{};
};

// Of the part of a tile that is merged at once, lest it leave the caches.
constexpr std::uint64_t block_bytes = std::uint64_t{1} << 20;
constexpr std::uint64_t most_block_records = std::uint64_t{1} << 15;
// Where the runs are many, larger blocks cost less than taking very little from every run: of 1,024
// runs, merging became 1.4 to 1.6 times as fast by enough instead of the least.
constexpr std::uint64_t least_records_from_run = 32;
constexpr std::uint64_t enough_records_from_run = 256;
constexpr std::uint64_t wide_block_bytes = std::uint64_t{2} << 20;
constexpr std::uint64_t most_wide_block_records = std::uint64_t{1} << 21;

// While a run is cut, another one's part of the block is fetched, so many runs ahead.
constexpr std::size_t prefetch_runs = 8;

template <class Format>
class FormatMerger final : public TileMerger {
 public:
  FormatMerger(const KeyWords& keys, const WordKernel& kernel)
      : keys_(keys), format_(keys, kernel), sorter_(keys, kernel) {}

  std::optional<std::uint64_t> merge(std::span<const Stretch> stretches, std::byte* out,
                                     TileShaper* shaper, FingerprintSum sum,
                                     TextShaper* text_shaper) override {
    shaper_ = shaper;
    text_shaper_ = text_shaper;
    sum_ = sum;
    fingerprint_ = 0;
    end_ = out;
    if (const TextLayout* const text = keys_.text())
      for (const Stretch& stretch : stretches)
        if (stretch.count != 0) end_ += bytes_of(*text, stretch.records, stretch.count).size();
    const bool ordered = merge_clusters(stretches, out);
    end_of_streams();
    if (!ordered) return std::nullopt;
    return fingerprint_;
  }

 private:
  // Adds the fingerprints of records that are in the caches, or are wanted there next.
  void take_fingerprints(const std::byte* records, std::uint64_t count) {
    if (sum_) fingerprint_ += sum_({records, count * keys_.record_bytes()}, keys_.record_bytes());
  }

  // Runs that overlap none of the others are copied.
  bool merge_clusters(std::span<const Stretch> stretches, std::byte* out) {
    firsts_.clear();
    for (std::size_t i = 0; i < stretches.size(); ++i)
      if (stretches[i].count != 0) firsts_.push_back({stretches[i].records, i});
    sorter_.sort(firsts_, 0);
    for (std::size_t first = 0, end; first < firsts_.size(); first = end) {
      // The record that all of the cluster goes up to.
      RecordRef last = last_of(stretches, firsts_[first].run);
      for (end = first + 1; end < firsts_.size() && !before(last, firsts_[end]); ++end) {
        const RecordRef other = last_of(stretches, firsts_[end].run);
        if (before(last, other)) last = other;
      }
      cluster_.clear();
      if (end - first == stretches.size()) {
        cluster_.assign(stretches.begin(), stretches.end());
      } else {
        std::ranges::sort(firsts_.begin() + static_cast<std::ptrdiff_t>(first),
                          firsts_.begin() + static_cast<std::ptrdiff_t>(end), {}, &RecordRef::run);
        for (std::size_t i = first; i < end; ++i) cluster_.push_back(stretches[firsts_[i].run]);
      }
      if (!merge_cluster(out)) return false;
    }
    return true;
  }

  RecordRef last_of(std::span<const Stretch> stretches, std::uint64_t run) const {
    return {stretches[run].records + (stretches[run].count - 1) * keys_.record_bytes(), run};
  }
  bool before(const RecordRef& a, const RecordRef& b) const {
    return a.run < b.run ? !keys_.less(b.record, a.record) : keys_.less(a.record, b.record);
  }

  bool merge_cluster(std::byte*& out) {
    if (cluster_.size() == 1) return copy(cluster_.front(), out);
    if (cluster_.size() == 2) {
      std::byte* const begin = out;
      const Stretch whole[] = {cluster_[0], cluster_[1]};
      if (!format_.merge_fronts(cluster_[0], cluster_[1], out)) return false;
      for (std::size_t i = 0; i < 2; ++i)
        take_fingerprints(whole[i].records, whole[i].count - cluster_[i].count);
      shape(begin, out);
    }
    std::uint64_t records = 0;
    for (const Stretch& stretch : cluster_) records += stretch.count;
    block_ = cluster_;
    const std::uint64_t runs = cluster_.size();
    const std::uint64_t block_records = std::min(
        std::max(
            {std::clamp<std::uint64_t>(block_bytes / keys_.record_bytes(), 1, most_block_records),
             std::min(enough_records_from_run * runs, wide_block_bytes / keys_.record_bytes()),
             least_records_from_run * runs}),
        most_wide_block_records);
    if (records > block_records + block_records / 2) {
      for (Stretch& stretch : block_) stretch.count = 0;
      for (const RecordRef& splitter : splitters(block_records)) {
        cut(splitter);
        if (!merge_block(out)) return false;
      }
      for (std::size_t i = 0; i < block_.size(); ++i) {
        drop(block_[i], block_[i].count, keys_.record_bytes());
        block_[i].count = cluster_[i].count -
                          static_cast<std::uint64_t>(block_[i].records - cluster_[i].records) /
                              keys_.record_bytes();
      }
    }
    return merge_block(out);
  }

  // Records that cut the merge into blocks. Of every run each `step`-th record is a sample; a block
  // ends at each `samples`-th sample in the order of the merge. So a block has about block_records
  // records, give or take `step` - 1 of each run.
  std::span<const RecordRef> splitters(std::uint64_t block_records) {
    const std::uint64_t step = std::clamp<std::uint64_t>(block_records / cluster_.size(), 4, 1024);
    const std::uint64_t samples = block_records / step;
    samples_.clear();
    for (std::size_t run = 0; run < cluster_.size(); ++run)
      for (std::uint64_t i = step; i <= cluster_[run].count; i += step)
        samples_.push_back({cluster_[run].records + (i - 1) * keys_.record_bytes(), run});
    sorter_.sort(samples_, 0);
    std::size_t count = 0;
    for (std::size_t i = samples; i <= samples_.size(); i += samples)
      samples_[count++] = samples_[i - 1];
    return std::span(samples_).first(count);
  }

  // Moves the block on to what sorts up to and including the splitter.
  void cut(const RecordRef& splitter) {
    const std::uint32_t record_bytes = keys_.record_bytes();
    const std::uint64_t splitter_word = format_.word(splitter.record);
    const bool more_words = keys_.words() > 1;
    for (std::size_t i = 0; i < cluster_.size(); ++i) {
      if (i + prefetch_runs < cluster_.size()) prefetch(block_[i + prefetch_runs]);
      const std::uint64_t guess = block_[i].count;  // as many as last time
      Stretch& block = block_[i];
      drop(block, block.count, record_bytes);
      const std::byte* end = cluster_[i].records + cluster_[i].count * record_bytes;
      const std::uint64_t left = static_cast<std::uint64_t>(end - block.records) / record_bytes;
      if (i == splitter.run) {
        // Only an unsorted run may have the splitter among what is taken already.
        block.count =
            splitter.record < block.records
                ? 0
                : static_cast<std::uint64_t>(splitter.record - block.records) / record_bytes + 1;
        continue;
      }
      const bool behind = i > splitter.run;
      block.count = gallop(left, guess, [&](std::uint64_t index) {
        const std::byte* record = block.records + index * record_bytes;
        const std::uint64_t word = format_.word(record);
        if (word != splitter_word || !more_words)
          return behind ? word < splitter_word : word <= splitter_word;
        return behind ? keys_.less(record, splitter.record) : !keys_.less(splitter.record, record);
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

  bool merge_block(std::byte*& out) {
    if (joins_ascend()) {
      for (const Stretch& stretch : block_)
        if (!copy(stretch, out)) return false;
      return true;
    }
    std::uint64_t records = 0;
    for (const Stretch& stretch : block_) records += stretch.count;
    std::byte* const begin = out;
    const auto look = [this](const Stretch& stretch) {
      take_fingerprints(stretch.records, stretch.count);
    };
    if (!format_.merge(block_, records, out, end_, text_shaper_, look)) return false;
    shape(begin, out);
    return true;
  }

  // The records from `begin` to `out` were merged; moves `out` back to where the next may go.
  void shape(std::byte* begin, std::byte*& out) {
    if (shaper_ && begin != out)
      out = shaper_->take(begin, static_cast<std::uint64_t>(out - begin) / keys_.record_bytes());
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

  // Each piece is copied while it is in the first cache, and the next one comes there meanwhile.
  bool copy(const Stretch& stretch, std::byte*& out) {
    constexpr std::uint64_t piece_bytes = std::uint64_t{16} << 10;
    constexpr std::uint64_t copied_bytes = 512;  // between prefetches
    const std::uint32_t record_bytes = keys_.record_bytes();
    const std::uint64_t piece_records = std::max<std::uint64_t>(piece_bytes / record_bytes, 1);
    for (Stretch rest = stretch; rest.count > 0;) {
      Stretch piece = rest;
      piece.count = std::min(piece.count, piece_records);
      if (!format_.ascends(piece)) return false;
      take_fingerprints(piece.records, piece.count);
      drop(rest, piece.count, record_bytes);
      if (text_shaper_) {
        text_shaper_->write(piece.records, piece.count * record_bytes);
        continue;
      }
      if (const TextLayout* const text = keys_.text()) {
        const auto records = bytes_of(*text, piece.records, piece.count);
        stream_copy(out, records.data(), records.size());
        out += records.size();
        continue;
      }
      const std::uint64_t bytes = piece.count * record_bytes;
      const std::uint64_t next_bytes = std::min(bytes, rest.count * record_bytes);
      // Whole lines of the output at a time.
      std::uint64_t end = -reinterpret_cast<std::uintptr_t>(out) % 64;
      for (std::uint64_t at = 0; at < bytes; at = end) {
        end = std::min(end + copied_bytes, bytes);
        if (at < next_bytes) fetch(rest.records + at, std::min(end, next_bytes) - at);
        if (shaper_)
          std::memcpy(out + at, piece.records + at, end - at);
        else
          stream_copy(out + at, piece.records + at, end - at);
      }
      std::byte* const begin = out;
      out += bytes;
      shape(begin, out);
    }
    return true;
  }

  const KeyWords& keys_;
  FingerprintSum sum_ = nullptr;
  std::uint64_t fingerprint_ = 0;  // of what was merged of a tile
  Format format_;
  RecordSorter sorter_;
  std::vector<Stretch> cluster_, block_;
  std::vector<RecordRef> firsts_, samples_;
  const std::byte* end_ = nullptr;  // of the output of entries
  TileShaper* shaper_ = nullptr;
  TextShaper* text_shaper_ = nullptr;
};

}  // namespace

std::unique_ptr<TileMerger> make_tile_merger(const KeyWords& keys, const WordKernel& kernel) {
  if (WholeWords::fits(keys)) return std::make_unique<FormatMerger<WholeWords>>(keys, kernel);
  return std::make_unique<FormatMerger<PackedWords>>(keys, kernel);
}

}  // namespace corank
