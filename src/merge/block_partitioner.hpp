// Partitions a merge of sorted runs into blocks that fit in cache.
//
// Splitters come from regular sampling: every `step`-th record of each run is a sample, and every
// `block_samples`-th sample, in merge order, is a splitter. Offsets count records. Not thread-safe;
// each thread needs its own partitioner.
//
// Source: Shi and Schaeffer, "Parallel sorting by regular sampling" (1992).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "corank/algorithm/multiway_merge.hpp"
#include "merge/record_sort.hpp"
#include "merge/row_span.hpp"

namespace corank {

// `BlockPartitioner` finds each splitter's position in every run. The samples before a splitter
// give that position to within one step. Binary searches find it exactly, in all runs in lockstep,
// so that their cache misses overlap. A long group of equal keys becomes a block of its own, which
// is merged by copying it run by run.
class BlockPartitioner {
 public:
  // `keys` and `sorter` must outlive the partitioner.
  BlockPartitioner(const detail::KeyWords& keys, RecordSorter& sorter)
      : keys_(keys), sorter_(sorter) {}

  // Starts partitioning `runs` into blocks of about `block_records` records. The runs must stay in
  // place until the last block is cut. Unsorted runs are cut at arbitrary positions.
  void begin(std::span<const SortedSpan> runs, std::uint64_t block_records);

  // Sets `block` to one row span per run, which may be empty. Returns false after the last block.
  bool next(std::vector<SortedSpan>& block);

 private:
  std::size_t find_equal(std::size_t limit);
  std::uint64_t first_sample(std::uint64_t run) const;
  void take_samples(std::size_t end);
  void seek(const RecordRef& splitter);

  const detail::KeyWords& keys_;
  RecordSorter& sorter_;
  std::span<const SortedSpan> runs_;
  std::uint64_t step_ = 0;           // records per sample
  std::uint64_t block_samples_ = 0;  // samples per block
  std::vector<RecordRef> samples_;   // in merge order
  std::size_t next_sample_ = 0;
  std::size_t equal_end_ = 0;  // samples up to here, and the records between them, have equal keys
  bool done_ = true;
  // Per run, in records: the block's begin, the records that the samples before its end account
  // for, and its end.
  std::vector<std::uint64_t> begins_, sampled_, ends_;
  std::vector<const std::byte*> probes_;
  std::vector<std::uint64_t> words_;
};

}  // namespace corank
