// What becomes of merged records, tile by tile, while they are in cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "corank/key.hpp"
#include "corank/shaping.hpp"
#include "exact_sum.hpp"
#include "filter.hpp"
#include "fingerprint.hpp"
#include "set_operation.hpp"
#include "unit.hpp"

namespace corank {

// Thrown where two records have equal keys that must not; `record` is one of them.
struct EqualKeys : std::exception {
  explicit EqualKeys(const std::byte* which, std::uint64_t bytes) : record(which, which + bytes) {}
  const char* what() const noexcept override { return "two records have equal keys"; }
  std::vector<std::byte> record;
};

// A Shaping of records of a schema, ready to be applied. Limits and ranges play no part here.
class Shape {
 public:
  // A field that records of a group are reduced in.
  struct Column {
    Reduction::Operation operation;
    Field field;
    std::size_t sum;      // which of a group's integers or floats it is, for sum and count
    KeyEncoding ordered;  // by the field, for min and max
  };
  struct Stretch {
    std::uint32_t from;  // in the record, bytes
    std::uint32_t bytes;
  };

  // `encoding` must outlive it. `runs`: as many are merged, see SetOperation.
  Shape(const Schema& schema, const std::vector<KeyField>& keys, const KeyEncoding& encoding,
        const Shaping& shaping, std::size_t runs);

  // Whether every record goes out, if not as it is.
  bool keeps_number() const { return !filters_ && !buries_ && on_equal_ == OnEqual::keep; }
  // Whether it leaves every record as it is.
  bool keeps_all() const { return keeps_number() && selected_.empty(); }

  OnEqual on_equal() const { return on_equal_; }
  bool groups() const { return on_equal_ != OnEqual::keep; }
  // What the groups are treated by instead of becoming a record each; null if they do.
  const SetOperation* set_operation() const { return set_operation_ ? &*set_operation_ : nullptr; }
  const KeyEncoding& encoding() const { return encoding_; }
  std::uint32_t record_bytes() const { return encoding_.record_bytes(); }
  std::uint32_t output_bytes() const { return output_.record_bytes; }  // of a record that goes out
  const Schema& output() const { return output_; }

  bool equal(const std::byte* a, const std::byte* b) const;
  // The keys of a record, in words.
  std::string key_text(const std::byte* record) const;
  // What goes out of records that lie end to end, put where the first of them is.
  std::span<const std::byte> select(std::span<std::byte> records) const;

  // What it consists of.
  const Filter& filter() const { return filter_; }
  const Filter& tombstone() const { return tombstone_; }
  std::span<const Column> columns() const { return columns_; }
  Overflow overflow() const { return overflow_; }
  // What goes out of a record; none: all of it.
  std::span<const Stretch> stretches() const { return selected_; }

 private:
  friend class Group;
  friend class TileShaper;

  void select(const std::byte* record, std::byte* to) const;

  Schema schema_;
  std::vector<KeyField> keys_;
  const KeyEncoding& encoding_;
  Filter filter_;
  bool filters_;
  OnEqual on_equal_;
  std::optional<SetOperation> set_operation_;
  Overflow overflow_;
  std::vector<Column> columns_;
  std::size_t integers_ = 0, floats_ = 0;  // sums of a group
  bool counts_ = false;
  Filter tombstone_;
  bool buries_;
  Schema output_;
  std::vector<Stretch> selected_;
};

// What the records of a group have come to so far.
class Group {
 public:
  bool empty() const { return count_ == 0; }
  // One of its records, as far as its key goes.
  const std::byte* record() const { return record_.data(); }

  // Begins anew with `count` records, at least one, that lie end to end.
  void start(const Shape& shape, const std::byte* records, std::uint64_t count);
  // More of its records, which follow those that it has.
  void add(const Shape& shape, const std::byte* records, std::uint64_t count);
  void add(const Shape& shape, const Group& next);
  // Puts what goes out of it to `out`, and empties it; false if nothing does. Throws Error where a
  // sum does not fit.
  bool finish(const Shape& shape, std::byte* out);

 private:
  void reduce(const Shape& shape, const std::byte* records, std::uint64_t count);
  void put_sums(const Shape& shape);

  std::uint64_t count_ = 0;  // records
  std::vector<std::byte> record_;
  std::vector<__int128> integers_;
  std::vector<ExactSum> floats_;
};

// A group that a set operation decides about, as far as it was merged; empty where none was.
struct OpenSet {
  std::vector<std::byte> record;  // one of its records, as far as its key goes
  SetGroup group;

  bool empty() const { return record.empty(); }
};

// Records of the group that a tile or a unit begins with, of which the tiles before it decide.
struct HeadPiece {
  std::uint32_t run;
  std::span<std::byte> records;
};

// Shapes the merged records of one tile in place. The groups at its ends may reach into its
// neighbours, so they are not put out but kept apart, and there is room for them.
class TileShaper {
 public:
  // The tile is merged to `place`. With `sum` the order of the merged records is looked at, and
  // their fingerprint is taken.
  TileShaper(const Shape& shape, std::byte* place, FingerprintSum sum);

  // Where set operations find what the runs have of the tile's groups, before all else: `count`
  // records of it, more than 0, as of RunCounter. The tile begins after the first `skipped` records
  // of its first group in there.
  void add_run(std::uint32_t run, const std::byte* records, std::uint64_t count);
  void skip(std::uint64_t skipped) { merged_of_open_ = skipped; }

  // The tile's next `count` records, in order. Returns where the next may be merged to at the
  // earliest, so that they are in cache still.
  std::byte* take(std::byte* records, std::uint64_t count);
  // There are no more.
  void finish();

 private:
  friend class UnitShaper;

  void take_block(std::byte* records, std::uint64_t count);
  void sum_put();
  // Unless they `may_tie`, the first words of the records' keys differ.
  void take_groups(std::byte* records, std::uint64_t count, bool may_tie);
  void take_singles(std::byte* records, std::uint64_t count);
  void take_sets(std::byte* records, std::uint64_t count, bool may_tie,
                 const Filter::Mask* fulfils);
  std::uint64_t find_groups(const std::byte* records, std::uint64_t count, bool may_tie,
                            bool begins_within, std::uint16_t* starts) const;
  void count_one(std::byte* records, std::uint64_t count) const;
  void close_group();
  void put_groups(std::byte* records, std::span<const std::uint16_t> starts);
  void put(const std::byte* records, std::span<const std::uint16_t> which);
  void put_stretch(const std::byte* records, std::uint64_t count);

  const Shape* shape_;
  std::byte* const place_;
  std::byte* begin_;  // of what was put out
  std::byte* end_;
  FingerprintSum sum_;
  std::uint64_t fingerprint_ = 0;
  std::uint64_t block_sum_ = 0;  // of the records taken last, as they were merged
  bool descends_ = false;
  std::vector<std::byte> first_, last_;  // of the merged records
  std::byte* summed_;                    // end of what is in:
  std::uint64_t outgoing_ = 0;           // the fingerprint of what was put out
  Group head_, open_;
  bool in_head_ = true;
  std::exception_ptr failure_;  // of what follows what was put out
  // Of set operations, whose head stays in the tile's place, before what was put out.
  RunCounter runs_;
  std::vector<std::byte> head_record_;
  std::vector<SetPiece> head_pieces_;
  OpenSet open_set_;
  std::uint64_t merged_of_open_ = 0;  // its records, of all that the runs here have
  Group work_;
  std::vector<Filter::Mask> masks_;
  std::vector<std::byte> selected_;
};

// The same of records of variable length, and how many they are.
struct TextHeadPiece {
  SetPiece piece;
  std::span<std::byte> records;
};

// What merged records of variable length, a part of a unit, have come to.
struct ShapedText {
  // What the groups at its ends have come to, which may reach into its neighbours; no tail if they
  // are one, none of them where equal keys mean nothing. Of a set operation the head is one of its
  // group's records, and the tail is in tail_set.
  std::vector<std::byte> head, tail;
  std::vector<TextHeadPiece> head_pieces;
  OpenSet tail_set;
  std::span<const std::byte> between;
  std::uint64_t records = 0;   // in between
  std::exception_ptr failure;  // instead of what would follow
  bool ended = false;          // nothing that follows goes out
  // The fingerprint of all merged records, less that of those in between, as they go out.
  std::uint64_t left_out = 0;
  std::vector<std::byte> first, last;  // of all merged records, unless head and tail tell enough
};

// What was made of a work unit.
struct MergedUnit {
  // Whole records, which in this order go to the output, in the memory that it was merged into.
  std::vector<std::span<const std::byte>> pieces;

  std::optional<UnitLook> look;  // none: the caller has yet to look
  // Where nothing has looked at it: the fingerprint of the work unit's records, if reading them was
  // the first that was done with them.
  std::optional<std::uint64_t> read;

  // The rest is there where the unit was shaped.
  Group head;  // before the pieces, but may have begun before the unit
  Group tail;  // after them, but may go on after the unit; none if it is the head
  // The same of set operations.
  std::vector<std::byte> head_record;
  std::vector<HeadPiece> head_pieces;
  OpenSet tail_set;
  std::exception_ptr failure;                // instead of what would follow
  std::vector<std::byte> edges;              // its first and its last record as they were merged
  std::optional<std::uint64_t> fingerprint;  // of all its records as they were merged
  std::uint64_t outgoing_fingerprint = 0;    // the same of the pieces, where that is there

  // Of records of variable length that were shaped instead of that, and instead of pieces.
  std::vector<ShapedText> shaped;
  std::vector<std::vector<std::byte>> apart;  // pieces that stand on their own
};

// Shapes a unit, whose tiles may be shaped by any threads.
class UnitShaper {
 public:
  // `sum` as in TileShaper.
  UnitShaper(const Shape& shape, const WorkUnit& unit, FingerprintSum sum)
      : shape_(shape), unit_(unit), sum_(sum) {}

  // Tiles are merged to these places. Must precede all else.
  void begin(std::span<std::byte* const> places);
  TileShaper& tile(std::size_t index) { return tiles_[index]; }
  // The tile is merged from `count` records, more than 0, from `records` on in the unit's segment,
  // and others of later segments.
  void add_segment(std::size_t tile, std::size_t segment, const std::byte* records,
                   std::uint64_t count);

  // What the tiles, all of them finished, make together. Throws Corrupted if their records were out
  // of order.
  MergedUnit join();

 private:
  void join_groups(MergedUnit& unit);
  void join_sets(MergedUnit& unit);
  std::uint64_t sum_of(std::span<const std::byte> outgoing) const;

  const Shape& shape_;
  const WorkUnit& unit_;
  FingerprintSum sum_;
  std::vector<TileShaper> tiles_;
};

// What goes out of shaped units in the end: joins the groups that reach from one unit into the
// next, and counts what goes out.
class UnitJoiner {
 public:
  // At most `limit` records go out. Without `sum` there is no fingerprint.
  UnitJoiner(const Shape& shape, std::uint64_t limit, FingerprintSum sum)
      : shape_(shape), left_(limit), sum_(sum) {}

  // The next unit in order: changes its pieces to what goes out; what belongs to none of them is
  // put in `edge`, whose memory they use as well. Throws what the shaping met.
  void join(MergedUnit& unit, std::vector<std::byte>& edge);
  // What goes out after the last unit.
  void finish(MergedUnit& unit, std::vector<std::byte>& edge);

  // Of all that goes out, as it was when it was shaped; unless the limit cut it off.
  std::uint64_t fingerprint() const { return fingerprint_; }
  // Whether nothing goes out any more.
  bool done() const { return left_ == 0; }

 private:
  void put_group(std::vector<std::byte>& edge);
  void check_order(const std::byte* open, const std::byte* next) const;
  void add(std::span<const std::byte> outgoing);

  const Shape& shape_;
  std::uint64_t left_;
  FingerprintSum sum_;
  std::uint64_t fingerprint_ = 0;
  Group open_;
  OpenSet open_set_;
};

// Shapes the unit, which was merged to `merged` as a whole, on the cores of the caller's arena.
MergedUnit shape_unit(const Shape& shape, const WorkUnit& unit, std::span<std::byte> merged,
                      FingerprintSum sum);

}  // namespace corank
