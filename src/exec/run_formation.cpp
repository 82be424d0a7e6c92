#include "exec/run_formation.hpp"

#include <fmt/format.h>
#include <tbb/global_control.h>
#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "corank/error.hpp"
#include "util/messages.hpp"
#include "util/start_workers.hpp"

namespace corank {

namespace {

const std::byte* end_of(const SortedBlock& block) {
  return block.bytes.data() + block.bytes.size();
}

}  // namespace

RunFormation::RunFormation(const Pass& pass, const detail::KeyWords& keys,
                           std::uint64_t block_bytes, bool checks_blocks, PassTotals& totals)
    : pass_(pass),
      facts_(pass),
      keys_(keys),
      block_bytes_(block_bytes),
      checks_blocks_(checks_blocks),
      totals_(totals),
      cut_(pass, facts_, totals),
      sorters_([&keys] { return BlockSorter(keys); }) {
  assert(!pass.backend && pass.writers.empty());
  assert(!pass.sorter || (facts_.record_bytes != 0 && !pass.operators && !keys.are_refs()));
  if (pass.limit != std::numeric_limits<std::uint64_t>::max())
    cutoff_.emplace(facts_.layout, keys, pass.limit);
  if (cutoff_ || pass.operators) filter_.emplace(pass, cutoff_ ? &*cutoff_ : nullptr);
  assert(pass.plan.chunks > pass.plan.read_ahead + max_block_chunks + 1);
}

FormedRuns RunFormation::fill(std::span<std::byte> memory, std::uint64_t max_blocks,
                              std::uint64_t max_with_mapped) {
  assert(max_with_mapped != 0 && max_with_mapped <= max_blocks);
  // One of them waits for files, and others for a device.
  const unsigned workers = std::max(pass_.threads, pass_.sorter ? pass_.plan.tokens : 0) + 1;
  const tbb::global_control allowance(tbb::global_control::max_allowed_parallelism,
                                      allowed_parallelism(workers));
  start_workers(workers);
  std::deque<Block> blocks;
  std::uint64_t used_bytes = 0;
  const auto cut = tbb::make_filter<void, Block*>(
      tbb::filter_mode::serial_in_order, [&](tbb::flow_control& flow) -> Block* {
        Stopwatch cutting(totals_.cut, {pass_.trace, "cut", pass_.partition});
        for (;;) {
          if (pass_.stop.stop_requested()) throw Interrupted();
          if (pending_.unit.segments.empty()) pending_ = next_block();
          if (pending_.unit.segments.empty() || !take_in_place(blocks, max_with_mapped)) break;
          max_blocks = max_with_mapped;
        }
        if (pending_.unit.segments.empty() || blocks.size() >= max_blocks ||
            pending_.unit.bytes > memory.size() - used_bytes) {
          flow.stop();
          return nullptr;
        }
        Block& block = blocks.emplace_back(std::exchange(pending_, Block()));
        block.place = memory.subspan(used_bytes, block.unit.bytes);
        used_bytes += block.unit.bytes;
        return &block;
      });
  const auto sort_blocks = tbb::make_filter<Block*, void>(tbb::filter_mode::parallel,
                                                          [this](Block* block) { sort(*block); });
  tbb::task_arena arena(static_cast<int>(workers));
  arena.execute([&] { tbb::parallel_pipeline(pass_.plan.tokens, cut & sort_blocks); });
  if (blocks.empty() && !pending_.unit.segments.empty())
    throw_error(ErrorCode::memory,
                "{}: a record is too long for the memory budget, which can sort {} bytes at a "
                "time, not {}; use a larger {}",
                pass_.runs[pending_.unit.segments.front().chunk->run].path(), memory.size(),
                pending_.unit.bytes, Setting::memory);
  return join(blocks);
}

// Takes the pending block if it is sorted already, in one mapped input, and there are fewer than
// `max_blocks`. Returns false if it must be sorted.
bool RunFormation::take_in_place(std::deque<Block>& blocks, std::uint64_t max_blocks) {
  if (blocks.size() >= max_blocks) return false;
  std::vector<SortedBlock> sorted;
  for (const Segment& segment : pending_.unit.segments) {
    const Run& input = pass_.runs[segment.chunk->run];
    // Beside streams, inputs count bytes, and are no runs for a merge of fixed-size records.
    if (!input.is_mapped() || input.record_bytes() != pass_.format.counted_bytes() ||
        segment.chunk->run != pending_.unit.segments.front().chunk->run)
      return false;
    const std::optional<SortedBlock> found = sorters_.local().in_place(segment);
    const std::byte* const mapped = input.in_place(0);
    // A last record that lacks its terminator was copied.
    if (!found || found->bytes.data() < mapped || found->bytes.data() >= mapped + input.bytes())
      return false;
    if (!sorted.empty() && !continues(sorted.back(), *found)) return false;
    sorted.push_back(*found);
  }
  for (std::size_t i = 0; i < sorted.size(); ++i)
    add_in_place(sorted[i], pending_.unit.segments[i], blocks);
  pass_.progress.add(pending_.unit.bytes);
  pending_ = Block();
  return true;
}

// Returns whether `next` begins where `block` ends, in memory and in order.
bool RunFormation::continues(const SortedBlock& block, const SortedBlock& next) const {
  return end_of(block) == next.bytes.data() && !keys_.less(first_of(next), last_of(block));
}

// Adds a block that lies in a mapped input, or extends the last block by it if it can.
void RunFormation::add_in_place(const SortedBlock& sorted, const Segment& segment,
                                std::deque<Block>& blocks) {
  const std::uint32_t input = segment.chunk->run;
  if (blocks.empty() || blocks.back().input != input || !continues(blocks.back().sorted, sorted)) {
    Block& block = blocks.emplace_back();
    block.input = input;
    block.sorted = sorted;
    block.fingerprint = sum_of(segment);
    return;
  }
  blocks.back().fingerprint += sum_of(segment);
  SortedBlock& before = blocks.back().sorted;
  before.bytes = {before.bytes.data(), before.bytes.size() + sorted.bytes.size()};
  before.records += sorted.records;
  before.last_ref = sorted.last_ref;
}

// Returns the runs that the blocks make. Neighbours in memory that are in order are one run.
FormedRuns RunFormation::join(const std::deque<Block>& blocks) {
  FormedRuns formed;
  const Block* before = nullptr;
  for (const Block& block : blocks) {
    formed.records += block.sorted.records;
    formed.fingerprint += block.fingerprint;
    if (before && !before->input && !block.input &&
        !keys_.less(first_of(block.sorted), last_of(before->sorted))) {
      std::span<const std::byte>& run = formed.runs.back().bytes;
      assert(end_of(before->sorted) == block.sorted.bytes.data());
      run = {run.data(), run.size() + block.sorted.bytes.size()};
    } else {
      formed.runs.push_back({block.sorted.bytes, block.input});
    }
    before = &block;
  }
  fingerprint_ += formed.fingerprint;
  records_ += formed.records;
  return formed;
}

void RunFormation::finish() {
  assert(pending_.unit.segments.empty());
  std::uint64_t records = 0, read = fingerprint_read_;
  for (const Run& run : pass_.runs) records += run.records();
  if (facts_.backend_reads && records != records_)
    throw Corrupted(fmt::format("{} of {} records were sorted", records_, records));
  for (std::uint32_t run = 0; run < pass_.runs.size(); ++run)
    read += cut_.source().fingerprint(run);
  if (filter_) read -= filter_->fingerprint_left_out();
  if (read != fingerprint_) throw Corrupted("the sorted records are not those that were read");
  cut_.add_to_totals();
}

ChunkRef RunFormation::next_chunk() {
  return filter_ ? filter_->next([this] { return read_chunk(); }) : read_chunk();
}

ChunkRef RunFormation::read_chunk() {
  for (; run_ < pass_.runs.size(); ++run_)
    if (ChunkRef chunk = cut_.source().next(run_)) return chunk;
  return nullptr;
}

// Returns whole chunks of together at most `block_bytes_`, or one larger chunk; at the end, none.
RunFormation::Block RunFormation::next_block() {
  Block block;
  while (block.unit.segments.size() < max_block_chunks) {
    if (!chunk_) chunk_ = next_chunk();
    if (!chunk_) break;
    const std::uint64_t bytes = bytes_of(facts_.layout, *chunk_, 0, chunk_->count).size();
    if (!block.unit.segments.empty() && block.unit.bytes + bytes > block_bytes_) break;
    const std::uint64_t count = chunk_->count;
    block.unit.segments.push_back({std::move(chunk_), 0, count});
    block.unit.bytes += bytes;
    block.unit.records += count;
  }
  return block;
}

void RunFormation::sort(Block& block) {
  {
    Stopwatch sorting(totals_.merge, {pass_.trace, "sort", pass_.partition});
    if (!sort_by_backend(block)) {
      BlockSorter& sorter = sorters_.local();
      for (const Segment& segment : block.unit.segments) block.fingerprint += sum_of(segment);
      block.sorted = sorter.sort(block.unit.segments, block.place);
      if (pass_.fingerprint && checks_blocks_)
        block.fingerprint = records_fingerprint(pass_.fingerprint, facts_.layout, block.place);
      if (cutoff_)
        cutoff_->add(block.sorted.records, [&](std::uint64_t i) { return sorter.row(i); });
    }
  }
  block.unit.segments.clear();  // chunks are free for reading again
  pass_.progress.add(block.unit.bytes);
}

// Returns false if the CPU must sort the block.
bool RunFormation::sort_by_backend(Block& block) {
  if (!pass_.sorter) return false;
  const std::optional<std::uint64_t> sum = pass_.sorter->sort(block.unit, block.place.data());
  if (!sum) return false;
  block.sorted = {block.place, block.unit.records};
  block.fingerprint = *sum;
  if (facts_.backend_reads) fingerprint_read_ += *sum;
  return true;
}

// Returns the fingerprint of the segment, which holds a whole chunk, as it was read. Counts it as
// read if the backend was to compute it.
std::uint64_t RunFormation::sum_of(const Segment& segment) {
  if (!facts_.backend_reads) return segment.chunk->fingerprint.value_or(0);
  const std::uint64_t sum = pass_.fingerprint(
      bytes_of(facts_.layout, *segment.chunk, segment.first, segment.count), facts_.record_bytes);
  fingerprint_read_ += sum;
  return sum;
}

const std::byte* RunFormation::first_of(const SortedBlock& block) const {
  return keys_.are_refs() ? reinterpret_cast<const std::byte*>(&block.first_ref)
                          : block.bytes.data();
}

const std::byte* RunFormation::last_of(const SortedBlock& block) const {
  return keys_.are_refs() ? reinterpret_cast<const std::byte*>(&block.last_ref)
                          : block.bytes.data() + block.bytes.size() - keys_.record_bytes();
}

}  // namespace corank
