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
  std::uint64_t records = 0;  // in between
  // Records that follow those, for which their place had no room: columns that they lacked add
  // bytes.
  std::vector<std::byte> spilled;
  std::uint64_t spilled_records = 0;
  ResolvedCounts resolved;     // of groups that do not reach out of this
  std::exception_ptr failure;  // instead of what would follow
  bool ended = false;          // nothing that follows goes out
  // The fingerprint of all merged records, less that of those in between, as they go out.
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

  // The rest is there where the unit was shaped.
  ResolvedCounts resolved;  // of groups that are neither the head nor the tail
  Group head;               // before the pieces, but may have begun before the unit
  Group tail;               // after them, but may go on after the unit; none if it is the head
  // The same of set operations.
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
