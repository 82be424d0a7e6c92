// What a backend makes of a work unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "format/work_unit.hpp"
#include "ops/operator_chain.hpp"
#include "ops/set_operation.hpp"

namespace corank {

// Records of the group that a tile or a unit begins with, of which the tiles before it decide.
struct LeadingGroup {
  std::uint32_t run;
  std::span<std::byte> records;
};

// The same of records of variable length, and how many they are.
struct TextLeadingGroup {
  SetPiece piece;
  std::span<std::byte> records;
};

// What merged records of variable length, a part of a unit, have come to.
struct TextOperatorOutput {
  // What the groups at its ends have come to, which may reach into its neighbours; no tail if they
  // are one, none of them where equal keys mean nothing. Of a set operation the head is one of its
  // group's records, and the tail is in tail_set.
  std::vector<std::byte> head, tail;
  std::vector<TextLeadingGroup> head_pieces;
  OpenSet tail_set;
  std::span<const std::byte> between;
  std::uint64_t records = 0;   // in between
  std::exception_ptr failure;  // instead of what would follow
  bool ended = false;          // nothing that follows goes out
  // The fingerprint of all merged records, less that of those in between, as they go out.
  std::uint64_t left_out = 0;
  std::vector<std::byte> first, last;  // of all merged records, unless head and tail tell enough
};

// What was made of a work unit.
struct MergedUnit {
  // Whole records, which in this order go to the output, in the memory that it was merged into.
  std::vector<std::span<const std::byte>> pieces;

  std::optional<UnitProof> look;  // none: the caller has yet to look
  // Where nothing has looked at it: the fingerprint of the work unit's records, if reading them was
  // the first that was done with them.
  std::optional<std::uint64_t> read;

  // The rest is there where the unit was shaped.
  Group head;  // before the pieces, but may have begun before the unit
  Group tail;  // after them, but may go on after the unit; none if it is the head
  // The same of set operations.
  std::vector<std::byte> head_record;
  std::vector<LeadingGroup> head_pieces;
  OpenSet tail_set;
  std::exception_ptr failure;                // instead of what would follow
  std::vector<std::byte> edges;              // its first and its last record as they were merged
  std::optional<std::uint64_t> fingerprint;  // of all its records as they were merged
  std::uint64_t outgoing_fingerprint = 0;    // the same of the pieces, where that is there

  // Of records of variable length that were shaped instead of that, and instead of pieces.
  std::vector<TextOperatorOutput> shaped;
  std::vector<std::vector<std::byte>> apart;  // pieces that stand on their own
};

}  // namespace corank
