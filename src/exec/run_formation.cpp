#include "exec/run_formation.hpp"

#include <fmt/format.h>
#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "corank/error.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"
#include "util/worker_allowance.hpp"

namespace corank {

namespace {

const std::byte* end_of(const SortedBlock& block) {
  return block.bytes.data() + block.bytes.size();
}

}  // namespace

RunFormation::RunFormation(const Pass& pass, const detail::KeyWords& keys,
                           std::uint64_t block_bytes, std::uint64_t batch_blocks,
                           bool checks_batches, PassTotals& totals)
    : pass_(pass),
      facts_(pass),
      keys_(keys),
      workers_(std::max(pass_.threads, pass_.sorter ? pass_.plan.tokens : 0) + 1),
      block_bytes_(block_bytes),
      batch_blocks_(batch_blocks),
      checks_batches_(checks_batches),
      totals_(totals),
      cut_(pass, facts_, totals),
      pin_(pass.sorter ? pass.sorter->pin_memory() : nullptr),
      sorters_(workers_) {
  assert(!pass.backend && pass.writers.empty());
  assert(!pass.sorter || (facts_.record_bytes != 0 && !pass.operators && !keys.are_refs()));
  assert(batch_blocks == 1 || (batch_blocks > 1 && !pass.sorter && !keys.are_refs()));
  if (pass.limit != std::numeric_limits<std::uint64_t>::max())
    cutoff_.emplace(facts_.layout, keys, pass.limit);
  if (cutoff_ || pass.operators) filter_.emplace(pass, cutoff_ ? &*cutoff_ : nullptr);
  assert(pass.plan.chunks > pass.plan.read_ahead + max_block_chunks + 1);
  if (batch_blocks == 1) return;
  assert(pass.plan.chunks > pass.plan.read_ahead + max_block_chunks + batch_blocks);
  scratch_.emplace(round_up(batch_blocks * block_bytes, page_bytes()), workers_, nullptr,
                   BufferPool::Pages::huge);
}

FormedRuns RunFormation::fill(std::span<std::byte> memory, const MaxBatches& max) {
  assert(max.mapped != 0 && max.mapped <= max.with_mapped && max.with_mapped <= max.in_memory);
  const WorkerAllowance allowance(workers_);
  Filling filling{.memory = memory, .max = max};
  filling.keeps_mapped =
      std::ranges::none_of(pass_.runs, &Run::is_stream) && total_bytes(pass_.runs) <= memory.size();
  const auto cut = tbb::make_filter<void, Batch*>(
      tbb::filter_mode::serial_in_order, [&](tbb::flow_control& flow) {
        Stopwatch cutting(totals_.cut, {pass_.trace, "cut", pass_.partition});
        Batch* const batch = next_batch(filling);
        if (!batch) flow.stop();
        return batch;
      });
  const auto sort_batches = tbb::make_filter<Batch*, void>(tbb::filter_mode::parallel,
                                                           [this](Batch* batch) { sort(*batch); });
  tbb::task_arena arena(static_cast<int>(workers_));
  arena.execute([&] { tbb::parallel_pipeline(pass_.plan.tokens, cut & sort_batches); });
  if (filling.batches.empty() && !pending_.segments.empty())
    throw_error(ErrorCode::memory,
                "{}: a record is too long for the memory budget, which can sort {} bytes at a "
                "time, not {}; use a larger {}",
                pass_.runs[pending_.segments.front().chunk->run].path(), memory.size(),
                pending_.bytes, Setting::memory);
  return join(filling.batches);
}

// Returns the next batch that must be sorted, and takes its place from the memory; null if there is
// none, or no room. Adds it, and blocks that are sorted already, to the batches.
RunFormation::Batch* RunFormation::next_batch(Filling& filling) {
  Batch* batch = nullptr;
  std::uint64_t chunks = 0;  // of the batch
  do {
    if (pass_.stop.stop_requested()) throw Interrupted();
    if (pending_.segments.empty()) pending_ = next_block();
    if (pending_.segments.empty()) break;
    if (take_in_place(filling)) {
      if (batch) break;
      continue;
    }
    if (pending_.bytes > filling.memory.size()) break;
    if (!batch) {
      if (filling.batches.size() >= filling.max_batches()) break;
      batch = &filling.batches.emplace_back();
      batch->place = filling.memory.first(0);
    }
    batch->place = {batch->place.data(), batch->place.size() + pending_.bytes};
    filling.memory = filling.memory.subspan(
        pin_ ? std::min(round_up(pending_.bytes, page_bytes()), filling.memory.size())
             : pending_.bytes);
    chunks += pending_.segments.size();
    batch->blocks.push_back(std::exchange(pending_, WorkUnit()));
  } while (!batch || chunks < batch_blocks_);  // small files fill a block with many chunks
  return batch;
}

// Takes the pending block if it is sorted already, in one mapped input, and if that may be a batch.
// Returns false if it must be sorted.
bool RunFormation::take_in_place(Filling& filling) {
  std::vector<SortedBlock> sorted;
  for (const Segment& segment : pending_.segments) {
    const Run& input = pass_.runs[segment.chunk->run];
    // Beside streams, inputs count bytes, and are no runs for a merge of fixed-size records.
    if (!input.is_mapped() || input.record_bytes() != pass_.format.counted_bytes() ||
        segment.chunk->run != pending_.segments.front().chunk->run)
      return false;
    const std::optional<SortedBlock> found = sorter().blocks.in_place(segment);
    const std::byte* const mapped = input.in_place(0);
    // A last record that lacks its terminator was copied.
    if (!found || found->bytes.data() < mapped || found->bytes.data() >= mapped + input.bytes())
      return false;
    if (!sorted.empty() && !continues(sorted.back(), *found)) return false;
    sorted.push_back(*found);
  }
  if (!filling.can_add_mapped() &&
      !extends_last(filling, sorted.front(), pending_.segments.front().chunk->run))
    return false;
  for (std::size_t i = 0; i < sorted.size(); ++i)
    add_in_place(sorted[i], pending_.segments[i], filling);
  pass_.progress.add(pending_.bytes);
  pending_ = WorkUnit();
  return true;
}

// Returns whether `next` begins where `block` ends, in memory and in order.
bool RunFormation::continues(const SortedBlock& block, const SortedBlock& next) const {
  return end_of(block) == next.bytes.data() && !keys_.less(first_of(next), last_of(block));
}

// Returns whether the block of a mapped input continues the last batch.
bool RunFormation::extends_last(const Filling& filling, const SortedBlock& block,
                                std::uint32_t input) const {
  return !filling.batches.empty() && filling.batches.back().input == input &&
         continues(filling.batches.back().sorted, block);
}

// Adds a block that lies in a mapped input, or extends the last batch by it if it can.
void RunFormation::add_in_place(const SortedBlock& sorted, const Segment& segment,
                                Filling& filling) {
  std::deque<Batch>& batches = filling.batches;
  const std::uint32_t input = segment.chunk->run;
  segment.chunk->stays_mapped = filling.keeps_mapped;
  if (!extends_last(filling, sorted, input)) {
    Batch& batch = batches.emplace_back();
    ++filling.mapped;
    batch.input = input;
    batch.sorted = sorted;
    batch.fingerprint = sum_of(segment);
    return;
  }
  batches.back().fingerprint += sum_of(segment);
  SortedBlock& before = batches.back().sorted;
  before.bytes = {before.bytes.data(), before.bytes.size() + sorted.bytes.size()};
  before.records += sorted.records;
  before.last_ref = sorted.last_ref;
}

// Returns the runs that the batches make. Neighbours in memory that are in order are one run, but
// for those of a device, between which there may be a gap.
FormedRuns RunFormation::join(std::deque<Batch>& batches) {
  FormedRuns formed;
  const Batch* before = nullptr;
  for (Batch& batch : batches) {
    formed.records += batch.sorted.records;
    fingerprint_ += batch.fingerprint;
    if (batch.pinned) formed.pinned.push_back(std::move(batch.pinned));
    if (before && !before->input && !batch.input && !pin_ &&
        !keys_.less(first_of(batch.sorted), last_of(before->sorted))) {
      std::span<const std::byte>& run = formed.runs.back().bytes;
      assert(end_of(before->sorted) == batch.sorted.bytes.data());
      run = {run.data(), run.size() + batch.sorted.bytes.size()};
      formed.runs.back().fingerprint += batch.fingerprint;
    } else {
      formed.runs.push_back({batch.sorted.bytes, batch.input, batch.fingerprint});
    }
    before = &batch;
  }
  records_ += formed.records;
  return formed;
}

void RunFormation::finish() {
  assert(pending_.segments.empty());
  cut_.check_all_read();
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
WorkUnit RunFormation::next_block() {
  WorkUnit block;
  while (block.segments.size() < max_block_chunks) {
    if (!chunk_) chunk_ = next_chunk();
    if (!chunk_) break;
    const std::uint64_t bytes = bytes_of(facts_.layout, *chunk_, 0, chunk_->count).size();
    if (!block.segments.empty() && block.bytes + bytes > block_bytes_) break;
    const std::uint64_t count = chunk_->count;
    block.segments.push_back({std::move(chunk_), 0, count});
    block.bytes += bytes;
    block.records += count;
  }
  return block;
}

void RunFormation::sort(Batch& batch) {
  {
    Stopwatch sorting(totals_.merge, {pass_.trace, "sort", pass_.partition});
    // No other batch is in its pages.
    if (pin_) batch.pinned = pin_({batch.place.data(), round_up(batch.place.size(), page_bytes())});
    if (!sort_by_backend(batch)) sort_on_cpu(batch);
  }
  batch.blocks.clear();  // chunks are free for reading again
  pass_.progress.add(batch.place.size());
}

// Returns the sorter of this thread's slot in the arena. Over time, more threads enter an arena
// than it has slots, so sorters of slots take less memory than sorters of threads.
RunFormation::Sorter& RunFormation::sorter() {
  const int slot = tbb::this_task_arena::current_thread_index();
  assert(slot >= 0 && static_cast<std::size_t>(slot) < sorters_.size());
  auto& sorter = sorters_[static_cast<std::size_t>(slot)];
  if (!sorter) sorter = std::make_unique<Sorter>(keys_);
  return *sorter;
}

void RunFormation::sort_on_cpu(Batch& batch) {
  const bool merges = batch.blocks.size() > 1;
  const Buffer scratch = merges ? scratch_->lease() : Buffer();
  std::span<std::byte> room = merges ? scratch.bytes() : batch.place;
  auto& [blocks, merger, sorted] = sorter();
  sorted.clear();
  std::uint64_t records = 0;
  for (const WorkUnit& block : batch.blocks) {
    batch.sorted = blocks.sort(block.segments, room.first(block.bytes));
    for (const Segment& segment : block.segments) batch.fingerprint += sum_of(segment);
    if (cutoff_) cutoff_->add(block.records, [&](std::uint64_t i) { return blocks.row(i); });
    sorted.push_back({batch.sorted.bytes.data(), batch.sorted.records, false});
    room = room.subspan(block.bytes);
    records += batch.sorted.records;
  }
  if (merges) {
    assert(records * keys_.record_bytes() == batch.place.size());
    if (!merger) merger = make_tile_merger(keys_, output_to_rest(batch.place.size()));
    if (!merger->merge(sorted, batch.place.data()))
      throw Corrupted("a sorted block is out of order");
    batch.sorted = {batch.place, records};
  }
  if (pass_.fingerprint && checks_batches_)
    batch.fingerprint = records_fingerprint(pass_.fingerprint, facts_.layout, batch.place);
}

// Returns false if the CPU must sort the batch.
bool RunFormation::sort_by_backend(Batch& batch) {
  if (!pass_.sorter) return false;
  assert(batch.blocks.size() == 1);
  const WorkUnit& block = batch.blocks.front();
  const std::optional<std::uint64_t> sum = pass_.sorter->sort(block, batch.place.data());
  if (!sum) return false;
  batch.sorted = {batch.place, block.records};
  batch.fingerprint = *sum;
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
