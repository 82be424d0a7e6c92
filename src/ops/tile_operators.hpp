// What becomes of merged records, tile by tile, while they are in cache.
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

// Shapes the merged records of one tile in place. The groups at its ends may reach into its
// neighbours, so they are not put out but kept apart, and there is room for them.
class TileOperators {
 public:
  // The tile is merged to `place`. With `sum` the order of the merged records is looked at, and
  // their fingerprint is taken.
  TileOperators(const OperatorChain& shape, std::byte* place, FingerprintSum sum);

  // Where set operations find what the runs have of the tile's groups, before all else: `count`
  // records of it, more than 0, as of GroupRunCounter. The tile begins after the first `skipped`
  // records of its first group in there.
  void add_run(std::uint32_t run, const std::byte* records, std::uint64_t count);
  void skip(std::uint64_t skipped) { merged_of_open_ = skipped; }

  // The tile's next `count` records, in order. Returns where the next may be merged to at the
  // earliest, so that they are in cache still.
  std::byte* take(std::byte* records, std::uint64_t count);
  // There are no more.
  void finish();

 private:
  friend class UnitOperators;

  void take_block(std::byte* records, std::uint64_t count);
  void sum_put();
  // Unless they `may_tie`, the first words of the records' keys differ.
  void take_groups(std::byte* records, std::uint64_t count, bool may_tie);
  void take_singles(std::byte* records, std::uint64_t count);
  void take_sets(std::byte* records, std::uint64_t count, bool may_tie,
                 const Filter::Mask* fulfils);
  std::uint64_t find_groups(const std::byte* records, std::uint64_t count, bool may_tie,
                            bool begins_within, std::uint16_t* starts) const;
  void close_group();
  void put_groups(std::byte* records, std::span<const std::uint16_t> starts);
  void put(const std::byte* records, std::span<const std::uint16_t> which);
  void put_stretch(const std::byte* records, std::uint64_t count);

  const OperatorChain* operators_;
  std::byte* const place_;
  std::byte* begin_;  // of what was put out
  std::byte* end_;
  FingerprintSum sum_;
  std::uint64_t fingerprint_ = 0;
  std::uint64_t block_sum_ = 0;  // of the records taken last, as they were merged
  bool descends_ = false;
  std::vector<std::byte> first_, last_;  // of the merged records
  std::byte* summed_;                    // end of what is in:
  std::uint64_t outgoing_ = 0;           // the fingerprint of what was put out
  Group head_, open_;
  bool in_head_ = true;
  std::exception_ptr failure_;  // of what follows what was put out
  // Of set operations, whose head stays in the tile's place, before what was put out.
  GroupRunCounter runs_;
  std::vector<std::byte> head_record_;
  std::vector<SetPiece> head_pieces_;
  OpenSet open_set_;
  std::uint64_t merged_of_open_ = 0;  // its records, of all that the runs here have
  Group work_;
  std::vector<Filter::Mask> masks_;
  std::vector<std::byte> selected_;
};

}  // namespace corank
