// Operators on variable-length records: bounds, filter, distinct, set operation, tombstone and
// projection. A `TextOperatorChain` is immutable and thread-safe. `TextTileOperators` applies it to
// a tile, by one thread; `TextUnitOperators` collects the tiles of a unit. `TextBoundaryMerge`
// joins units in their order, by one thread. Offsets and sizes are in bytes.
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

// A query compiled for variable-length records of a format.
class TextOperatorChain {
 public:
  // `encoding`, made from `format` and `header`, must outlive it. If the runs hold only keys
  // `within_bounds`, these are not checked again. `runs` is the number of runs that are merged; see
  // SetOperation. Throws Error if the query does not fit the format.
  TextOperatorChain(const KeyEncoding& encoding, const TextFormat& format, std::string_view header,
                    const Query& query, bool within_bounds, std::size_t runs);
  // Movable only: bounds point to memory that moves with the chain.
  TextOperatorChain(TextOperatorChain&&) = default;

  // Returns whether every record is emitted unchanged.
  bool keeps_all() const { return !chooses() && !groups() && !limits_ && !selection_ && !dropped_; }

  OnEqual on_equal() const { return on_equal_; }
  bool groups() const { return on_equal_ != OnEqual::keep; }
  // Returns the set operation that decides on groups; null if there is none.
  const SetOperation* set_operation() const { return set_operation_ ? &*set_operation_ : nullptr; }
  // Returns whether bounds or a filter drop records independently of their neighbours.
  bool chooses() const { return from_ || to_ || where_; }
  bool has_bounds() const { return from_ || to_; }
  const TextFilter* filter() const { return where_ ? &*where_ : nullptr; }
  // Returns the filter that tells which resolved records are dropped; null if none are.
  const TextFilter* dropped() const { return dropped_ ? &*dropped_ : nullptr; }
  // Returns the projection; null if records are emitted whole.
  const TextSelection* selection() const { return selection_ ? &*selection_ : nullptr; }
  const TextLayout& layout() const { return *encoding_.layout().text; }

  // Returns whether a resolved record is dropped. Overwrites `scratch`; see TextFilter.
  bool drops(std::span<const std::byte> record, std::vector<char>& scratch) const {
    return dropped_ && dropped_->test(record, scratch);
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
  std::optional<TextBound> from_, to_;
  std::optional<TextFilter> where_, dropped_;
  std::optional<TextSelection> selection_;
};

// Applies the chain to the merged records of one tile.
class TextTileOperators {
 public:
  // Output goes to `place`, which holds the merged records already if `in_place`. With `sum` the
  // records' order is checked and their fingerprint computed.
  TextTileOperators(const TextOperatorChain& shape, std::span<std::byte> place, bool in_place,
                    FingerprintSum sum);

  // For set operations: adds `count` > 0 prefix references of a run that is merged into the tile;
  // see GroupRunCounter. Must precede all other calls.
  void add_run(std::uint32_t run, const std::byte* entries, std::uint64_t count) {
    if (operators_->set_operation()) runs_.add(run, entries, count);
  }

  // Takes the tile's next records, in order, as prefix references. Has the interface of a
  // GatherWriter.
  void write(const std::byte* entries, std::uint64_t entries_bytes) {
    write_each(0, entries_bytes / sizeof(PrefixRef),
               [entries](std::size_t i) { return entries + i * sizeof(PrefixRef); });
  }
  // Takes the prefix references entry_at(first) to entry_at(end - 1).
  template <class EntryAt>
  void write_each(std::size_t first, std::size_t end, EntryAt entry_at) {
    while (first < end) {
      const std::size_t part_end = std::min(end, first + batch_records - batched_);
      PrefixRef* to = &batch_[1 + batched_];
      batched_ += part_end - first;
      for (; first < part_end; ++first, ++to) {
        std::memcpy(to, entry_at(first), sizeof(PrefixRef));
        __builtin_prefetch(record_of(*to) + many_runs_prefetch_bytes);
      }
      if (batched_ == batch_records) take_batch();
    }
  }
  void finish();

 private:
  friend class TextUnitOperators;

  // Records per batch: few enough to stay in L1 for the second pass over them.
  static constexpr std::size_t batch_records = 256;

  struct SetRecord {
    PrefixRef entry;
    bool counts;  // passes the bounds and the filter
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
  void put_selected(const PrefixRef& entry);
  void note_outgoing(const std::byte* begin);
  void sum_outgoing();
  void move(const PrefixRef& entry);
  std::byte* position() const { return uses_writer() ? writer_.position() : end_; }
  std::vector<std::byte> copy_of(const PrefixRef& entry) const;
  // Returns whether `writer_` copies the records. It reads a little past a record, which records
  // made here do not allow.
  bool uses_writer() const { return !in_place_ && !operators_->selection(); }

  const TextOperatorChain* operators_;
  GatherWriter writer_;
  bool in_place_;
  std::byte* begin_;
  std::byte* end_;  // end of the output, unless `writer_` writes it
  const std::byte* place_end_;
  FingerprintSum sum_;
  // For unchanged output it is enough to hash the records that are dropped, usually few.
  bool sums_left_out_;
  bool as_it_is_;  // emitted records are unchanged
  bool descends_ = false;
  // The first element holds the last record of the batch before, if any.
  std::array<PrefixRef, batch_records + 1> batch_;
  std::vector<char> results_;        // scratch of the filter
  std::vector<PrefixRef> outgoing_;  // emitted records, not yet hashed
  std::size_t batched_ = 0;
  bool has_last_ = false;
  std::optional<PrefixRef> open_;  // the open group's resulting record
  bool in_head_ = true;
  // Set operations only. The rows of the leading partial group stay at the start of `place`, before
  // the output.
  GroupRunCounter runs_;
  std::vector<SetRecord> group_;  // records of the open group that are not decided on
  OpenSet open_set_;
  std::uint64_t decided_ = 0;  // number of records of the open group that are decided on
  TextOperatorOutput shaped_;
};

// Applies the chain to a unit, whose tiles may be processed by any threads.
class TextUnitOperators {
 public:
  // With `sum` the records' order is checked and their fingerprint computed.
  TextUnitOperators(const TextOperatorChain& shape, const WorkUnit& unit, FingerprintSum sum)
      : operators_(shape), unit_(unit), sum_(sum) {}

  // Sets where the output of each tile goes. Must precede all other calls.
  void begin(std::span<const std::span<std::byte>> places, bool in_place = false);
  TextTileOperators& tile(std::size_t index) { return tiles_[index]; }
  // Tells that `count` > 0 prefix references of the unit's segment are merged into the tile.
  // Segments are added in order.
  void add_segment(std::size_t tile, std::size_t segment, const std::byte* entries,
                   std::uint64_t count) {
    tiles_[tile].add_run(unit_.segments[segment].chunk->run, entries, count);
  }

  // Returns the outputs of all tiles, which must be finished. Throws Corrupted if their records
  // were out of order.
  MergedUnit join();

 private:
  const TextOperatorChain& operators_;
  const WorkUnit& unit_;
  FingerprintSum sum_;
  std::vector<TextTileOperators> tiles_;
};

// Boundary merge: joins groups that cross units, and applies the limit.
class TextBoundaryMerge {
 public:
  // Emits at most `limit` records. Without `sum` there are no fingerprints.
  TextBoundaryMerge(const TextOperatorChain& shape, std::uint64_t limit, FingerprintSum sum)
      : operators_(shape), limit_(limit), sum_(sum) {}

  // Takes the next unit, in order, and sets its pieces to the records to emit. Throws the unit's
  // failure, if any.
  void join(MergedUnit& unit);
  // Emits the last group, which is still open.
  void finish(MergedUnit& unit);

  std::uint64_t records() const { return records_; }  // emitted so far
  const ResolvedCounts& resolved() const { return resolved_; }
  // Returns hash(read) - hash(emitted): the fingerprint of all records that were read less that of
  // the emitted ones. Meaningless once the limit has cut records off.
  std::uint64_t left_out() const { return left_out_; }
  // Returns whether no more records are emitted.
  bool done() const { return ended_ || records_ == limit_; }

 private:
  void check_order(TextOperatorOutput& shaped);
  void join(TextOperatorOutput& shaped, MergedUnit& unit);
  void join_set(TextOperatorOutput& shaped, MergedUnit& unit);
  void put_range(const SetGroup::Range& range, std::span<std::byte> records, MergedUnit& unit);
  void put_between(TextOperatorOutput& shaped, MergedUnit& unit);
  void put(std::vector<std::byte> record, MergedUnit& unit);
  void put(std::span<const std::byte> records, std::uint64_t count, MergedUnit& unit);

  const TextOperatorChain& operators_;
  std::uint64_t limit_;
  FingerprintSum sum_;
  std::vector<std::byte> open_;  // the open group's resulting record; empty if there is none
  OpenSet open_set_;
  std::vector<std::byte> last_;  // last merged record
  std::uint64_t records_ = 0;
  ResolvedCounts resolved_;
  std::vector<char> results_;  // scratch of a filter
  std::uint64_t left_out_ = 0;
  bool ended_ = false;
};

// Returns a record's keys as human-readable text.
std::string text_key_text(const TextLayout& layout, std::span<const std::byte> record);

// Applies the chain in place to a unit that was merged to `merged`, on the caller's arena.
MergedUnit apply_to_text(const TextOperatorChain& shape, const WorkUnit& unit,
                         std::span<std::byte> merged, FingerprintSum sum);
// Applies the chain to a unit of one record, which stays where it is.
MergedUnit apply_to_text(const TextOperatorChain& shape, const WorkUnit& unit, FingerprintSum sum);

}  // namespace corank
