// Forms sorted runs in memory: the first pass of a sort.
//
// The pass has neither backend nor writers. Its sorter, if it has one, sorts the blocks; what that
// leaves is sorted on the CPU. Its operators, if any, and its limit leave records out before they
// are sorted; see ChunkFilter. Its runs are read one after another, in blocks of whole chunks.
// Threads sort batches of blocks into memory of the caller, in the order of the input: each block
// in L2, then all blocks of the batch by a merge. Sorted batches are fewer than blocks, so that the
// merge of all of them, which costs more a record the more runs there are, costs less than it
// saves. One thread calls fill() until it returns no run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "exec/chunk_filter.hpp"
#include "exec/cut_stage.hpp"
#include "exec/pass.hpp"
#include "exec/pass_facts.hpp"
#include "merge/row_span.hpp"
#include "merge/tile_merger.hpp"
#include "plan/sort_memory.hpp"
#include "sort/block_sorter.hpp"
#include "sort/cutoff.hpp"
#include "util/buffer_pool.hpp"

namespace corank {

struct FormedRun {
  std::span<const std::byte> bytes;
  std::optional<std::uint32_t> input;  // the mapped input that it is part of; else it is in memory
  // Sum of its records as they were read, or as they are in the run; 0 unless they are verified.
  std::uint64_t fingerprint;
};

// Position in the inputs of a pass: an input, and a byte of its file.
struct InputPosition {
  std::uint32_t input = 0;
  std::uint64_t offset = 0;
};

// Sorted runs. A stable merge of them in this order is the stable sort of their records.
struct FormedRuns {
  std::vector<FormedRun> runs;
  std::uint64_t records = 0;
  // Keeps what a device sorted pinned, for merges by a device.
  std::vector<std::shared_ptr<void>> pinned;
};

class RunFormation {
 public:
  // Begins to read. The arguments must outlive the formation. Blocks have about `block_bytes`, and
  // batches up to `batch_blocks` of them: 1 if a device sorts them, or if records vary in length.
  // `checks_batches` tells to fingerprint the sorted records, too, since a later merge may not read
  // all of them.
  RunFormation(const Pass& pass, const detail::KeyWords& keys, std::uint64_t block_bytes,
               std::uint64_t batch_blocks, bool checks_batches, PassTotals& totals);

  // Sorts the next records into `memory`, as many as it and `max` have room for. Batches that
  // follow one another in order are one run. Those of a device are runs of their own: they begin at
  // a page, as `memory` must, and are pinned one by one, while others are read. Chunks of mapped
  // inputs that are in order stay where they are and take no memory, if `max` allows. Throws Error
  // if no record fits.
  FormedRuns fill(std::span<std::byte> memory, const MaxBatches& max);
  // Returns whether there are no more records.
  bool at_end() const { return pending_.segments.empty(); }
  // Returns the position after the records that fill() has returned, if none are left out and the
  // inputs are plain files; meaningless at the end.
  InputPosition position() const {
    const Chunk& next = *pending_.segments.front().chunk;
    return {next.run, next.offset};
  }

  // Throws Corrupted unless all records that were read are in runs, or were left out. To be called
  // at the end. Without `checks_batches` that holds only if merges read what FormedRuns says.
  void finish();
  // Returns the number of records that were left out.
  std::uint64_t records_left_out() const { return filter_ ? filter_->records_left_out() : 0; }

 private:
  struct Batch {
    std::vector<WorkUnit> blocks;
    std::span<std::byte> place;          // where they are sorted to
    std::optional<std::uint32_t> input;  // the mapped input in which it is sorted already
    SortedBlock sorted{};
    std::uint64_t fingerprint = 0;
    std::shared_ptr<void> pinned = nullptr;
  };
  // Sorts on one thread, whose memory it reuses.
  struct Sorter {
    explicit Sorter(const detail::KeyWords& keys) : blocks(keys) {}

    BlockSorter blocks;
    std::unique_ptr<TileMerger> merger;  // null until a batch has several blocks
    std::vector<SortedSpan> sorted;      // blocks of the batch
  };
  // State of one call of fill().
  struct Filling {
    bool can_add_mapped() const { return batches.size() < max.with_mapped && mapped < max.mapped; }
    std::uint64_t max_batches() const { return mapped == 0 ? max.in_memory : max.with_mapped; }

    std::span<std::byte> memory;  // that is left
    const MaxBatches& max;
    std::deque<Batch> batches{};
    std::uint64_t mapped = 0;  // batches that are part of a mapped input
    // Whether the memory has room for all inputs: then those that are in order stay mapped until
    // they are merged.
    bool keeps_mapped = false;
  };

  ChunkRef next_chunk();
  ChunkRef read_chunk();
  WorkUnit next_block();
  Batch* next_batch(Filling& filling);
  bool take_in_place(Filling& filling);
  bool continues(const SortedBlock& block, const SortedBlock& next) const;
  bool extends_last(const Filling& filling, const SortedBlock& block, std::uint32_t input) const;
  void add_in_place(const SortedBlock& sorted, const Segment& segment, Filling& filling);
  Sorter& sorter();
  void sort(Batch& batch);
  void sort_on_cpu(Batch& batch);
  bool sort_by_backend(Batch& batch);
  std::uint64_t sum_of(const Segment& segment);
  FormedRuns join(std::deque<Batch>& batches);
  const std::byte* first_of(const SortedBlock& block) const;
  const std::byte* last_of(const SortedBlock& block) const;

  const Pass& pass_;
  const PassFacts facts_;
  const detail::KeyWords& keys_;
  const unsigned workers_;  // of which one waits for files, and others may for a device
  const std::uint64_t block_bytes_, batch_blocks_;
  const bool checks_batches_;
  PassTotals& totals_;
  CutStage cut_;
  const PinMemory pin_;  // null if no device sorts
  // One a slot of the arena of fill(); null until it is needed.
  std::vector<std::unique_ptr<Sorter>> sorters_;
  std::optional<BufferPool> scratch_;  // for batches of several blocks
  std::optional<Cutoff> cutoff_;
  std::optional<ChunkFilter> filter_;
  std::uint32_t run_ = 0;
  ChunkRef chunk_;    // read, but in no block yet
  WorkUnit pending_;  // the block that fitted in no batch yet, or an empty one
  // Fingerprints of all runs, and of the input that is not fingerprinted when it is read.
  std::uint64_t fingerprint_ = 0;
  std::atomic<std::uint64_t> fingerprint_read_ = 0;
  std::uint64_t records_ = 0;  // in all runs
};

}  // namespace corank
