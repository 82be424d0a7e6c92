// Finds the variable-length records in a block of a run, and words the errors about bad ones.
// Functions own nothing, are thread-safe, and take sizes and offsets in bytes. Only
// throw_bad_record() throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "corank/text_key.hpp"

namespace corank {

// Bad record: it cannot be ordered, lacks columns, or has no end.
struct BadRecord {
  enum class Reason : std::uint8_t {
    no_number,   // a key column does not hold a value of its type
    no_column,   // the record lacks a key column that must hold a value
    ragged,      // the record has fewer columns than TextLayout::min_columns
    open_quote,  // no terminator follows the last quote
    cut_off,     // the lengths of a pair exceed the bytes left
    stray_text,  // text between a closing quote and the end of its column
    defect,      // what ColumnFinder::defect() tells
  };
  Reason reason;
  std::uint32_t key = 0;  // index of the key column; set for no_number and no_column
  // Bytes of the record. For `open_quote` and `cut_off`, all bytes that are left; for `stray_text`,
  // the bytes before the text.
  std::uint64_t bytes = 0;

  // Returns whether the record has an end, so that it can be skipped.
  bool can_skip() const {
    return reason == Reason::no_number || reason == Reason::no_column || reason == Reason::defect;
  }
};

struct Indexed {
  const std::byte* rows = nullptr;  // the first row
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;       // of the records, which are contiguous from the start of the block
  std::optional<BadRecord> bad;  // the bad record after these records
};

struct WholeRecords {
  std::uint64_t records = 0, bytes = 0;
};

// Indexes the complete records at the start of `bytes`, until `into` is full or a record is bad.
// `at_end` tells that the run ends with `bytes`; its last record must have its terminator. Without
// `at_end`, an incomplete last record is left for the next call.
Indexed index_records(const TextLayout& layout, std::span<const std::byte> bytes, bool at_end,
                      std::span<PrefixRef> into);

// Counts the whole records at the start of `bytes`, at most `max_records`. This is faster than to
// index them. Stops before a record whose quotes are wrong.
WholeRecords count_records(const TextLayout& layout, std::span<const std::byte> bytes,
                           std::uint64_t max_records);

// Returns the size of the whole records at the start of `records` that make up a part of about
// `part_bytes`; 0 if no record is found. `records` must have more than `part_bytes`.
std::uint64_t part_size(const TextLayout& layout, std::span<const std::byte> records,
                        std::uint64_t part_bytes);

// Splits complete records into parts of about `part_bytes`, each of complete records.
template <class Byte>
std::vector<std::span<Byte>> parts_of(const TextLayout& layout, std::span<Byte> records,
                                      std::uint64_t part_bytes) {
  std::vector<std::span<Byte>> parts;
  while (records.size() > 2 * part_bytes) {
    const std::uint64_t bytes = part_size(layout, records, part_bytes);
    if (bytes == 0 || bytes == records.size()) break;
    parts.push_back(records.first(bytes));
    records = records.subspan(bytes);
  }
  parts.push_back(records);
  return parts;
}

// Returns whether a record has a sort position; see RecordFormat::has_order().
bool has_order(const TextLayout& layout, std::span<const std::byte> record);

// Returns the size of the first line or CSV record of `bytes`, terminator included; 0 if it is
// incomplete.
std::uint64_t first_record_bytes(const TextLayout& layout, std::span<const std::byte> bytes);

// Returns the offset of the first text between a closing quote and the end of its column, in the
// first record of CSV. Returns nothing if the record, as far as it is in `bytes`, has none.
std::optional<std::uint64_t> find_stray_text(const TextLayout& layout,
                                             std::span<const std::byte> bytes);
// Return the error messages for a record whose quote is not closed, and for the one at `record`,
// which has stray text at its byte `at`.
std::string open_quote_message(const TextLayout& layout);
std::string stray_text_message(const TextLayout& layout, const std::byte* record, std::uint64_t at);

// Returns the name of a column in messages: "line", "column 2", "key".
std::string column_name(const TextLayout& layout, std::uint32_t column);

// Place of a record in its file.
struct Place {
  std::uint64_t record;               // its number, from 0
  std::optional<std::uint64_t> line;  // of text: the line that it begins, from 1, if it is known
  std::optional<std::uint64_t> byte;  // at which it begins, if that is known
};

// Returns the place for an error message: by its line or, without one, its number.
std::string place_text(const Place& place);

// Throws the Error for a bad record at `at`, whose place in the file `run` has a byte. With
// `has_header` a header is known to precede the records.
[[noreturn]] void throw_bad_record(const std::filesystem::path& run, const Place& place,
                                   const TextLayout& layout, const BadRecord& bad,
                                   const std::byte* at, bool has_header = false);

}  // namespace corank
