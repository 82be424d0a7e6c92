// Applies an operator chain to merged rows, tile by tile, while they are in cache. One thread
// processes a tile; `UnitOperators` collects the tiles of a unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/key_order.hpp"
#include "format/rows.hpp"
#include "ops/carry.hpp"
#include "ops/merged_unit.hpp"
#include "ops/operator_chain.hpp"
#include "ops/set_operation.hpp"
#include "run/tile_sink.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// Applies the chain to the rows of one tile. The groups at its ends may continue in its neighbours,
// so they are kept apart instead of emitted, and the output leaves room for them.
class TileOperators final : public TileSink {
 public:
  // Output goes to `place`. Records are merged there too, or lie there already: if prefix
  // references to them are taken, that is told by `holds_records`. With `sum` the order of the rows
  // is checked and their fingerprint computed.
  TileOperators(const OperatorChain& chain, std::span<std::byte> place, bool holds_records,
                FingerprintSum sum);

  // For set operations: adds `count` > 0 rows of a run that is merged into the tile; see
  // GroupRunCounter. Must precede all other calls. `skipped` records of the tile's first group
  // precede the tile.
  void add_run(std::uint32_t run, const std::byte* rows, std::uint64_t count);
  void skip(std::uint64_t skipped) { merged_of_carry_ = skipped; }

  std::byte* take(std::byte* rows, std::uint64_t count) override;
  void finish() override;
  // Returns the output, which is then gone. Throws Corrupted if rows were out of order.
  TileOutput take_output();

 private:
  struct SetBlock;

  void take_batch(std::byte* rows, std::uint64_t count);
  void check_order(const std::byte* rows, std::uint64_t count, const Neighbours& merged);
  void keep_within_bounds(std::byte*& rows, std::uint64_t& count);
  // The first key words must differ, unless they `may_tie`.
  void take_groups(std::byte* rows, std::uint64_t count, bool may_tie);
  void take_sets(const std::byte* rows, std::uint64_t count, bool may_tie, RowIndices counting);
  void take_inner_sets(SetBlock& block, std::uint64_t first_group);
  void take_outer_set(SetBlock& block, std::uint64_t group, bool continues);
  std::uint64_t find_groups(const std::byte* rows, std::uint64_t count, bool may_tie,
                            bool continues, std::uint16_t* starts);
  bool continues_carry(const std::byte* rows);
  void close_group();
  void emit_groups(std::byte* rows, std::uint64_t count, std::span<std::uint16_t> starts);
  void emit_reduced(const std::byte* rows, RowIndices starts);
  std::uint64_t reduce(std::byte* rows, RowIndices starts);
  void emit(const std::byte* rows, std::uint64_t count, std::span<std::uint16_t> which);
  void copy(const std::byte* rows, RowIndices which);
  void leave_out(const std::byte* rows, std::uint64_t count, RowIndices which);
  std::uint64_t fingerprint(const std::byte* rows, RowIndices which) const;

  const std::byte* row(const std::byte* rows, std::uint64_t i) const {
    return rows + i * chain_->layout().record_bytes;
  }

  const OperatorChain* chain_;
  std::byte* place_;
  std::uint32_t group_bytes_;  // size of the record that an open group may yet emit; 0: not known
  std::byte* begin_;           // start of the output
  TileMemory memory_;
  FingerprintSum sum_;
  bool hashes_all_ = false;  // the batch was hashed as a whole, before its rows changed
  bool descends_ = false;
  Carry carry_;  // the open group
  Carry work_;   // a group that lies in a batch
  bool in_head_ = true;
  GroupRunCounter runs_;               // of set operations only
  std::uint64_t merged_of_carry_ = 0;  // records of the open group, earlier tiles included
  TileOutput output_;
};

}  // namespace corank
