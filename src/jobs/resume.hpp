// Finds the position at which a merge resumes a partial output: in the output and in the runs.
//
// One function for each kind of output. Each reads the end of the partial output and probes the
// runs by binary search. Ranks and positions count records of fixed size, or bytes if the records
// are lines. Throws Error if a file cannot be read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corank/key.hpp"
#include "corank/options.hpp"
#include "run/run.hpp"

namespace corank {

// Position at which a merge resumes. The end of the partial output is merged again and compared
// with the partial output, not written again. Operators may have merged any number of records into
// few bytes, so they limit that end to a hundredth of the output.
struct Resumption {
  std::uint64_t kept_bytes = 0;    // valid prefix of the output: whole records
  std::uint64_t merged_bytes = 0;  // part of it that is not merged again
  std::uint64_t rank = 0;          // in the merged input: first record that is merged again
  std::vector<std::uint64_t> cut;  // position of `rank` in each run; empty unless lines
};

// Returns where to resume an output that has one record of `output_bytes` for each input record.
Resumption resume_at_rank(std::uint64_t left_bytes, std::uint32_t output_bytes);

// Fields that the output keeps of each record, by which its keys are found in the runs.
struct Selection {
  const Schema& record;                      // of the runs
  const std::vector<std::uint32_t>& fields;  // Query::select; empty: all
  const Schema& output;
  // The leading key fields that the output keeps, as fields of `record` and of `output`.
  std::vector<KeyField> keys, output_keys;
};

// Returns the leading key fields that `select` keeps, up to the first that it drops, as fields of
// the output.
std::vector<KeyField> selected_keys(const std::vector<KeyField>& keys,
                                    const std::vector<std::uint32_t>& select);

// Returns where to resume any other output of fixed-size records: at the first record of a group,
// in the output and in the runs. Returns nothing if no run has the group's key.
std::optional<Resumption> resume_at_key(const Run& left, const Selection& selection,
                                        std::span<const Run> runs);

// Returns where to resume an output of unchanged lines after `header`: at the first line of a
// group. Returns nothing if no run has its key or the output has another header. `shaped`:
// operators may drop lines.
std::optional<Resumption> resume_at_line(const Run& left, const TextLayout& text,
                                         std::string_view header, bool shaped,
                                         std::span<const Run> runs);

// Returns where to resume an output of selected columns: such lines cannot be found in the runs, so
// everything is merged again, and the partial output only compared.
Resumption resume_from_start(const Run& left, const TextLayout& text);

// Returns how many runs end without a terminator; the merge adds one byte to each.
std::uint64_t missing_terminators(std::span<const Run> runs, const TextLayout& text);

// Returns all that determines the bytes of the output, as text to be hashed: the options and the
// identities of the runs. `runs` are already cut to the range.
std::string output_description(const Options& options, const Compression& compression,
                               const KeyEncoding& encoding, std::string_view header,
                               std::span<const Run> runs);

}  // namespace corank
