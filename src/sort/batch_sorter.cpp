#include "sort/batch_sorter.hpp"

#include <cassert>
#include <cstdint>

#include "corank/error.hpp"

namespace corank {

SortedBlock BatchSorter::sort(std::span<const WorkUnit> blocks, std::span<std::byte> out,
                              std::span<std::byte> scratch, const Visit& visit) {
  assert(!blocks.empty());
  if (blocks.size() == 1) {
    const SortedBlock sorted = sorter_.sort(blocks.front().segments, out);
    visit(blocks.front(), sorter_);
    return sorted;
  }
  assert(!keys_.are_refs() && scratch.size() >= out.size());
  sorted_.clear();
  std::uint64_t records = 0;
  for (const WorkUnit& block : blocks) {
    const SortedBlock sorted = sorter_.sort(block.segments, scratch.first(block.bytes));
    visit(block, sorter_);
    sorted_.push_back({sorted.bytes.data(), sorted.records, false});
    scratch = scratch.subspan(block.bytes);
    records += sorted.records;
  }
  assert(records * keys_.record_bytes() == out.size());
  if (!merger_) merger_ = make_tile_merger(keys_, output_to_rest(out.size()));
  if (!merger_->merge(sorted_, out.data())) throw Corrupted("a sorted block is out of order");
  return {out, records};
}

}  // namespace corank
