// Record format of one merge: how records are read, ordered, combined and written, as far as it
// follows from the options and the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corank/key.hpp"
#include "corank/options.hpp"
#include "ops/operator_chain.hpp"
#include "ops/text_operators.hpp"
#include "run/header.hpp"
#include "verify/output_verifier.hpp"

namespace corank {

// The operators of one pass; neither if every record is emitted as it is.
struct PassOperators {
  std::unique_ptr<OperatorChain> fixed;     // of fixed-size records
  std::unique_ptr<TextOperatorChain> text;  // of variable-length records

  bool empty() const { return !fixed && !text; }
  // True if every record is emitted, though perhaps changed.
  bool keeps_count() const { return !text && (!fixed || fixed->keeps_count()); }
  const OperatorChain* fixed_chain() const { return fixed.get(); }
  const TextOperatorChain* text_chain() const { return text.get(); }
};

// Returns what the query does to merged records, in the order in which it is applied.
std::vector<std::string> operator_names(const Query& query);

// Start of the runs of a merge.
struct FileStart {
  Header header;
  // Line that determines the columns: the header or, without a header, a record.
  std::string columns_line;
};

// Immutable. `options` must outlive it; returned operators point into it.
class MergeFormat {
 public:
  // `has_streams` tells that some run is compressed or a pipe, and `num_runs` how many there are.
  MergeFormat(const Options& options, FileStart start, bool has_streams, std::size_t num_runs);
  MergeFormat(const MergeFormat&) = delete;
  MergeFormat& operator=(const MergeFormat&) = delete;

  const KeyEncoding& encoding() const { return encoding_; }  // of the runs
  TextLayout text() const { return text_->layout(); }        // of variable-length records
  // Return the line of column names of the runs, which may be empty, and everything before the
  // records of the output.
  const std::string& header() const { return header_; }
  const std::string& output_header() const { return output_header_; }

  std::string description() const;  // of the records, human-readable
  bool has_streams() const { return has_streams_; }
  // True if runs are read from start to end, and count bytes instead of records.
  bool is_sequential() const { return has_streams_ || options_.text; }
  std::uint32_t record_bytes() const { return is_sequential() ? 1 : options_.record.record_bytes; }
  std::uint32_t output_bytes() const { return is_sequential() ? 1 : output_schema_.record_bytes; }
  // True if a line can be found by search: not in a stream, in CSV or in pairs.
  bool finds_lines() const { return options_.text->kind == TextKind::lines && !has_streams_; }

  // Returns the operators of a last pass over `num_runs` runs.
  PassOperators operators(std::size_t num_runs) const;
  // Returns the operators of an intermediate pass over `num_runs` runs. Set operations are
  // associative, so intermediate passes apply them; but subtrahends, which a pass without the last
  // run has only, are merged.
  PassOperators intermediate_operators(std::size_t num_runs, bool has_last_run) const;

  // Returns the order of a pass's output by which it is verified.
  OutputOrder order(const PassOperators& operators, bool is_last) const;

 private:
  void select_columns(const TextSelection& selection);

  const Options& options_;
  bool has_streams_;
  std::string preamble_;  // text before the line of column names in the output
  std::string columns_line_, header_, output_header_;
  std::optional<TextEncoding> text_;
  KeyEncoding encoding_;
  Schema output_schema_;
  std::optional<TextEncoding> output_text_;  // of records that are selected columns
  std::optional<KeyEncoding> output_encoding_;
};

}  // namespace corank
