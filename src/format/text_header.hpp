// Header of a file of variable-length records: comment lines, header lines and the line of column
// names in front of its records. Tells a header from records, as far as one can. Immutable and
// thread-safe; failures are thrown as Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "corank/query.hpp"
#include "corank/text.hpp"
#include "corank/text_layout.hpp"

namespace corank {

// Header of one file; each line has its terminator.
struct FileHead {
  std::string mark;  // byte order mark of a file without other parts of a header
  std::string comments, lines, names;
  std::uint64_t bytes = 0, num_lines = 0;  // in the file
};

// First two records of a file, with their terminators; empty if it has none.
struct FirstRecords {
  std::string first, second;
};

class TextHeader {
 public:
  explicit TextHeader(const TextFormat& format);

  // Returns whether the options tell of no header. Files may still begin with a byte order mark.
  bool is_empty() const;
  // Returns whether the options tell the size of the header.
  bool has_known_size() const { return format_.header_bytes.has_value(); }
  // Returns the byte order mark; empty if files of the format have none.
  std::string_view byte_order_mark() const;
  // Returns whether the header has a line of column names.
  bool has_names() const { return format_.header; }
  // Returns whether only the first file has the line of column names.
  bool is_in_first_file() const { return format_.first_header; }
  // Returns the header without that line.
  TextHeader without_names() const;
  const std::string& comment_prefix() const { return format_.comment; }

  // Returns the header of a file that begins with `begin`, and ends with it if `at_end`; nothing if
  // the header is longer.
  std::optional<FileHead> parse(const std::filesystem::path& file, std::span<const std::byte> begin,
                                bool at_end) const;
  // Returns how the columns that a line names differ from those of another, as text; empty if they
  // are the same, whatever their quotes, byte order marks and carriage returns.
  std::string difference(std::string_view names, std::string_view others) const;
  // Returns the line of names with another last one.
  std::string with_column(std::string_view names, std::string_view name) const;

  // Returns the first record at `begin`, without a terminator if it lacks one; empty if there is
  // none, or if its quotes are wrong, which its reader reports. Returns nothing if the record is
  // longer than `begin`.
  std::optional<std::string> first_record(std::span<const std::byte> begin, bool at_end) const;
  // Returns the first records at `begin`, as far as they are whole.
  FirstRecords first_records(std::string begin, bool at_end) const;
  std::uint32_t num_columns(std::string_view record) const;
  // Returns the number of columns that a record needs to have every column that the options name.
  std::uint32_t wanted_columns(const Query& query) const;

  // Returns a warning if these records, the first of each file, all lack a field of JSON that is a
  // key or in a condition of `query`. It may be in other records, so this is not an error. Returns
  // an empty string if they lack none.
  std::string doubt_fields(std::span<const std::string> firsts, const Query& query) const;

  // The rest guesses whether a header was taken for a record, or a record for a header. Returns a
  // warning; empty if nothing looks wrong.

  // Warns if `names` has a value in a typed key column that is named by its position, or resembles
  // `record`, the first one after it, in a column with digits: it may be a record. Does not compare
  // it with an empty record.
  std::string doubt_names(std::string_view names, const std::string& record) const;
  // Warns if the first records of the runs, which have no header, look like a header. They
  // must be equal; that of a single run must not hold a number. Also, they must be out of order in
  // runs that `are_sorted`, or a key column must hold a number only in the second records, or
  // another column must do so in every run. With `is_verified` the merge reads everything and
  // reports a first record that is out of order itself.
  std::string doubt_records(std::span<const FirstRecords> runs, bool are_sorted,
                            bool is_verified) const;

 private:
  TextFormat format_;
  TextEncoding encoding_;  // without keys, which suffices to find records and columns
};

}  // namespace corank
