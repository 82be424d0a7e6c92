#include "pipeline.hpp"

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <vector>

#include "checksum.hpp"
#include "corank/error.hpp"
#include "cutter.hpp"
#include "reader.hpp"

namespace corank {
namespace {

// Enough bytes that a task outweighs its start.
constexpr std::uint64_t checksum_task_bytes = std::uint64_t{256} << 10;

std::uint64_t parallel_checksum(std::span<const std::byte> bytes, std::uint32_t record_bytes) {
  const std::uint64_t task =
      std::max<std::uint64_t>(checksum_task_bytes / record_bytes, 1) * record_bytes;
  std::atomic<std::uint64_t> sum = 0;
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(std::uint64_t{0}, (bytes.size() + task - 1) / task, [&](std::uint64_t i) {
      const std::uint64_t from = i * task;
      sum +=
          records_checksum(bytes.subspan(from, std::min(task, bytes.size() - from)), record_bytes);
    });
  });
  return sum;
}

// Threads that copy from the page cache; one copies 5 to 8 GB/s.
unsigned reading_threads(unsigned threads) {
  return std::clamp(threads / 2, 2u, 8u);
}

}  // namespace

void run_pass(const Pass& pass, PassTotals& totals) {
  const std::uint32_t record_bytes = pass.encoding.record_bytes();
  std::uint64_t chunks_in_runs = 0;
  std::uint64_t records = 0;
  for (const Run& run : pass.runs) {
    records += run.records();
    chunks_in_runs += (run.records() + pass.plan.chunk_records - 1) / pass.plan.chunk_records;
  }
  if (records == 0) return;
  const std::uint64_t units = (records + pass.plan.unit_records - 1) / pass.plan.unit_records;

  const PinMemory pin = pass.backend.pin_memory();
  BufferPool chunk_pool(pass.plan.chunk_bytes, std::min(pass.plan.chunks, chunks_in_runs), pin);
  BufferPool output_pool(pass.plan.unit_bytes, std::min<std::uint64_t>(pass.plan.tokens, units),
                         pin);
  Reader reader(pass.runs, pass.encoding, pass.plan, chunk_pool, reading_threads(pass.threads),
                pass.stop);
  Cutter cutter(reader, pass.runs, pass.encoding, pass.plan.unit_records);

  const auto stop_if_asked = [&] {
    if (pass.stop.stop_requested()) throw Interrupted();
  };
  // What each token carries. Units are written in order, so a unit's predecessor by the number of
  // tokens has left the pipeline. They are kept here, since a cancelled pipeline destroys nothing.
  struct Token {
    WorkUnit unit;
    MergedUnit merged;
  };
  std::vector<Token> carried(pass.plan.tokens);
  const auto read_and_cut = tbb::make_filter<void, Token*>(
      tbb::filter_mode::serial_in_order, [&](tbb::flow_control& flow) -> Token* {
        stop_if_asked();
        Stopwatch cutting(totals.cut);
        std::optional<WorkUnit> unit = cutter.next();
        if (!unit) {
          flow.stop();
          return nullptr;
        }
        Token& token = carried[unit->sequence % carried.size()];
        token.unit = *std::move(unit);
        return &token;
      });
  const auto merge =
      tbb::make_filter<Token*, Token*>(tbb::filter_mode::parallel, [&](Token* token) {
        Stopwatch merging(totals.merge);
        token->merged = pass.backend.merge(std::move(token->unit), output_pool.lease());
        if (pass.checksum)
          *pass.checksum += parallel_checksum(
              token->merged.buffer.bytes().first(token->merged.records * record_bytes),
              record_bytes);
        return token;
      });
  const auto write =
      tbb::make_filter<Token*, void>(tbb::filter_mode::serial_in_order, [&](Token* token) {
        stop_if_asked();
        const std::uint64_t bytes = token->merged.records * record_bytes;
        {
          Stopwatch writing(totals.write);
          pass.writer.write(token->merged.buffer.bytes().first(bytes));
        }
        token->merged = MergedUnit();
        ++totals.units;
        if (pass.wrote) pass.wrote(bytes);
      });

  // Two threads may be waiting for files at any time; the others compute. Each token needs one.
  const unsigned workers = std::max(pass.threads, pass.plan.tokens) + 2;
  const tbb::global_control allowance(tbb::global_control::max_allowed_parallelism, workers);
  tbb::task_arena arena(static_cast<int>(workers));
  arena.execute([&] { tbb::parallel_pipeline(pass.plan.tokens, read_and_cut & merge & write); });

  totals.bytes_read += records * record_bytes;
  totals.bytes_written += records * record_bytes;
  totals.read += reader.busy().load();
  totals.read_wait += reader.wait().load();
  totals.cut -= reader.wait().load();
}

}  // namespace corank
