// Cuts a merge into blocks that stay in the caches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "corank/algorithm/multiway_merge.hpp"
#include "merge/record_sort.hpp"
#include "merge/row_span.hpp"

namespace corank {

// Of every run each `step`-th record is a sample, of each run from another one on; a block ends at
// each `block_samples`-th sample in the order of the merge. So how many records of a run are in a
// block is known but for those between two of its samples. These are sought in all runs at the same
// time, lest each search wait for memory of its own. Where a good part of a block has the same key,
// as many samples tell, that part is a block of its own: it is merged by copying it, run by run.
class BlockPartitioner {
 public:
  // `keys` and `sorter` must outlive the cutter.
  BlockPartitioner(const detail::KeyWords& keys, RecordSorter& sorter)
      : keys_(keys), sorter_(sorter) {}

  // Cuts `runs`, which stay where they are until the last block is cut, into blocks of about
  // `block_records` records. Runs that are out of order are cut anywhere.
  void begin(std::span<const Stretch> runs, std::uint64_t block_records);

  // The next block: of each run a part, maybe an empty one. False after the last.
  bool next(std::vector<Stretch>& block);

 private:
  std::size_t find_equal(std::size_t limit);
  std::uint64_t first_sample(std::uint64_t run) const;
  void take_samples(std::size_t end);
  void seek(const RecordRef& splitter);

  const detail::KeyWords& keys_;
  RecordSorter& sorter_;
  std::span<const Stretch> runs_;
  std::uint64_t step_ = 0;           // records to a sample
  std::uint64_t block_samples_ = 0;  // samples to a block
  std::vector<RecordRef> samples_;   // in the order of the merge
  std::size_t next_sample_ = 0;
  std::size_t equal_end_ = 0;  // up to this sample their keys, and those in between, are equal
  bool done_ = true;
  // Of each run, in records: where the block begins, how many of the samples up to its end stand
  // for, where it ends.
  std::vector<std::uint64_t> begins_, sampled_, ends_;
  std::vector<const std::byte*> probes_;
  std::vector<std::uint64_t> words_;
};

}  // namespace corank
