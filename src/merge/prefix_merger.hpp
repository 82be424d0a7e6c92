// Merges records of any kind by 63-bit words: the distinguishing bits of the key prefix, then the
// run id.
//
// Stable: records with equal prefixes are checked and, if needed, sorted as they are emitted. Not
// thread-safe; a merger reuses its memory, and `keys` and `kernel` must outlive it.
//
// Source: prefixes in place of keys, as in Nyberg et al., "AlphaSort" (1994).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "format/key_words.hpp"
#include "format/rows.hpp"
#include "merge/front_merge.hpp"
#include "merge/merged_records.hpp"
#include "merge/nontemporal_copy.hpp"
#include "merge/record_sort.hpp"
#include "merge/row_span.hpp"
#include "merge/word_merger.hpp"
#include "run/tile_sink.hpp"
#include "util/prefetch.hpp"

namespace corank {

// Each word carries its run id, so the merged words alone say which run to take the next record
// from.
class PrefixMerger {
 public:
  // Emits records by non-temporal stores if `streams` and they pay off.
  PrefixMerger(const detail::KeyWords& keys, const WordKernel& kernel, bool streams)
      : keys_(keys),
        single_word_key_(keys.single_word_key()),
        refs_(dynamic_cast<const RefWords*>(&keys)),
        streams_(streams && streaming_overlaps()),
        kernel_(kernel),
        merger_(kernel),
        sorter_(keys, kernel) {
    assert(!single_word_key_ || single_word_key_->offset + 8 <= keys.record_bytes());
  }

  bool ascends(const SortedSpan& span) const {
    if (single_word_key_) {
      const std::uint64_t stride = keys_.record_bytes();
      return kernel_.ascend(span.records - stride * span.predecessor + single_word_key_->offset,
                            stride, span.count + span.predecessor, single_word_key_->big_endian,
                            single_word_key_->flip ^ sign_bit);
    }
    const std::byte* const before =
        span.predecessor ? span.records - keys_.record_bytes() : nullptr;
    if (const auto ascend = keys_.ascend(before, span.records, span.count)) return *ascend;
    std::array<std::uint64_t, batch> words;
    return joins(span) && read(span, 0, {}, 0, false, [&](std::uint64_t) { return words.data(); });
  }

  // Merges `records` records of a block to `out`, which it advances. The output ends at `end` or
  // before, unless `refs` takes the rows. Calls visit(span) for each row span while it is in cache.
  // Returns false if a run is out of order.
  template <class Visit>
  bool merge(std::span<const SortedSpan> block, std::uint64_t records, std::byte*& out,
             const std::byte* end, RefBatch* refs, Visit visit) {
    assert(records != 0);
    assert(refs_ || !refs);
    merger_.reset(records, block.size());
    choose_word(block);
    if (!read_block(block, visit)) return false;
    cursors_.clear();
    for (const SortedSpan& span : block) cursors_.push_back({span.records, span.records});
    if (refs) {
      const bool ordered = emit_records<sizeof(PrefixRef)>(merger_.merge(), *refs);
      assert(!ordered || has_taken_all(block));
      return ordered;
    }
    if (refs_) {
      GatherWriter writer(refs_->layout(), out, end);
      const bool ordered = emit_records<sizeof(PrefixRef)>(merger_.merge(), writer);
      out = writer.position();
      assert(!ordered || (out <= end && has_taken_all(block)));
      return ordered;
    }
    const bool ordered =
        streams_ ? emit(NontemporalWriter(out, kernel_.stream_lines)) : emit(PlainWriter(out));
    out += records * keys_.record_bytes();
    assert(!ordered || has_taken_all(block));
    return ordered;
  }

  // Merges a front of two runs to `out`. Returns an empty front if there is none to merge, and
  // nothing if a run is out of order.
  std::optional<Front> merge_front(const SortedSpan& a, const SortedSpan& b, std::byte* out) const {
    if (!single_word_key_ || keys_.record_bytes() != FrontKeys::record_bytes) return Front{};
    const FrontKeys a_keys{*single_word_key_, a.records}, b_keys{*single_word_key_, b.records};
    const Front front = cut_front(a_keys, a.count, b_keys, b.count);
    if (front.count() == 0) return front;
    if (!ascends({a.records, front.a, a.predecessor}) ||
        !ascends({b.records, front.b, b.predecessor}) ||
        !is_front(front, a_keys, b_keys, std::less{}))
      return std::nullopt;
    corank::merge_front(front, a_keys, b_keys, out);
    return front;
  }

 private:
  static constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63;  // words compare as signed
  static constexpr std::uint64_t batch = 64;
  static constexpr std::uint32_t line_bytes = 64;
  static constexpr std::size_t batch_words = 512;  // words checked for equal prefixes at a time
  // Maximum records of a piece that are copied one by one, if their size is constant.
  static constexpr std::uint64_t max_copied_apart = 8;

  // Returns whether each run's cursor has passed all of its records in the block.
  bool has_taken_all(std::span<const SortedSpan> block) const {
    return std::ranges::equal(block, cursors_, [&](const SortedSpan& run, const RunCursor& cursor) {
      return cursor.next == run.records + run.count * keys_.record_bytes();
    });
  }

  // Gives the merger the packed words of the block's records. Returns false if they are out of
  // order.
  template <class Visit>
  bool read_block(std::span<const SortedSpan> block, Visit visit) {
    // Reading its key brings a short record into cache whole, so visit() comes after it. For long
    // records visit() comes first, since its sequential reads are then faster.
    const bool visits_first = keys_.record_bytes() > line_bytes;
    may_tie_ = packing_.shift != 0 || !keys_.is_last(word_);
    checks_ties_later_ = ties_stayed_ && !refs_ && !keys_.is_last(word_) &&
                         keys_.record_bytes() <= NontemporalWriter::window_bytes;
    for (std::size_t run = 0; run < block.size(); ++run) {
      prefetch_ahead(block, run, keys_.record_bytes());
      const SortedSpan& span = block[run];
      if (span.count == 0) continue;
      if (visits_first) visit(span);
      if (!joins(span) || !keys_.share_words(word_, span.records, span.count, shared_))
        return false;
      std::uint64_t first;
      keys_.read(word_, span.records, 1, &first);
      kernel_.pack(&first, 1, packing_, run);
      auto* to =
          reinterpret_cast<std::uint64_t*>(merger_.add(static_cast<Word>(first), span.count));
      if (!read(span, word_, packing_, run, checks_ties_later_,
                [&](std::uint64_t at) { return to + at; }))
        return false;
      if (!visits_first) visit(span);
    }
    return true;
  }

  bool joins(const SortedSpan& span) const {
    return !span.predecessor || !descends(span.records - keys_.record_bytes(), span.records);
  }

  bool descends(const std::byte* record, const std::byte* next) const {
    if (!single_word_key_) return keys_.less(next, record);
    return detail::word_of(*single_word_key_, next) < detail::word_of(*single_word_key_, record);
  }

  // Sets word_ to the first word in which the block's min and max records differ.
  void choose_word(std::span<const SortedSpan> block) {
    const std::byte *least = nullptr, *greatest = nullptr;
    for (const SortedSpan& span : block) {
      if (span.count == 0) continue;
      const std::byte* last = span.records + (span.count - 1) * keys_.record_bytes();
      if (!least || descends(least, span.records)) least = span.records;
      if (!greatest || descends(last, greatest)) greatest = last;
    }
    word_ = keys_.first_distinguishing_word(least, greatest);
    shared_ = least;
    std::uint64_t low, high;
    keys_.read(word_, least, 1, &low);
    keys_.read(word_, greatest, 1, &high);
    packing_ = packing_of(low, high, static_cast<unsigned>(std::bit_width(block.size() - 1)));
  }

  // Writes a packed key word of each record to place(index). Returns false if the records are out
  // of order, assuming that their earlier words are equal. If `later`, the order of records with
  // equal words is left to be checked during the copy.
  template <class Place>
  bool read(const SortedSpan& span, std::uint32_t word, const Packing& packing, std::uint64_t run,
            bool later, Place place) const {
    Order order{};
    const bool of_refs = word == 0 && keys_.are_refs();
    const bool reads_packed = single_word_key_ || of_refs;
    const std::uint64_t record_bytes = keys_.record_bytes();
    // Long records are fetched by visit(), and records of prefix references by their reader;
    // neither is prefetched here.
    const std::uint64_t fetched_ahead = record_bytes > line_bytes || (refs_ && !of_refs)
                                            ? span.count
                                            : sequential_prefetch_bytes / record_bytes;
    for (std::uint64_t first = 0; first < span.count; first += batch) {
      const std::uint64_t count = std::min(span.count - first, batch);
      const std::byte* records = span.records + first * record_bytes;
      if (first + fetched_ahead < span.count)
        prefetch(records + fetched_ahead * record_bytes, batch * record_bytes);
      std::uint64_t* to = place(first);
      order.equals = false;
      if (single_word_key_) {
        kernel_.read_packed(records + single_word_key_->offset, record_bytes, count,
                            single_word_key_->big_endian, single_word_key_->flip, packing, run,
                            order, to);
      } else if (of_refs) {
        kernel_.read_packed(records + offsetof(PrefixRef, word), sizeof(PrefixRef), count, false, 0,
                            packing, run, order, to);
      } else {
        keys_.read(word, records, count, to);
        kernel_.find_order(to, count, order);
      }
      if (order.descends) return false;
      if (order.equals && !keys_.is_last(word) && !later) {
        const std::byte* const before = first != 0 ? records - record_bytes : nullptr;
        if (!ties_ascend(before, records, count, to, 0)) return false;
      }
      if (!reads_packed) kernel_.pack(to, count, packing, run);
    }
    return true;
  }

  // Returns whether records whose packed words >> `shift` equal their predecessors' are in order.
  // `before`, unless null, precedes the first record. Kept out of line to preserve registers in the
  // copy loop.
  [[gnu::noinline]] bool ties_ascend(const std::byte* before, const std::byte* records,
                                     std::uint64_t count, const std::uint64_t* packed,
                                     unsigned shift) const {
    assert(count <= batch_words);
    // Checking all records costs less than finding those with equal prefixes.
    if (const auto ascend = keys_.ascend(before, records, count)) return *ascend;
    return tied_records_ascend(before, records, count, packed, shift);
  }

  // Checks only records with equal prefixes, for ties_ascend(). Kept out of line, so that
  // ties_ascend() itself has fewer registers to save.
  [[gnu::noinline]] bool tied_records_ascend(const std::byte* before, const std::byte* records,
                                             std::uint64_t count, const std::uint64_t* packed,
                                             unsigned shift) const {
    if (before && descends(before, records)) return false;
    const std::uint32_t record_bytes = keys_.record_bytes();
    if (single_word_key_)
      return kernel_.ascend(records + single_word_key_->offset, record_bytes, count,
                            single_word_key_->big_endian, single_word_key_->flip ^ sign_bit);
    for (std::uint64_t i = 1; i < count; ++i)
      if ((packed[i] ^ packed[i - 1]) >> shift == 0 &&
          descends(records + (i - 1) * record_bytes, records + i * record_bytes))
        return false;
    return true;
  }

  template <class Writer>
  bool emit(Writer&& writer) {
    return keys_.record_bytes() == 16 ? emit_records<16>(merger_.merge(), writer)
                                      : emit_records<0>(merger_.merge(), writer);
  }

  // Emits the records in the order of their words. Returns false if the records of a run are out of
  // order.
  template <std::uint32_t Bytes, class Writer>
  bool emit_records(std::span<const Word> words, Writer& writer) {
    const MergedRecords<Bytes> records(words, packing_.run_bits, keys_.record_bytes(),
                                       cursors_.data());
    const std::uint32_t record_bytes = records.record_bytes();
    // Equal prefixes within a run are in order, or are checked here. A writer that cannot go back
    // must know of equal prefixes before it emits them: a record of another run may precede them.
    constexpr bool goes_back = requires {
      writer.go_back(0);
    };
    std::size_t window_records = 0;
    if constexpr (goes_back) window_records = Writer::window_bytes / record_bytes;
    const std::size_t most =
        window_records == 0 ? batch_words : std::min(batch_words, window_records);
    // Equal prefixes usually mean equal keys. Assume so, check after the copy, and fall back once
    // it fails.
    bool ordered = true;
    for (std::size_t first = 0; first < words.size();) {
      const std::size_t end = std::min(first + most, words.size());
      const std::size_t from = goes_back && first != 0 ? first - 1 : first;
      const std::size_t past = goes_back ? end : std::min(end + 1, words.size());
      const bool tied = may_tie_ && kernel_.tied(&words[from], past - from, packing_,
                                                 !goes_back || checks_ties_later_);
      if constexpr (goes_back) {
        if (window_records != 0 && (ordered || !tied)) {
          const std::byte* const before =
              first != 0 ? records.next(first - 1) - record_bytes : nullptr;
          std::byte* const to = writer.window();
          records.copy(first, end, to);
          if (tied)
            ordered = ties_ascend(before, to, end - first,
                                  reinterpret_cast<const std::uint64_t*>(&words[first]),
                                  packing_.run_bits);
          if (ordered || !tied) {
            writer.advance((end - first) * record_bytes);
            first = end;
            continue;
          }
          for (std::size_t i = first; i < end; ++i) records.give_back(i);
        }
        if (tied) {
          const std::size_t known = first;
          while (first > 0 && tie(words[first - 1], words[known])) records.give_back(--first);
          writer.go_back((known - first) * record_bytes);
        }
      }
      if (tied) {
        while (first < end)
          if (!emit_equal(records, first, writer)) return false;
      } else if constexpr (goes_back) {
        for (; first < end; ++first) writer.write(records.take(first), record_bytes);
      } else {
        writer.write_each(first, end, [records](std::size_t i) { return records.take(i); });
        first = end;
      }
    }
    ties_stayed_ = ordered;
    return true;
  }

  bool tie(Word a, Word b) const {
    return static_cast<std::uint64_t>(a ^ b) >> packing_.run_bits == 0;
  }

  // Emits the records with the same prefix as the first one, and advances `first` past them. Each
  // run contributes one contiguous piece. Returns false if the records of a run are out of order.
  template <std::uint32_t Bytes, class Writer>
  bool emit_equal(const MergedRecords<Bytes>& records, std::size_t& first, Writer& writer) {
    const std::span<const Word> words = records.words();
    const std::uint32_t record_bytes = records.record_bytes();
    const Word one = words[first];
    const auto ties = [&](std::size_t i) { return i < words.size() && tie(one, words[i]); };
    if (!ties(first + 1)) {
      writer.write(records.take(first++), record_bytes);
      return true;
    }
    pieces_.clear();
    bool ordered = true;
    while (ties(first)) {
      const std::size_t begin = first;
      const std::byte* const piece = records.take(first++);
      const std::byte* last = piece;
      while (first < words.size() && words[first] == words[begin]) {
        const std::byte* const record = records.take(first++);
        if (checks_ties_later_ && descends(last, record)) return false;
        last = record;
      }
      if (!pieces_.empty()) {
        const SortedSpan& before = pieces_.back();
        ordered = ordered && !descends(before.records + (before.count - 1) * record_bytes, piece);
      }
      pieces_.push_back({piece, first - begin, true});
    }
    if (ordered) {
      for (const SortedSpan& piece : pieces_) {
        // Few records of a constant size are copied faster one by one.
        const std::uint64_t together =
            Bytes == 0 || piece.count > max_copied_apart ? piece.count : 1;
        for (std::uint64_t i = 0; i < piece.count; i += together)
          writer.write(piece.records + i * record_bytes, together * record_bytes);
      }
      return true;
    }
    ties_.clear();
    for (const SortedSpan& piece : pieces_)
      for (std::uint64_t i = 0; i < piece.count; ++i)
        ties_.push_back({piece.records + i * record_bytes, 0});
    std::uint64_t value;
    keys_.read(word_, ties_.front().record, 1, &value);
    sorter_.sort(ties_, packing_.shift != 0 ? word_ : keys_.next_word(word_, value));
    for (const RecordRef& tie : ties_) writer.write(tie.record, record_bytes);
    return true;
  }

  const detail::KeyWords& keys_;
  const std::optional<detail::SingleWordKey> single_word_key_;
  const RefWords* const refs_;
  const bool streams_;
  const WordKernel& kernel_;
  WordMerger merger_;
  RecordSorter sorter_;
  // The current block: its key word, a record that has the block's common earlier words, and the
  // packing of words.
  std::uint32_t word_ = 0;
  const std::byte* shared_ = nullptr;
  Packing packing_;
  bool may_tie_ = false;  // whether equal packed words may mean different keys
  // Whether to check the order of a run's equal prefixes during the copy. The check is free there
  // as long as no records are reordered, as in the previous block (ties_stayed_).
  bool checks_ties_later_ = false;
  bool ties_stayed_ = true;
  std::vector<RunCursor> cursors_;
  std::vector<SortedSpan> pieces_;
  std::vector<RecordRef> ties_;
};

}  // namespace corank
