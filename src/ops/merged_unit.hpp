// The result of merging one work unit, which a backend returns to the pipeline. Groups that may
// cross the ends of a tile are kept apart, for the boundary merge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "format/rows.hpp"
#include "ops/carry.hpp"
#include "ops/set_operation.hpp"
#include "run/work_unit.hpp"
#include "verify/output_verifier.hpp"

namespace corank {

// Records of one run in the leading partial group of a tile, on which the group's records in the
// tiles before it decide.
struct LeadingRecords {
  SetPiece piece;
  std::span<std::byte> records;
};

// Output of an operator chain for the merged records of one tile.
struct TileOutput {
  // The leading and the trailing partial group, if the chain has groups. Unless `head_ends`, both
  // are one group, and there is no tail and no other output.
  Carry head, tail;
  bool head_ends = false;
  std::vector<LeadingRecords> head_pieces;  // of set operations: the records of `head`
  // Emitted records between the two partial groups. The memory of the tile before them is free.
  std::span<std::byte> between;
  std::uint64_t records = 0;        // number of records in `between`
  const std::byte* free = nullptr;  // where that memory begins; null if there is none
  // Emitted records after `between`, for which the memory of the merged records had no room.
  std::vector<std::byte> spilled;
  std::uint64_t spilled_records = 0;
  ResolvedCounts resolved;     // of groups other than the partial ones
  std::exception_ptr failure;  // error that replaces what would follow the output
  bool ended = false;          // no later record is emitted
  // Hash(merged) - hash(emitted): fingerprint of all merged records less that of the emitted ones
  // in `between` and `spilled`.
  std::uint64_t left_out = 0;
  RowCopy first,
      last;  // first and last merged row, unless head and tail suffice to check the order
};

// The merged records of one work unit, and the results of verification and operators.
struct MergedUnit {
  // Whole records that go to the output, in this order. They lie in the memory that the unit was
  // merged into, or in `apart`.
  std::vector<std::span<const std::byte>> pieces;
  std::vector<std::vector<std::byte>> apart;

  std::optional<UnitProof> proof;  // absent: the backend did not verify, and the caller must
  // Fingerprint of the input records, if the backend did not verify but was the first to read them.
  std::optional<std::uint64_t> read;

  // Output of an operator chain, if one was applied, in the order of the tiles. The boundary merge
  // makes the pieces from it.
  std::vector<TileOutput> tiles;
};

}  // namespace corank
