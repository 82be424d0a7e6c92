// The result of merging one work unit, which a backend returns to the pipeline. Groups that may
// cross the unit's ends are kept apart, for the boundary merge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "format/resolution.hpp"
#include "format/work_unit.hpp"
#include "ops/operator_chain.hpp"
#include "ops/set_operation.hpp"

namespace corank {

// Records of one run in the leading partial group of a tile or unit, which the tiles before it
// decide on.
struct LeadingGroup {
  std::uint32_t run;
  std::span<std::byte> records;
};

// Variable-length records of one run in a leading partial group, their run, and their number.
struct TextLeadingGroup {
  SetPiece piece;
  std::span<std::byte> records;
};

// Output of an operator chain for a part of a unit of variable-length records.
struct TextOperatorOutput {
  // Leading and trailing partial group, as the record that remains of each. If both are one group
  // there is no tail; without grouping there is neither. For set operations `head` is a record of
  // its group, and `tail_set` replaces `tail`.
  std::vector<std::byte> head, tail;
  std::vector<TextLeadingGroup> head_pieces;
  OpenSet tail_set;
  // Emitted records between the two partial groups.
  std::span<const std::byte> between;
  std::uint64_t records = 0;  // number of records in `between`
  // Emitted records after `between`, for which the memory of the merged records had no room.
  // Columns that records lack make them longer.
  std::vector<std::byte> spilled;
  std::uint64_t spilled_records = 0;
  ResolvedCounts resolved;     // of groups that do not cross the ends of this part
  std::exception_ptr failure;  // error that replaces what would follow the output
  bool ended = false;          // no later record is emitted
  // Hash(merged) - hash(emitted): fingerprint of all merged records less that of the emitted ones
  // in `between` and `spilled`.
  std::uint64_t left_out = 0;
  std::vector<std::byte> first, last;  // first and last merged record, unless head and tail suffice
};

// The merged records of one work unit, and the results of verification and operators.
struct MergedUnit {
  // Whole records that go to the output, in this order. They lie in the memory that the unit was
  // merged into, or in `apart`.
  std::vector<std::span<const std::byte>> pieces;

  std::optional<UnitProof> look;  // absent: the backend did not verify, and the caller must
  // Fingerprint of the input records, if the backend did not verify but was the first to read them.
  std::optional<std::uint64_t> read;

  // The members below are set if an operator chain for fixed-size records was applied.
  ResolvedCounts resolved;  // of groups other than `head` and `tail`
  Group head;  // leading partial group, before the pieces; may have begun in an earlier unit
  Group tail;  // trailing partial group, after the pieces; may continue; empty if it is the head
  // Partial groups of a set operation: a record of the leading one, its rows, and the trailing one.
  std::vector<std::byte> head_record;
  std::vector<LeadingGroup> head_pieces;
  OpenSet tail_set;
  std::exception_ptr failure;                // error that replaces what would follow the pieces
  std::vector<std::byte> edges;              // first and last merged record, before operators
  std::optional<std::uint64_t> fingerprint;  // of all merged records, before operators
  std::uint64_t outgoing_fingerprint = 0;    // of the pieces; valid if `fingerprint` is present

  // Output of an operator chain for variable-length records, a part each. The boundary merge makes
  // the pieces from it.
  std::vector<TextOperatorOutput> shaped;
  std::vector<std::vector<std::byte>> apart;  // memory of pieces that are not in the merge's output
};

}  // namespace corank
