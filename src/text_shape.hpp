// What becomes of merged records of variable length: which of those with equal keys stay, and which
// part of all goes out.
#pragma once

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
#include "corank/shaping.hpp"
#include "fingerprint.hpp"
#include "gather.hpp"
#include "shape.hpp"
#include "text_columns.hpp"

namespace corank {

// A Shaping of records of variable length, ready to be applied.
class TextShape {
 public:
  // `encoding`, which that of `format` and `header` is, must outlive it. Where the runs hold only
  // what is `within_bounds`, they are not looked at again. Throws Error where the shaping does not
  // fit the format.
  TextShape(const KeyEncoding& encoding, const TextFormat& format, std::string_view header,
            const Shaping& shaping, bool within_bounds);
  // Bounds point into what moves with it.
  TextShape(TextShape&&) = default;

  // Whether it leaves every record as it is.
  bool keeps_all() const { return !chooses() && !groups() && !limits_ && !selection_; }

  OnEqual on_equal() const { return on_equal_; }
  bool groups() const { return on_equal_ != OnEqual::keep; }
  // Whether records are left out, whatever others there are.
  bool chooses() const { return from_ || to_ || where_; }
  // What goes out of a record; null: all of it.
  const TextSelection* selection() const { return selection_ ? &*selection_ : nullptr; }
  const TextLayout& layout() const { return *encoding_.layout().text; }

  // Whether a record that a group has come to is dropped.
  bool buries(std::span<const std::byte> record) const {
    return tombstone_ && tombstone_->compare(record) == 0;
  }

  bool less(std::span<const std::byte> a, std::span<const std::byte> b) const {
    return text_less(layout(), a.data(), a.size(), b.data(), b.size());
  }

 private:
  friend class TextShaper;

  const KeyEncoding& encoding_;
  OnEqual on_equal_;
  bool limits_;
  std::optional<TextEncoding> tombstone_column_;
  std::optional<TextBound> from_, to_, tombstone_;
  std::optional<TextFilter> where_;
  std::optional<TextSelection> selection_;
};

// Shapes the merged records of one tile.
class TextShaper {
 public:
  // What stays goes to `place`. Where `in_place`, the merged records stand there. With `sum` their
  // order is looked at, and their fingerprint is taken.
  TextShaper(const TextShape& shape, std::span<std::byte> place, bool in_place, FingerprintSum sum);

  // The tile's next records, in order: entries, as a GatherWriter takes them.
  void write(const std::byte* entries, std::uint64_t entries_bytes) {
    for (std::uint64_t at = 0; at < entries_bytes; at += sizeof(Entry)) {
      Entry& entry = batch_[1 + batched_];
      std::memcpy(&entry, entries + at, sizeof(Entry));
      __builtin_prefetch(record_of(entry) + fetched_ahead_bytes);
      if (++batched_ == batch_records) take_batch();
    }
  }
  void finish();

 private:
  friend class TextUnitShaper;

  // Few enough that who looks at them again finds them in the first cache.
  static constexpr std::size_t batch_records = 256;
  static constexpr std::uint64_t fetched_ahead_bytes = 512;  // of a run

  void take_batch();
  bool wanted(const Entry& entry);
  void take(const Entry& entry);
  void close_group();
  void put(const Entry& entry);
  std::vector<std::byte> copy_of(const Entry& entry) const;
  // It reads a little behind a record, which records that are made up here do not allow.
  bool uses_writer() const { return !in_place_ && !shape_->selection(); }

  const TextShape* shape_;
  GatherWriter writer_;
  bool in_place_;
  std::byte* begin_;
  std::byte* end_;  // of what was put out, but for what writer_ did
  FingerprintSum sum_;
  bool descends_ = false;
  // The last record of the batch before, if any, stands before the first.
  std::array<Entry, batch_records + 1> batch_;
  std::vector<char> results_;        // of a filter
  std::vector<std::byte> selected_;  // of the record that goes out
  std::size_t batched_ = 0;
  bool has_last_ = false;
  std::optional<Entry> open_;  // what its group has come to
  bool in_head_ = true;
  ShapedText shaped_;
};

// Shapes a unit, whose tiles may be shaped by any threads.
class TextUnitShaper {
 public:
  // `sum` as in TextShaper.
  TextUnitShaper(const TextShape& shape, FingerprintSum sum) : shape_(shape), sum_(sum) {}

  // Tiles go to these places. Must precede all else.
  void begin(std::span<const std::span<std::byte>> places, bool in_place = false);
  TextShaper& tile(std::size_t index) { return tiles_[index]; }

  // What the tiles, all of them finished, have come to. Throws Corrupted if their records were out
  // of order.
  MergedUnit join();

 private:
  const TextShape& shape_;
  FingerprintSum sum_;
  std::vector<TextShaper> tiles_;
};

// What goes out of shaped units in the end: joins the groups that reach from one into the next, and
// counts what goes out.
class TextJoiner {
 public:
  // At most `limit` records go out. Without `sum` there are no fingerprints.
  TextJoiner(const TextShape& shape, std::uint64_t limit, FingerprintSum sum)
      : shape_(shape), limit_(limit), sum_(sum) {}

  // The next unit in order: changes its pieces to what goes out. Throws what the shaping met.
  void join(MergedUnit& unit);
  // What goes out after the last unit.
  void finish(MergedUnit& unit);

  std::uint64_t records() const { return records_; }          // that went out
  std::uint64_t fingerprint() const { return fingerprint_; }  // of all that were merged
  // Of all that went out, as they were when they were shaped; unless the limit cut them off.
  std::uint64_t outgoing() const { return outgoing_; }
  // Whether nothing goes out any more.
  bool done() const { return ended_ || records_ == limit_; }

 private:
  void check_order(ShapedText& shaped);
  void join(ShapedText& shaped, MergedUnit& unit);
  void put(std::vector<std::byte> record, MergedUnit& unit);
  // `fingerprint`: theirs.
  void put(std::span<const std::byte> records, std::uint64_t count, std::uint64_t fingerprint,
           MergedUnit& unit);

  const TextShape& shape_;
  std::uint64_t limit_;
  FingerprintSum sum_;
  std::vector<std::byte> open_;  // what its group has come to; empty: there is none
  std::vector<std::byte> last_;  // of the records that were merged
  std::uint64_t records_ = 0;
  std::uint64_t fingerprint_ = 0, outgoing_ = 0;
  bool ended_ = false;
};

// The keys of a record, in words.
std::string text_key_text(const TextLayout& layout, std::span<const std::byte> record);

// Shapes a unit that was merged to `merged`, where it stands.
MergedUnit shape_text(const TextShape& shape, std::span<std::byte> merged, FingerprintSum sum);
// Shapes a unit of this one record, which stays as it is.
MergedUnit shape_text(const TextShape& shape, const Entry& only, FingerprintSum sum);

}  // namespace corank
