#include "jobs/scan.hpp"

#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "corank/error.hpp"
#include "format/key_order.hpp"
#include "jobs/diagnostics.hpp"
#include "plan/pass_planner.hpp"
#include "run/chunk_reader.hpp"
#include "util/math.hpp"
#include "util/system_limits.hpp"
#include "util/worker_allowance.hpp"
#include "verify/checksum.hpp"

namespace corank {
namespace {

constexpr std::uint64_t max_scan_bytes = 256 * MiB;  // of the buffers of a scan

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

// The chunks of one run, in order. One thread calls next().
class Chunks {
 public:
  // Each thread of the share may hold a chunk, besides those that are read.
  Chunks(const Run& run, const RecordFormat& format, const ScanShare& share)
      : run_(run),
        format_(format),
        in_sequence_(run.is_stream() || run.record_bytes() != format.row_bytes()),
        plan_(plan_of(run, format, share)),
        reading_{format, plan_, ReadOrder::one_by_one},
        pool_(plan_.chunk_bytes, plan_.chunks, nullptr),
        reader_(make_producers({&run, 1}, in_sequence_, reading_, run.stop()), reading_, pool_,
                share.threads, run.stop(), {}) {}

  // A chunk and the one before it, whose last record precedes it; null at the start of the run.
  struct Neighbours {
    ChunkRef chunk, before;
  };
  // Returns the next chunk; nothing after the last.
  std::optional<Neighbours> next() {
    if (run_.stop().stop_requested()) throw Interrupted();
    Neighbours next{reader_.next(0), before_};
    if (!next.chunk) {
      run_.check_readable();
      return std::nullopt;
    }
    before_ = next.chunk;
    return next;
  }
  // Calls `visit` with the records of the chunk. Thread-safe.
  void visit(const Neighbours& next, const std::function<void(const ScannedBlock&)>& visit) const {
    const auto& [chunk, before] = next;
    const std::byte* const last =
        before ? before->records() + (before->count - 1) * format_.row_bytes() : nullptr;
    const std::uint64_t number = chunk->number + (in_sequence_ ? 0 : run_.first());
    visit_between_gaps(*chunk, {last, {chunk->records(), chunk->count}, number, chunk->offset},
                       format_, visit);
  }
  std::uint64_t skipped() const { return reader_.skipped(); }

 private:
  // Chunks have room for the whole pages that direct I/O reads, and for the margin of a stream.
  static PassPlan plan_of(const Run& run, const RecordFormat& format, const ScanShare& share) {
    PassPlan plan = plan_pass({.runs = 1,
                               .record_bytes = format.record_bytes(),
                               .memory_bytes = max_scan_bytes,
                               .merged_bytes = run.bytes(),
                               .edge_bytes = 2 * page_bytes()})
                        .value();
    plan.read_ahead += share.threads;
    plan.chunks += 2 * share.threads;
    // Records that a merge or a sort has written may not be too long for the scan that proves them.
    plan.large_bytes = std::max(plan.large_bytes, memory_budget(share.memory_bytes).value / 2);
    return plan;
  }

  const Run& run_;
  const RecordFormat& format_;
  const bool in_sequence_;
  const PassPlan plan_;
  const Reading reading_;
  BufferPool pool_;
  ChunkReader reader_;
  ChunkRef before_;
};

// A chunk on its way through scan_side_by_side(). A failure takes the place of what was seen.
struct Scanned {
  Chunks::Neighbours chunk;
  std::vector<std::function<void()>> seen;
  std::exception_ptr failure;
};

}  // namespace

ScansAtOnce scans_at_once(std::size_t files, const Options& options) {
  const std::uint64_t threads = thread_budget(options.threads).value;
  const std::uint64_t memory_bytes = memory_budget(options.memory_bytes).value;
  const std::uint64_t wanted = std::min<std::uint64_t>(files, memory_bytes / max_scan_bytes);
  const std::uint64_t at_once = std::clamp<std::uint64_t>(wanted, 1, threads);
  return {at_once, {static_cast<unsigned>(threads / at_once), memory_bytes / at_once}};
}

std::uint64_t offset_of(const RecordFormat& format, const ScannedBlock& block,
                        std::uint64_t index) {
  return block.offset + (index == 0 ? 0 : format.bytes_of({block.rows.data, index}).size());
}

std::uint64_t scan_blocks(const Run& run, const RecordFormat& format,
                          const std::function<void(const ScannedBlock&)>& visit,
                          const ScanShare& share) {
  Chunks chunks(run, format, share);
  while (const auto next = chunks.next()) chunks.visit(*next, visit);
  return chunks.skipped();
}

void check_order(const Run& run, const RecordFormat& format, const ScannedBlock& block) {
  const KeyLayout layout = format.keys().layout();
  const auto [rows, count] = block.rows;
  const bool begins_low = block.before && record_less(layout, rows, block.before);
  const std::uint64_t descent = begins_low ? 0 : first_descent(layout, rows, count);
  if (descent != count) throw_disorder(run, format, block, descent);
}

std::uint64_t scan_side_by_side(const Run& run, const RecordFormat& format, const ScanShare& share,
                                const LookAt& look) {
  const unsigned threads = share.threads;
  const WorkerAllowance allowance(threads);
  Chunks chunks(run, format, share);
  std::atomic<bool> has_ended = false;
  const auto next = tbb::make_filter<void, Scanned>(
      tbb::filter_mode::serial_in_order, [&](tbb::flow_control& flow) {
        Scanned scanned;
        try {
          if (auto chunk = has_ended ? std::nullopt : chunks.next())
            scanned.chunk = std::move(*chunk);
          else
            flow.stop();
        } catch (...) {
          scanned.failure = std::current_exception();
          has_ended = true;
        }
        return scanned;
      });
  const auto look_at =
      tbb::make_filter<Scanned, Scanned>(tbb::filter_mode::parallel, [&](Scanned scanned) {
        if (scanned.failure) return scanned;
        try {
          chunks.visit(scanned.chunk,
                       [&](const ScannedBlock& block) { scanned.seen.push_back(look(block)); });
        } catch (...) {
          scanned.failure = std::current_exception();
        }
        scanned.chunk = {};  // its memory is free for reading again
        return scanned;
      });
  // The first failure is that of the run. It is thrown when nothing is in flight: a pipeline that
  // ends by an exception leaks what is.
  std::exception_ptr failure;
  const auto tell = tbb::make_filter<Scanned, void>(
      tbb::filter_mode::serial_in_order, [&](const Scanned& scanned) {
        if (scanned.failure && !failure) {
          failure = scanned.failure;
          has_ended = true;
        }
        for (const std::function<void()>& seen : scanned.seen) seen();
      });
  // The threads that read find records, too, which is most of the work.
  const unsigned workers = std::max(threads / 2, std::min(threads, 2u));
  tbb::task_arena arena(static_cast<int>(workers));
  arena.execute([&] { tbb::parallel_pipeline(workers, next & look_at & tell); });
  if (failure) std::rethrow_exception(failure);
  return chunks.skipped();
}

ScanResult scan(const Run& run, const RecordFormat& format, bool checksum, bool is_ordered,
                const ScanShare& share) {
  const KeyLayout layout = format.keys().layout();
  ScanResult whole;
  scan_side_by_side(run, format, share, [&](const ScannedBlock& block) {
    const auto [rows, count] = block.rows;
    if (is_ordered) check_order(run, format, block);
    const std::uint64_t sum = checksum ? rows_checksum(layout, rows, count) : 0;
    return [&whole, count, sum] {
      whole.records += count;
      whole.checksum += sum;
    };
  });
  return whole;
}

}  // namespace corank
