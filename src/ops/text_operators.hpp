// What becomes of merged records of variable length: which of those with equal keys stay, and which
// part of all goes out.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "corank/key.hpp"
#include "corank/query.hpp"
#include "format/gather.hpp"
#include "format/text_columns.hpp"
#include "format/work_unit.hpp"
#include "ops/merged_unit.hpp"
#include "util/prefetch.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// A Shaping of records of variable length, ready to be applied.
class TextOperatorChain {
 public:
  // `encoding`, which that of `format` and `header` is, must outlive it. Where the runs hold only
  // what is `within_bounds`, they are not looked at again. `runs`: as many are merged, see
  // SetOperation. Throws Error where the shaping does not fit the format.
  TextOperatorChain(const KeyEncoding& encoding, const TextFormat& format, std::string_view header,
                    const Query& query, bool within_bounds, std::size_t runs);
  // Bounds point into what moves with it.
  TextOperatorChain(TextOperatorChain&&) = default;

  // Whether it leaves every record as it is.
  bool keeps_all() const { return !chooses() && !groups() && !limits_ && !selection_; }

  OnEqual on_equal() const { return on_equal_; }
  bool groups() const { return on_equal_ != OnEqual::keep; }
  // What the groups are treated by instead of becoming a record each; null if they do.
  const SetOperation* set_operation() const { return set_operation_ ? &*set_operation_ : nullptr; }
  // Whether records are left out, whatever others there are.
  bool chooses() const { return from_ || to_ || where_; }
  bool has_bounds() const { return from_ || to_; }
  const TextFilter* filter() const { return where_ ? &*where_ : nullptr; }
  // What drops a record that a group has come to, if it is equal to it; null: nothing does.
  const TextBound* tombstone() const { return tombstone_ ? &*tombstone_ : nullptr; }
  // What goes out of a record; null: all of it.
  const TextSelection* selection() const { return selection_ ? &*selection_ : nullptr; }
  const TextLayout& layout() const { return *encoding_.layout().text; }

  // Whether a record that a group has come to is dropped.
  bool drops_tombstone(std::span<const std::byte> record) const {
    return tombstone_ && tombstone_->compare(record) == 0;
  }

  bool less(std::span<const std::byte> a, std::span<const std::byte> b) const {
    return text_less(layout(), a.data(), a.size(), b.data(), b.size());
  }

 private:
  friend class TextTileOperators;

  const KeyEncoding& encoding_;
  OnEqual on_equal_;
  std::optional<SetOperation> set_operation_;
  bool limits_;
  std::optional<TextEncoding> tombstone_column_;
  std::optional<TextBound> from_, to_, tombstone_;
  std::optional<TextFilter> where_;
  std::optional<TextSelection> selection_;
};

// Shapes the merged records of one tile.
class TextTileOperators {
 public:
  // What stays goes to `place`. Where `in_place`, the merged records stand there. With `sum` their
  // order is looked at, and their fingerprint is taken.
  TextTileOperators(const TextOperatorChain& shape, std::span<std::byte> place, bool in_place,
                    FingerprintSum sum);

  // Where set operations find what the runs have of the tile's groups, before all else: `count`
  // entries of it, more than 0, as of GroupRunCounter.
  void add_run(std::uint32_t run, const std::byte* entries, std::uint64_t count) {
    if (operators_->set_operation()) runs_.add(run, entries, count);
  }

  // The tile's next records, in order: entries, as a GatherWriter takes them.
  void write(const std::byte* entries, std::uint64_t entries_bytes) {
    write_each(0, entries_bytes / sizeof(PrefixRef),
               [entries](std::size_t i) { return entries + i * sizeof(PrefixRef); });
  }
  // The entries entry_at(first) to entry_at(end - 1).
  template <class EntryAt>
  void write_each(std::size_t first, std::size_t end, EntryAt entry_at) {
    while (first < end) {
      const std::size_t part_end = std::min(end, first + batch_records - batched_);
      PrefixRef* to = &batch_[1 + batched_];
      batched_ += part_end - first;
      for (; first < part_end; ++first, ++to) {
        std::memcpy(to, entry_at(first), sizeof(PrefixRef));
        __builtin_prefetch(record_of(*to) + fetched_ahead_by_turns_bytes);
      }
      if (batched_ == batch_records) take_batch();
    }
  }
  void finish();

 private:
  friend class TextUnitOperators;

  // Few enough that who looks at them again finds them in the first cache.
  static constexpr std::size_t batch_records = 256;

  struct SetRecord {
    PrefixRef entry;
    bool counts;  // it is not left out
  };

  void leave_out(const PrefixRef& entry);
  void take_batch();
  bool in_range(const PrefixRef& entry);
  void take_groups(std::span<const PrefixRef> entries);
  void take_of_group(const PrefixRef& entry);
  void close_group();
  void put_apart(std::vector<std::byte>& end);
  void take_of_set(const PrefixRef& entry, bool counts);
  void decide();
  void decide_whole();
  void put_pieces(SetGroup& group, std::span<const SetPiece> pieces);
  void close_set();
  void put(std::span<const PrefixRef> entries);
  void put(const PrefixRef& entry);
  void put_changed(const PrefixRef& entry);
  void sum_outgoing();
  void move(const PrefixRef& entry);
  std::byte* position() const { return uses_writer() ? writer_.position() : end_; }
  std::vector<std::byte> copy_of(const PrefixRef& entry) const;
  // It reads a little behind a record, which records that are made up here do not allow.
  bool uses_writer() const { return !in_place_ && !operators_->selection(); }

  const TextOperatorChain* operators_;
  GatherWriter writer_;
  bool in_place_;
  std::byte* begin_;
  std::byte* end_;  // of what was put out, but for what writer_ did
  FingerprintSum sum_;
  // Of what goes out unchanged it is enough to sum up what is left out, which is mostly little.
  bool sums_left_out_;
  bool as_it_is_;  // what is put out is written as it came
  bool descends_ = false;
  // The last record of the batch before, if any, stands before the first.
  std::array<PrefixRef, batch_records + 1> batch_;
  std::vector<char> results_;        // of a filter
  std::vector<PrefixRef> outgoing_;  // what was put out and is yet to be summed up
  std::size_t batched_ = 0;
  bool has_last_ = false;
  std::optional<PrefixRef> open_;  // what its group has come to
  bool in_head_ = true;
  // Of set operations, whose head stays in the tile's place, before what was put out.
  GroupRunCounter runs_;
  std::vector<SetRecord> group_;  // of the open one, those not decided about
  OpenSet open_set_;
  std::uint64_t decided_ = 0;  // records of the open group
  TextOperatorOutput shaped_;
};

// Shapes a unit, whose tiles may be shaped by any threads.
class TextUnitOperators {
 public:
  // `sum` as in TextTileOperators.
  TextUnitOperators(const TextOperatorChain& shape, const WorkUnit& unit, FingerprintSum sum)
      : operators_(shape), unit_(unit), sum_(sum) {}

  // Tiles go to these places. Must precede all else.
  void begin(std::span<const std::span<std::byte>> places, bool in_place = false);
  TextTileOperators& tile(std::size_t index) { return tiles_[index]; }
  // The tile is merged from `count` entries, more than 0, from `entries` on in the unit's segment,
  // and others of later segments.
  void add_segment(std::size_t tile, std::size_t segment, const std::byte* entries,
                   std::uint64_t count) {
    tiles_[tile].add_run(unit_.segments[segment].chunk->run, entries, count);
  }

  // What the tiles, all of them finished, have come to. Throws Corrupted if their records were out
  // of order.
  MergedUnit join();

 private:
  const TextOperatorChain& operators_;
  const WorkUnit& unit_;
  FingerprintSum sum_;
  std::vector<TextTileOperators> tiles_;
};

// What goes out of shaped units in the end: joins the groups that reach from one into the next, and
// counts what goes out.
class TextBoundaryMerge {
 public:
  // At most `limit` records go out. Without `sum` there are no fingerprints.
  TextBoundaryMerge(const TextOperatorChain& shape, std::uint64_t limit, FingerprintSum sum)
      : operators_(shape), limit_(limit), sum_(sum) {}

  // The next unit in order: changes its pieces to what goes out. Throws what the shaping met.
  void join(MergedUnit& unit);
  // What goes out after the last unit.
  void finish(MergedUnit& unit);

  std::uint64_t records() const { return records_; }  // that went out
  // What the fingerprint of all records that were read is more than that of those that went out;
  // unless the limit cut them off.
  std::uint64_t left_out() const { return left_out_; }
  // Whether nothing goes out any more.
  bool done() const { return ended_ || records_ == limit_; }

 private:
  void check_order(TextOperatorOutput& shaped);
  void join(TextOperatorOutput& shaped, MergedUnit& unit);
  void join_set(TextOperatorOutput& shaped, MergedUnit& unit);
  void put_range(const SetGroup::Range& range, std::span<std::byte> records, MergedUnit& unit);
  void put(std::vector<std::byte> record, MergedUnit& unit);
  void put(std::span<const std::byte> records, std::uint64_t count, MergedUnit& unit);

  const TextOperatorChain& operators_;
  std::uint64_t limit_;
  FingerprintSum sum_;
  std::vector<std::byte> open_;  // what its group has come to; empty: there is none
  OpenSet open_set_;
  std::vector<std::byte> last_;  // of the records that were merged
  std::uint64_t records_ = 0;
  std::uint64_t left_out_ = 0;
  bool ended_ = false;
};

// The keys of a record, in words.
std::string text_key_text(const TextLayout& layout, std::span<const std::byte> record);

// Shapes the unit, which was merged to `merged`, where it stands.
MergedUnit apply_to_text(const TextOperatorChain& shape, const WorkUnit& unit,
                         std::span<std::byte> merged, FingerprintSum sum);
// Shapes a unit of one record, which stays as it is.
MergedUnit apply_to_text(const TextOperatorChain& shape, const WorkUnit& unit, FingerprintSum sum);

}  // namespace corank
