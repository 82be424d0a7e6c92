#include "jobs/scan.hpp"

#include <algorithm>
#include <cassert>
#include <vector>

#include "corank/error.hpp"
#include "format/key_order.hpp"
#include "jobs/diagnostics.hpp"
#include "plan/pass_planner.hpp"
#include "run/chunk_reader.hpp"
#include "util/math.hpp"
#include "verify/checksum.hpp"

namespace corank {
namespace {

// Calls `visit` with the parts of the chunk between its gaps. `block` is the chunk without them.
void visit_between_gaps(const Chunk& chunk, ScannedBlock block, const RecordFormat& format,
                        const std::function<void(const ScannedBlock&)>& visit) {
  const std::uint64_t row_bytes = format.row_bytes();
  std::uint64_t first = 0;  // record of the chunk at which the block begins
  for (const Gap& gap : chunk.gaps) {
    const std::uint64_t count = gap.index - first;
    assert(count != 0 && count <= block.rows.count);
    if (count == block.rows.count) break;  // the gap is after the last record
    ScannedBlock rest{block.rows.data + (count - 1) * row_bytes,
                      {block.rows.data + count * row_bytes, block.rows.count - count},
                      block.first + count + gap.records,
                      offset_of(format, block, count) + gap.bytes};
    block.rows.count = count;
    visit(block);
    block = rest;
    first = gap.index;
  }
  visit(block);
}

// Implements scan_blocks() for streams and records of variable length.
std::uint64_t scan_in_order(const Run& run, const RecordFormat& format,
                            const std::function<void(const ScannedBlock&)>& visit,
                            unsigned threads) {
  PassPlan plan = plan_pass({.runs = 1,
                             .record_bytes = format.record_bytes(),
                             .memory_bytes = 256 * MiB,
                             .merged_bytes = run.bytes(),
                             .edge_bytes = stream_margin_bytes})
                      .value();
  plan.read_ahead += threads;  // chunks, of which each thread has one
  plan.chunks += threads;
  BufferPool pool(plan.chunk_bytes, plan.chunks, nullptr);
  const Reading reading{format, plan, ReadOrder::one_by_one};
  ChunkReader reader(make_producers({&run, 1}, true, reading, run.stop()), reading, pool, threads,
                     run.stop(), {});
  ChunkRef before;
  for (ChunkRef chunk; (chunk = reader.next(0)); before = std::move(chunk)) {
    if (run.stop().stop_requested()) throw Interrupted();
    const std::byte* const last =
        before ? before->records() + (before->count - 1) * format.row_bytes() : nullptr;
    visit_between_gaps(*chunk,
                       {last, {chunk->records(), chunk->count}, chunk->number, chunk->offset},
                       format, visit);
  }
  run.check_readable();
  return reader.skipped();
}

}  // namespace

std::uint64_t offset_of(const RecordFormat& format, const ScannedBlock& block,
                        std::uint64_t index) {
  return block.offset + (index == 0 ? 0 : format.bytes_of({block.rows.data, index}).size());
}

std::uint64_t scan_blocks(const Run& run, const RecordFormat& format,
                          const std::function<void(const ScannedBlock&)>& visit, unsigned threads) {
  const std::uint32_t record_bytes = format.row_bytes();
  if (run.is_stream() || run.record_bytes() != record_bytes)
    return scan_in_order(run, format, visit, threads);

  // The last record of a block is copied to the place before the next block.
  const std::uint64_t block_records = std::max<std::uint64_t>(4 * MiB / record_bytes, 1);
  std::vector<std::byte> memory((block_records + 1) * record_bytes);
  std::byte* const block = memory.data() + record_bytes;
  for (std::uint64_t first = 0; first < run.records(); first += block_records) {
    const std::uint64_t count = std::min(block_records, run.records() - first);
    run.read(first, count, {block, count * record_bytes});
    visit({first == 0 ? nullptr : memory.data(),
           {block, count},
           run.first() + first,
           run.offset() + first * record_bytes});
    std::copy_n(block + (count - 1) * record_bytes, record_bytes, memory.data());
  }
  return 0;
}

void check_order(const Run& run, const RecordFormat& format, const ScannedBlock& block) {
  const KeyLayout layout = format.keys().layout();
  const auto [rows, count] = block.rows;
  const bool begins_low = block.before && record_less(layout, rows, block.before);
  const std::uint64_t descent = begins_low ? 0 : first_descent(layout, rows, count);
  if (descent != count) throw_disorder(run, format, block, descent);
}

ScanResult scan(const Run& run, const RecordFormat& format, bool checksum, bool is_ordered,
                unsigned threads) {
  const KeyLayout layout = format.keys().layout();
  ScanResult result;
  scan_blocks(
      run, format,
      [&](const ScannedBlock& block) {
        if (is_ordered) check_order(run, format, block);
        if (checksum) result.checksum += rows_checksum(layout, block.rows.data, block.rows.count);
        result.records += block.rows.count;
      },
      threads);
  return result;
}

}  // namespace corank
