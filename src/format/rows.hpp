// Rows: records as the merge takes them. A row is the record itself or, if records vary in length,
// a prefix reference to it. Rows are contiguous, KeyLayout::record_bytes apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "util/prefetch.hpp"

namespace corank {

// Max rows of a batch: few enough to stay in L1 for a second pass over them.
inline constexpr std::uint64_t max_batch_rows = 256;

// Calls on_records(bytes, record_bytes) or on_refs(layout, refs) with contiguous rows, according to
// their kind, and returns the result.
template <class OnRecords, class OnRefs>
auto visit_rows(const KeyLayout& layout, const std::byte* rows, std::uint64_t count,
                OnRecords on_records, OnRefs on_refs) {
  if (layout.text)
    return on_refs(*layout.text, std::span(reinterpret_cast<const PrefixRef*>(rows), count));
  return on_records(std::span(rows, count * layout.record_bytes), layout.record_bytes);
}

// Finds the rows of contiguous records, a batch at a time. A view, valid while the records and the
// layout are.
class RowReader {
 public:
  // `offset` is the place of the records in their file, for errors.
  RowReader(const KeyLayout& layout, std::span<const std::byte> records, std::uint64_t offset = 0)
      : layout_(layout), records_(records), offset_(offset) {}

  // Advances to the next batch; returns false after the last. Throws Corrupted if the next bytes
  // are not a whole record.
  bool next();

  // Return the rows of the batch and their number. After the first batch, the row in front of them
  // is their predecessor.
  const std::byte* rows() const { return rows_; }
  std::uint64_t count() const { return count_; }
  // Returns the records of the batch, which begin at `offset()` of their file.
  std::span<const std::byte> bytes() const { return records_.subspan(begin_, end_ - begin_); }
  std::uint64_t offset() const { return offset_ + begin_; }

 private:
  KeyLayout layout_;
  std::span<const std::byte> records_;
  std::uint64_t offset_;
  std::uint64_t begin_ = 0, end_ = 0;  // of the batch, in `records_`
  const std::byte* rows_ = nullptr;
  std::uint64_t count_ = 0;
  std::array<PrefixRef, max_batch_rows + 1> refs_;  // the first is the row before the batch
};

// Writes records one after another to memory that the caller owns. Reads up to
// max_bytes_read from the start of a record, so chunks must be padded. Not thread-safe.
class GatherWriter {
 public:
  // Bytes from the start of a record that may be read, even if the record is shorter.
  static constexpr std::uint64_t max_bytes_read = 64;

  // All records written must fit before `end`.
  GatherWriter(const TextLayout& layout, std::byte* to, const std::byte* end)
      : layout_(layout), to_(to), end_(end) {}

  std::byte* position() const { return to_; }  // where the next record goes

  // Writes the records of contiguous prefix references; the records must be contiguous, too.
  void write(const std::byte* entries, std::uint64_t entries_bytes) {
    const std::uint64_t count = entries_bytes / sizeof(PrefixRef);
    if (count == 1) return write_each(0, 1, [entries](std::size_t) { return entries; });
    const auto records = bytes_of(layout_, entries, count);
    to_ = copy(to_, records.data(), records.size());
  }

  // Writes the records of the prefix references entry_at(first) to entry_at(end - 1), wherever they
  // are.
  template <class EntryAt>
  void write_each(std::size_t first, std::size_t end, EntryAt entry_at) {
    // A local variable stays in a register; stores through std::byte may alias the member.
    std::byte* to = to_;
    for (; first < end; ++first) {
      const PrefixRef& entry = *reinterpret_cast<const PrefixRef*>(entry_at(first));
      to = copy(to, record_of(entry), record_bytes(layout_, entry));
    }
    to_ = to;
  }

 private:
  // Bytes of each of the two fixed-size copies that replace a copy of variable size. Fixed sizes
  // need no branches.
  static constexpr std::uint64_t half_bytes = max_bytes_read / 2;

  // Returns the end of the copy.
  std::byte* copy(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
    if (bytes <= 2 * half_bytes && end_ - to >= std::ptrdiff_t{2 * half_bytes}) {
      std::memcpy(to, from, half_bytes);
      std::memcpy(to + half_bytes, from + half_bytes, half_bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
    __builtin_prefetch(from + many_runs_prefetch_bytes);
    __builtin_prefetch(to + text_prefetch_bytes, 1);
    return to + bytes;
  }

  const TextLayout& layout_;
  std::byte* to_;
  const std::byte* end_;
};

// Copy of a row with its record. It compares like any row, wherever it is moved to.
class RowCopy {
 public:
  RowCopy() = default;
  RowCopy(const KeyLayout& layout, const std::byte* row) { assign(layout, row); }
  RowCopy(RowCopy&&) = default;
  RowCopy& operator=(RowCopy&&) = default;

  void assign(const KeyLayout& layout, const std::byte* row);
  // Copies the record that `record` holds.
  void assign_record(const KeyLayout& layout, std::span<const std::byte> record);

  bool empty() const { return memory_.empty(); }  // true once moved from
  const std::byte* row() const {
    return is_ref_ ? reinterpret_cast<const std::byte*>(&ref_) : memory_.data();
  }
  std::span<std::byte> record() { return {memory_.data(), bytes_}; }
  std::span<const std::byte> record() const { return {memory_.data(), bytes_}; }

 private:
  void copy(std::span<const std::byte> record);

  std::vector<std::byte> memory_;  // the record, and readable bytes after it for GatherWriter
  std::uint64_t bytes_ = 0;
  bool is_ref_ = false;
  PrefixRef ref_{};
};

// Indices of rows in a batch, ascending.
using RowIndices = std::span<const std::uint16_t>;

// Copies the rows with these indices to `to`, which does not lie after them, and returns the end.
std::byte* move_rows(std::byte* to, const std::byte* rows, RowIndices which,
                     std::uint32_t row_bytes);

// Calls use(rows, count) with spans of contiguous rows that are those with these indices, in order.
// Short rows that lie apart are copied together, so there are few calls.
template <class Use>
void for_spans(const KeyLayout& layout, const std::byte* rows, RowIndices which, Use use) {
  constexpr std::uint32_t max_copied_bytes = 64;
  if (which.empty()) return;
  const std::uint32_t row_bytes = layout.record_bytes;
  const bool is_span = which.back() - which.front() + 1u == which.size();
  if (!is_span && row_bytes <= max_copied_bytes) {
    alignas(PrefixRef) std::byte together[max_batch_rows * max_copied_bytes];
    move_rows(together, rows, which, row_bytes);
    return use(static_cast<const std::byte*>(together), which.size());
  }
  for (std::size_t i = 0, end; i < which.size(); i = end) {
    const std::byte* const first = rows + which[i] * row_bytes;
    for (end = i + 1; end < which.size() && which[end] == which[end - 1] + 1; ++end)
      ;
    use(first, end - i);
  }
}

// Copies the records of the rows with these indices to `to`, and returns the end. They have room
// before `limit`. If `to` is in the memory of the records, it does not lie after them, and
// `is_in_place` tells that of prefix references.
std::byte* copy_records(const KeyLayout& layout, const std::byte* rows, RowIndices which,
                        std::byte* to, const std::byte* limit, bool is_in_place);

// Copies the records of rows as copy_records() does, to other memory than theirs. If the rows are
// prefix references, appends those to the copies to `refs`.
std::byte* copy_rows(const KeyLayout& layout, const std::byte* rows, RowIndices which,
                     std::byte* to, const std::byte* limit, std::vector<PrefixRef>& refs);

// First words of a key.
struct LeadingWords {
  Key<max_key_words> words;
  bool are_all = true;  // whether the key has no more
};
LeadingWords leading_words(const KeyLayout& layout, const std::byte* row);

// Contiguous records and their number.
struct Records {
  std::span<const std::byte> bytes;
  std::uint64_t count;
};
// Returns the first `count` of contiguous records, or all if there are fewer.
Records first_records(const KeyLayout& layout, std::span<const std::byte> records,
                      std::uint64_t count);

// Splits contiguous records into parts of about `part_bytes`, each of whole records.
template <class Byte>
std::vector<std::span<Byte>> parts_of(const KeyLayout& layout, std::span<Byte> records,
                                      std::uint64_t part_bytes);

}  // namespace corank
