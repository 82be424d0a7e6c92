#include "merge/tile_merger.hpp"

#include <algorithm>
#include <cassert>
#include <vector>

#include "format/key_words.hpp"
#include "merge/block_partitioner.hpp"
#include "merge/nontemporal_copy.hpp"
#include "merge/prefix_merger.hpp"
#include "merge/record_sort.hpp"
#include "merge/single_word_merger.hpp"
#include "util/gallop.hpp"
#include "util/math.hpp"
#include "util/prefetch.hpp"

namespace corank {
namespace {

using detail::KeyWords;

// Block size: one block's input and output fit in L2.
constexpr std::uint64_t block_bytes = MiB;
constexpr std::uint64_t max_block_records = std::uint64_t{1} << 15;
// Maximum bytes per record that count towards a block: of a long record, only the key is read
// before the copy.
constexpr std::uint64_t max_record_block_bytes = 128;
// Minimum and sufficient records per run in a block. With many runs, larger blocks cost less than
// taking very few records from each run. Tuned by bench-cpu; see docs/tuning.md.
constexpr std::uint64_t min_records_from_run = 32;
constexpr std::uint64_t enough_records_from_run = 256;
constexpr std::uint64_t wide_block_bytes = 2 * MiB;
constexpr std::uint64_t max_wide_block_records = std::uint64_t{1} << 21;

// `Format` is SingleWordMerger or PrefixMerger. It tells whether a row span ascends(), and merges a
// block of row spans or, where it can, the front of two runs.
template <class Format>
class FormatMerger final : public TileMerger {
 public:
  FormatMerger(const KeyWords& keys, Output output, const WordKernel& kernel)
      : keys_(keys),
        stream_lines_(output == Output::read_later ? kernel.stream_lines : nullptr),
        format_(keys, kernel, stream_lines_ != nullptr),
        sorter_(keys, kernel),
        partitioner_(keys, sorter_) {}

  std::optional<std::uint64_t> merge(std::span<const SortedSpan> spans, std::byte* out,
                                     TileSink* sink, FingerprintSum sum) override {
    sink_ = sink;
    refs_.reset();
    if (sink && keys_.are_refs()) refs_.emplace(*sink);
    sum_ = sum;
    fingerprint_ = 0;
    end_ = out;
    for (const SortedSpan& span : spans)
      if (span.count != 0) end_ += bytes_of(keys_, span.records, span.count).size();
    const bool ordered = merge_clusters(spans, out);
    end_of_streams();
    if (!ordered) return std::nullopt;
    if (refs_) refs_->flush();
    return fingerprint_;
  }

 private:
  // Adds the fingerprints of records that are in cache, or are needed there next.
  void add_fingerprints(const std::byte* records, std::uint64_t count) {
    if (sum_) fingerprint_ += sum_({records, count * keys_.record_bytes()}, keys_.record_bytes());
  }

  // Merges each cluster of overlapping row spans; a row span that overlaps no other is copied.
  bool merge_clusters(std::span<const SortedSpan> spans, std::byte* out) {
    firsts_.clear();
    for (std::size_t i = 0; i < spans.size(); ++i)
      if (spans[i].count != 0) firsts_.push_back({spans[i].records, i});
    sorter_.sort(firsts_, 0);
    for (std::size_t first = 0, end; first < firsts_.size(); first = end) {
      // The cluster's last record so far.
      RecordRef last = last_of(spans, firsts_[first].run);
      for (end = first + 1; end < firsts_.size() && !before(last, firsts_[end]); ++end) {
        const RecordRef other = last_of(spans, firsts_[end].run);
        if (before(last, other)) last = other;
      }
      cluster_.clear();
      if (end - first == spans.size()) {
        cluster_.assign(spans.begin(), spans.end());
      } else {
        std::ranges::sort(firsts_.begin() + static_cast<std::ptrdiff_t>(first),
                          firsts_.begin() + static_cast<std::ptrdiff_t>(end), {}, &RecordRef::run);
        for (std::size_t i = first; i < end; ++i) cluster_.push_back(spans[firsts_[i].run]);
      }
      if (!merge_cluster(out)) return false;
    }
    assert(sink_ || out == end_);
    return true;
  }

  RecordRef last_of(std::span<const SortedSpan> spans, std::uint64_t run) const {
    return {spans[run].records + (spans[run].count - 1) * keys_.record_bytes(), run};
  }
  bool before(const RecordRef& a, const RecordRef& b) const {
    return a.run < b.run ? !keys_.less(b.record, a.record) : keys_.less(a.record, b.record);
  }

  bool merge_cluster(std::byte*& out) {
    assert(!cluster_.empty());
    if (cluster_.size() == 1) return copy(cluster_, out);
    if (cluster_.size() == 2 && !merge_fronts(out)) return false;
    const std::uint64_t runs = cluster_.size();
    const std::uint64_t record_block_bytes =
        std::min(bytes_to_merge(keys_), max_record_block_bytes);
    const std::uint64_t block_records = std::min(
        std::max({std::clamp<std::uint64_t>(block_bytes / record_block_bytes, 1, max_block_records),
                  std::min(enough_records_from_run * runs, wide_block_bytes / record_block_bytes),
                  min_records_from_run * runs}),
        max_wide_block_records);
    partitioner_.begin(cluster_, block_records);
    while (partitioner_.next(block_))
      if (!merge_block(out)) return false;
    return true;
  }

  // Merges two runs straight from where they lie, as far as the format can. A long part of one run
  // that precedes all of the other is copied.
  bool merge_fronts(std::byte*& out) {
    SortedSpan &a = cluster_[0], &b = cluster_[1];
    while (a.count > 0 && b.count > 0) {
      if (const std::uint64_t of_a = leading(0)) {
        if (!copy_front(0, of_a, out)) return false;
      } else if (const std::uint64_t of_b = leading(1)) {
        if (!copy_front(1, of_b, out)) return false;
      } else {
        const auto front = format_.merge_front(a, b, out);
        if (!front) return false;
        if (front->count() == 0) return true;
        assert(front->a <= a.count && front->b <= b.count);
        std::byte* const begin = out;
        out += front->count() * keys_.record_bytes();
        take_front(a, front->a);
        take_front(b, front->b);
        pass_on(begin, out);
      }
    }
    return true;
  }

  // Returns how many records of one of two runs precede all of the other, or 0 if they are few.
  std::uint64_t leading(std::uint64_t run) const {
    constexpr std::uint64_t many = 4096;
    const std::uint64_t other = 1 - run;
    const auto leads = [&](std::uint64_t i) {
      return before({cluster_[run].records + i * keys_.record_bytes(), run},
                    {cluster_[other].records, other});
    };
    const std::uint64_t count = cluster_[run].count;
    return count >= many && leads(many - 1) ? gallop(count, many, leads) : 0;
  }
  bool copy_front(std::uint64_t run, std::uint64_t count, std::byte*& out) {
    const SortedSpan front{cluster_[run].records, count, cluster_[run].predecessor};
    drop(cluster_[run], count, keys_.record_bytes());
    return copy({&front, 1}, out);
  }

  void take_front(SortedSpan& run, std::uint64_t count) {
    add_fingerprints(run.records, count);
    drop(run, count, keys_.record_bytes());
  }

  bool merge_block(std::byte*& out) {
    if (joins_ascend()) return copy(block_, out);
    std::uint64_t records = 0;
    for (const SortedSpan& span : block_) records += span.count;
    std::byte* const begin = out;
    const auto visit = [this](const SortedSpan& span) {
      add_fingerprints(span.records, span.count);
    };
    if (!format_.merge(block_, records, out, end_, refs_ ? &*refs_ : nullptr, visit)) return false;
    assert(keys_.are_refs() || out == begin + records * keys_.record_bytes());
    pass_on(begin, out);
    return true;
  }

  // Passes the records merged to [begin, out) to the sink, and moves `out` to the next output
  // position.
  void pass_on(std::byte* begin, std::byte*& out) {
    if (sink_ && begin != out)
      out = sink_->take(begin, static_cast<std::uint64_t>(out - begin) / keys_.record_bytes());
  }

  // Returns whether each row span starts no earlier than the previous one ends.
  bool joins_ascend() const {
    const std::byte* last = nullptr;
    for (const SortedSpan& span : block_) {
      if (span.count == 0) continue;
      if (last && keys_.less(span.records, last)) return false;
      last = span.records + (span.count - 1) * keys_.record_bytes();
    }
    return true;
  }

  static constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 10;

  // Copies row spans one after another, in pieces. Each piece is checked while it is in L1.
  bool copy(std::span<const SortedSpan> spans, std::byte*& out) {
    return std::ranges::all_of(spans, [&](const SortedSpan& span) { return copy(span, out); });
  }
  bool copy(const SortedSpan& span, std::byte*& out) {
    const std::uint32_t record_bytes = keys_.record_bytes();
    const std::uint64_t piece_records = std::max<std::uint64_t>(piece_bytes / record_bytes, 1);
    for (SortedSpan rest = span; rest.count > 0;) {
      SortedSpan piece = rest;
      piece.count = std::min(piece.count, piece_records);
      add_fingerprints(piece.records, piece.count);
      drop(rest, piece.count, record_bytes);
      std::byte* const begin = out;
      if (refs_) {
        refs_->write(piece.records, piece.count * record_bytes);
      } else {
        const auto records = bytes_of(keys_, piece.records, piece.count);
        assert(out + records.size() <= end_);
        copy_bytes(out, records.data(), records.size(), stream_lines_);
        out += records.size();
      }
      // Checked after the copy, which brings the piece into L1; checking first is slower.
      if (!format_.ascends(piece)) return false;
      pass_on(begin, out);
    }
    return true;
  }

  const KeyWords& keys_;
  StreamLines* const stream_lines_;  // null: no non-temporal stores
  FingerprintSum sum_ = nullptr;
  std::uint64_t fingerprint_ = 0;  // of the tile's merged records
  Format format_;
  RecordSorter sorter_;
  BlockPartitioner partitioner_;
  std::vector<SortedSpan> cluster_, block_;
  std::vector<RecordRef> firsts_;
  const std::byte* end_ = nullptr;  // end of the output that no sink takes
  TileSink* sink_ = nullptr;
  std::optional<RefBatch> refs_;  // passes prefix references to the sink
};

}  // namespace

std::unique_ptr<TileMerger> make_tile_merger(const KeyWords& keys, Output output,
                                             const WordKernel& kernel) {
  if (SingleWordMerger::fits(keys))
    return std::make_unique<FormatMerger<SingleWordMerger>>(keys, output, kernel);
  return std::make_unique<FormatMerger<PrefixMerger>>(keys, output, kernel);
}

}  // namespace corank
