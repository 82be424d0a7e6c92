// Record format: how bytes become rows, how rows are ordered, and how rows become bytes again.
//
// A merge makes its format once, by make_format(), and asks it instead of the options. Formats are
// immutable and thread-safe. Calls take many rows, so that a virtual call costs nothing per row;
// loops that are hotter than that read KeyLayout, which is data. What a format can do is data, too:
// FormatTraits. To add a format, see CONTRIBUTING.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corank/key.hpp"
#include "corank/options.hpp"
#include "format/framing.hpp"
#include "format/row_filter.hpp"
#include "format/text_header.hpp"

namespace corank {

// Capabilities of a format, and what the options tell about its records.
struct FormatTraits {
  std::string name = {};          // of the records, human-readable
  bool has_fixed_size = false;    // record N begins at N times the size: runs count records
  bool can_search = false;        // a record can be found from any byte, so runs can be cut by key
  bool has_columns = false;       // fields or columns can be selected, and combined in groups
  bool has_text_columns = false;  // of text, which files may name in a line and no device combines
  bool are_lines = false;         // each record is a line of its file
  bool are_parsed = false;        // finding a record takes longer than merging it
  bool are_binary = false;        // records are not text, which a terminal can show
  bool can_add_column = false;    // a column can be added after the last one
  bool has_header = false;        // the options tell of a header, which the output has once
  // Size of a header that is not lines. Without a value the first bytes of a file that show another
  // format are an error.
  std::optional<std::uint64_t> header_bytes = {};
  bool may_skip = false;      // records may be skipped, so that input and output differ in number
  std::string cpu_only = {};  // what devices do not read; empty: a device can merge the records
};

class RecordFormat;

// Projection: makes records of rows that hold the selected columns only. Immutable and thread-safe.
class Projection {
 public:
  virtual ~Projection() = default;

  // Returns the format of the projected records. Its keys are those that are selected: the leading
  // keys of the rows, num_keys() of them.
  virtual const RecordFormat& output() const = 0;
  virtual std::size_t num_keys() const = 0;

  // Writes the projected records to `to`, which has room for max_bytes(rows) and does not overlap
  // the rows' records, and returns their end.
  virtual std::byte* project(RowSpan rows, std::byte* to) const = 0;
  // Returns the max size of the projected rows. A column that a record lacks adds a delimiter.
  virtual std::uint64_t max_bytes(RowSpan rows) const = 0;
  // Returns the bound at the key of a projected record, for rows; there is at least one key.
  virtual RowBound key_of(std::span<const std::byte> record) const = 0;
  // Return the selection for devices. Of fixed-size records: the byte of a row that each byte of
  // its projected record comes from. Of others: the selected columns.
  virtual std::vector<std::uint32_t> source_bytes() const { return {}; }
  virtual std::optional<TextLayout> columns() const { return std::nullopt; }
  // Returns the line of the selected names; `header` is the line of all names, or empty.
  virtual std::string of_header(std::string_view header) const = 0;
};

class RecordFormat {
 public:
  virtual ~RecordFormat() = default;
  RecordFormat(const RecordFormat&) = delete;
  RecordFormat& operator=(const RecordFormat&) = delete;

  const FormatTraits& traits() const { return traits_; }
  // Returns the order of rows; valid as long as the format.
  const KeyEncoding& keys() const { return keys_; }
  std::size_t num_keys() const { return num_keys_; }
  std::uint32_t row_bytes() const { return keys_.record_bytes(); }
  // Returns the size of a record; 0 if records vary in length.
  std::uint32_t record_bytes() const { return traits_.has_fixed_size ? row_bytes() : 0; }
  // Returns the size of a row that is not its record: of a prefix reference, or 0.
  std::uint32_t ref_bytes() const { return traits_.has_fixed_size ? 0 : row_bytes(); }
  // Returns the size in which runs count: that of a record, or 1 byte if records vary in length.
  std::uint32_t counted_bytes() const { return traits_.has_fixed_size ? row_bytes() : 1; }

  // Bytes to rows.

  // Finds the whole records at the start of `bytes`, at most `max_records`, until a record is bad.
  // Rows of fixed size stay where they are; other rows are put to `into`, which has room for them.
  // `at_end` tells that the run ends with `bytes`; its last record then must have its end; see
  // end_of_record().
  virtual Indexed frame(std::span<const std::byte> bytes, bool at_end, std::uint64_t max_records,
                        PrefixRef* into) const = 0;
  // Returns this format for records that were found good before, which its frame() does not check
  // again; null if that would save nothing.
  virtual std::unique_ptr<const RecordFormat> without_checks() const { return nullptr; }
  // Counts the whole records at the start of `bytes`, at most `max_records`, which frame() finds
  // there unless one is bad. For records that vary in length.
  virtual WholeRecords count(std::span<const std::byte> /*bytes*/,
                             std::uint64_t /*max_records*/) const {
    return {};
  }
  // Returns the bytes that end each record, which the last record of a run may lack; empty if there
  // are none.
  virtual std::string_view end_of_record() const { return {}; }

  // Returns the header of files, of lines in front of the records; null if records cannot have one.
  virtual const TextHeader* header() const { return nullptr; }

  // Returns whether a record has a sort position. One whose key does not have its type has none,
  // may be anywhere in a run, and says nothing about its neighbours. If such records are errors,
  // the merge reports them.
  virtual bool has_order(std::span<const std::byte> /*record*/) const { return true; }

  // Rows to bytes.

  // Returns the bytes of contiguous rows, at least one; the records must be contiguous, too.
  std::span<const std::byte> bytes_of(RowSpan rows) const {
    return corank::bytes_of(keys_.layout(), rows.data, rows.count);
  }
  // Returns the bound at the key of a record.
  virtual RowBound key_of(std::span<const std::byte> record) const = 0;
  // Returns the format and the order as text to be hashed: equal texts mean that equal bytes are
  // read as equal records, in the same order.
  virtual std::string signature() const = 0;

  // Queries. Each throws Error if the query does not fit the records.

  // Returns the bound that `option`, Setting::from or Setting::to, gives; nothing if there is none.
  std::optional<RowBound> bound(const Query& query, Setting option) const;
  // Returns the filter before groups are resolved, Query::where; nothing if all rows pass.
  std::optional<RowFilter> filter(const Query& query) const;
  // Returns the filter for resolved rows that are dropped: tombstones, and those that fail
  // Query::having. Returns nothing if none are dropped.
  std::optional<RowFilter> dropped(const Query& query) const;
  // Returns the projection to Query::select; null if whole records are emitted.
  virtual std::unique_ptr<Projection> projection(const Query& /*query*/) const { return nullptr; }

  // Returns the encoding of these columns; nothing if records have none. Throws Error if there is
  // no such column; `option` names the option in errors.
  virtual std::optional<TextEncoding> columns(const std::vector<TextKey>& /*columns*/,
                                              Setting /*option*/) const {
    return std::nullopt;
  }

  // Messages.

  // Returns the order that the rows have, if one key column is read otherwise, as a continuation of
  // an error; empty if there is none. `row` sorts before `before`, which precedes it.
  virtual std::string other_order(std::span<const std::byte* const> /*rows*/,
                                  const std::byte* /*before*/, const std::byte* /*row*/) const {
    return {};
  }
  // Returns the key of a row, human-readable.
  virtual std::string key_text(const std::byte* row) const = 0;
  // Throws the Error for a bad record at `at`, whose place in the file `run` has a byte.
  [[noreturn]] virtual void throw_bad_record(const std::filesystem::path& run, const Place& place,
                                             const BadRecord& bad, const std::byte* at) const = 0;

 protected:
  // Returns the bound at `values` of the leading keys, one to num_keys() of them.
  virtual RowBound key_bound(const std::vector<std::string>& values, Setting option) const = 0;
  // Returns the right operand of a comparison.
  virtual RowBound operand(const Condition::Step& comparison, Setting option) const = 0;
  // Returns the format, of any order, of the rows that groups are resolved to; null if it is this
  // one.
  virtual std::unique_ptr<const RecordFormat> resolved(const Query& /*query*/) const {
    return nullptr;
  }

  RecordFormat(FormatTraits traits, KeyEncoding keys, std::size_t num_keys)
      : traits_(std::move(traits)), keys_(std::move(keys)), num_keys_(num_keys) {}

 private:
  RowFilter::Step compile(const Condition::Step& step, Setting option) const;

  FormatTraits traits_;
  KeyEncoding keys_;
  std::size_t num_keys_;
};

// Makes the format that the options describe. `columns_line` is the line that determines the
// columns: the header or, without a header, a record with all columns. Without it, columns that are
// named have no number yet; such a format can find records, but not order them. Throws Error if the
// options contradict each other or name a column that the line lacks.
std::unique_ptr<const RecordFormat> make_format(const Options& options,
                                                std::string_view columns_line = {});

}  // namespace corank
