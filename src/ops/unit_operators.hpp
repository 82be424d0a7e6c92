// Applies an operator chain to units. `UnitOperators` collects the tiles of a unit, which any
// threads process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/merged_unit.hpp"
#include "ops/operator_chain.hpp"
#include "ops/tile_operators.hpp"
#include "run/tile_sink.hpp"
#include "run/work_unit.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

class UnitOperators final : public UnitSink {
 public:
  // With `sum` the records' order is checked and their fingerprint computed.
  UnitOperators(const OperatorChain& chain, const WorkUnit& unit, FingerprintSum sum)
      : chain_(chain), unit_(unit), sum_(sum) {}

  void begin(std::span<const std::span<std::byte>> places) override { begin(places, false); }
  // If the records are merged already, the places hold them.
  void begin(std::span<const std::span<std::byte>> places, bool hold_records);
  TileOperators& tile(std::size_t index) override { return tiles_[index]; }
  void add_segment(std::size_t tile, std::size_t segment, const std::byte* rows,
                   std::uint64_t count) override;

  // Returns the outputs of all tiles, which must be finished. Throws Corrupted if their records
  // were out of order.
  MergedUnit join();

 private:
  const OperatorChain& chain_;
  const WorkUnit& unit_;
  FingerprintSum sum_;
  std::vector<TileOperators> tiles_;
};

// Applies the chain in place to a unit that was merged to `merged`, on the caller's arena. Does not
// write to records that are emitted where they are.
MergedUnit apply_to_unit(const OperatorChain& chain, const WorkUnit& unit,
                         std::span<std::byte> merged, FingerprintSum sum);

}  // namespace corank
