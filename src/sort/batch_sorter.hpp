// Sorts batches of blocks, stably: each block in L2, then all blocks of the batch by a merge.
//
// Sorted batches are fewer than blocks, so that the merge of all of them, which costs more a record
// the more runs there are, costs less than it saves. Not thread-safe; a sorter reuses its memory,
// and `keys` must outlive it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "merge/row_span.hpp"
#include "merge/tile_merger.hpp"
#include "run/work_unit.hpp"
#include "sort/block_sorter.hpp"

namespace corank {

class BatchSorter {
 public:
  // Called for each block once it is sorted, while it is in cache, and the sorter tells its rows.
  using Visit = std::function<void(const WorkUnit& block, const BlockSorter& sorter)>;

  explicit BatchSorter(const detail::KeyWords& keys) : keys_(keys), sorter_(keys) {}

  // Sorts the records of the blocks, as if they were one sequence, into `out`, which must have
  // exactly their size. Several blocks need as much `scratch` memory, and records of a fixed size.
  SortedBlock sort(std::span<const WorkUnit> blocks, std::span<std::byte> out,
                   std::span<std::byte> scratch, const Visit& visit);
  // Returns the segment as a block that lies where it is; nothing if its records are out of order.
  std::optional<SortedBlock> in_place(const Segment& segment) const {
    return sorter_.in_place(segment);
  }

 private:
  const detail::KeyWords& keys_;
  BlockSorter sorter_;
  std::unique_ptr<TileMerger> merger_;  // null until a batch has several blocks
  std::vector<SortedSpan> sorted_;      // blocks of the batch
};

}  // namespace corank
