// Applies an operator chain to fixed-size merged records, tile by tile, while they are in cache.
// One thread processes a tile; `UnitOperators` collects the tiles of a unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "ops/filter.hpp"
#include "ops/operator_chain.hpp"
#include "ops/set_operation.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// Applies the chain to the records of one tile in place. The groups at its ends may continue in its
// neighbours, so they are kept apart instead of emitted, and the output leaves room for them.
class TileOperators {
 public:
  // The tile is merged to `place`. With `sum` the records' order is checked and their fingerprint
  // computed.
  TileOperators(const OperatorChain& shape, std::byte* place, FingerprintSum sum);

  // For set operations: adds `count` > 0 records of a run that is merged into the tile; see
  // GroupRunCounter. Must precede all other calls. `skipped` records of the tile's first group
  // precede the tile.
  void add_run(std::uint32_t run, const std::byte* records, std::uint64_t count);
  void skip(std::uint64_t skipped) { merged_of_open_ = skipped; }

  // Takes the tile's next `count` records, in order. Returns the lowest address that the next ones
  // may be merged to, which is most likely in cache.
  std::byte* take(std::byte* records, std::uint64_t count);
  // Ends the tile.
  void finish();

 private:
  friend class UnitOperators;
  struct SetBlock;

  void take_block(std::byte* records, std::uint64_t count);
  void sum_put();
  // The first key words must differ, unless they `may_tie`.
  void take_groups(std::byte* records, std::uint64_t count, bool may_tie);
  void take_singles(std::byte* records, std::uint64_t count);
  void take_sets(std::byte* records, std::uint64_t count, bool may_tie,
                 const Filter::Mask* fulfils);
  void take_inner_sets(SetBlock& block, std::uint64_t first_group);
  void take_outer_set(SetBlock& block, std::uint64_t group, bool continues);
  std::uint64_t find_groups(const std::byte* records, std::uint64_t count, bool may_tie,
                            bool begins_within, std::uint16_t* starts) const;
  void close_group();
  void put_groups(std::byte* records, std::span<const std::uint16_t> starts);
  void put_resolved(const std::byte* records, std::span<std::uint16_t> which,
                    const Filter::Mask& dropped);
  void put(const std::byte* records, std::span<const std::uint16_t> which);
  void put_stretch(const std::byte* records, std::uint64_t count);

  const OperatorChain* operators_;
  std::byte* const place_;
  std::byte* begin_;  // start of the output
  std::byte* end_;
  FingerprintSum sum_;
  std::uint64_t fingerprint_ = 0;
  std::uint64_t block_sum_ = 0;  // fingerprint of the current block, as merged
  bool descends_ = false;
  std::vector<std::byte> first_, last_;  // first and last merged record
  std::byte* summed_;                    // end of the output that is hashed
  std::uint64_t outgoing_ = 0;           // fingerprint of the output
  Group head_, open_;
  bool in_head_ = true;
  ResolvedCounts resolved_;
  std::exception_ptr failure_;  // error that replaces what would follow the output
  // Set operations only. The rows of the leading partial group stay at `place`, before the output.
  GroupRunCounter runs_;
  std::vector<std::byte> head_record_;
  std::vector<SetPiece> head_pieces_;
  OpenSet open_set_;
  std::uint64_t merged_of_open_ = 0;  // records of the open group, earlier tiles included
  Group work_;
  std::vector<Filter::Mask> masks_;
  std::vector<std::byte> selected_;
};

}  // namespace corank
