// Record format of one merge: how records are read, ordered, combined and written, as far as it
// follows from the options and the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "corank/options.hpp"
#include "format/record_format.hpp"
#include "ops/operator_chain.hpp"
#include "run/header.hpp"
#include "verify/output_verifier.hpp"

namespace corank {

// The operators of one pass; null if every record is emitted as it is.
using PassOperators = std::unique_ptr<const OperatorChain>;

// Returns what the query does to merged records, in the order in which it is applied.
std::vector<std::string> operator_names(const Query& query);

// Start of the runs of a merge.
struct FileStart {
  Header header;
  // Line that determines the columns: the header or, without a header, a record.
  std::string columns_line;
  bool are_indexed = false;  // the runs know where records start; see Run::start_before()
};
// Removes the headers from the runs, and returns the common header and the line that determines the
// columns. `format` finds records and columns. `are_sorted` tells whether the runs must be in
// order.
FileStart read_start(std::vector<Run>& runs, const RecordFormat& format, const Options& options,
                     bool are_sorted = true);

// Immutable. `options` must outlive it; returned operators point into it.
class MergeFormat {
 public:
  // `has_streams` tells that some run is compressed or a pipe.
  MergeFormat(const Options& options, FileStart start, bool has_streams);
  MergeFormat(const MergeFormat&) = delete;
  MergeFormat& operator=(const MergeFormat&) = delete;

  // Return the format of the runs; their format where records are not checked again, in later
  // passes of a sort and in outputs; and the format of the output.
  const RecordFormat& input() const { return *input_; }
  const RecordFormat& checked() const { return checked_ ? *checked_ : *input_; }
  const RecordFormat& output() const { return projection_ ? projection_->output() : *input_; }
  // Returns the projection of the output; null if it has whole records.
  const Projection* projection() const { return projection_.get(); }
  // Return the line of column names of the runs, which may be empty, and everything before the
  // records of the output.
  const std::string& header() const { return header_; }
  const std::string& output_header() const { return output_header_; }

  bool has_streams() const { return has_streams_; }
  // True if positions in runs are counted in bytes instead of records; such runs are read from
  // start to end.
  bool counts_bytes() const { return has_streams_ || !input_->traits().has_fixed_size; }
  std::uint32_t record_bytes() const { return counts_bytes() ? 1 : input_->record_bytes(); }
  std::uint32_t output_bytes() const { return counts_bytes() ? 1 : output().record_bytes(); }
  // True if keys can be found in the runs by search.
  bool can_search() const { return (input_->traits().can_search || are_indexed_) && !has_streams_; }

  // Returns the operators of a last pass over `num_runs` runs.
  PassOperators operators(std::size_t num_runs) const;
  // Returns the bounds and the filter of a sort, which are applied to records as they are read.
  PassOperators reading_operators() const;
  // Returns how many of the smallest results of load_operators() the output may have; the max value
  // if it may have all of them.
  std::uint64_t load_limit() const;
  // Returns the operators of a pass over a part of these records. They drop or combine what the
  // last pass would drop or combine, and may be applied again.
  PassOperators load_operators() const;
  // Returns the operators of the last pass over these records.
  PassOperators operators_of_sort() const;
  // Returns the operators of an intermediate pass over `num_runs` runs. Set operations are
  // associative, so intermediate passes apply them; but subtrahends, which a pass without the last
  // run has only, are merged.
  PassOperators intermediate_operators(std::size_t num_runs, bool has_last_run) const;

  // Returns the order of a pass's output by which it is verified.
  OutputOrder order(const PassOperators& operators, bool is_last) const;

 private:
  PassOperators make_operators(const Query& query, bool within_bounds, std::size_t num_runs) const;

  const Options& options_;
  bool has_streams_, are_indexed_;
  std::string header_, output_header_;
  std::unique_ptr<const RecordFormat> input_, checked_;
  std::unique_ptr<const Projection> projection_;
};

}  // namespace corank
