#include "exec/pipeline.hpp"

#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cassert>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "corank/error.hpp"
#include "exec/cut_stage.hpp"
#include "exec/in_flight_unit.hpp"
#include "exec/merge_stage.hpp"
#include "exec/pass_facts.hpp"
#include "exec/write_stage.hpp"
#include "util/worker_allowance.hpp"
#include "verify/output_verifier.hpp"

namespace corank {
namespace {

// Returns how many threads the pass needs: with a device, one for each unit in flight and two for
// files; on the CPU, one more than the caller's where some thread waits for files.
unsigned workers_of(const Pass& pass) {
  if (pass.backend && !pass.backend->computes())
    return std::max(pass.threads, pass.plan.tokens) + 2;
  const bool waits = !std::ranges::all_of(pass.runs, is_in_place) ||
                     std::ranges::any_of(pass.writers, &Writer::compressor);
  return std::max(pass.threads + waits, 2u);
}

// One execution of one Pass: the stages, and the units that travel through them.
class Execution {
 public:
  Execution(const Pass& pass, const PassFacts& facts, PassTotals& totals, OutputVerifier& verifier)
      : pass_(pass),
        facts_(facts),
        totals_(totals),
        verifier_(verifier),
        merge_(pass, facts, totals),
        cut_(pass, facts, totals),
        write_(pass, totals),
        units_(pass.plan.tokens) {}
  // Queued writes and checks refer to this object: on failure they are abandoned first.
  ~Execution() { std::ranges::for_each(pass_.writers, &Writer::abandon); }

  void run();

 private:
  InFlightUnit* cut(tbb::flow_control& flow);
  void verify_later(InFlightUnit& unit);
  void verify(const InFlightUnit& unit, unsigned threads);
  void check_conservation();
  void make_durable();
  void stop_if_asked() const {
    if (pass_.stop.stop_requested()) throw Interrupted();
  }

  const Pass& pass_;
  const PassFacts& facts_;
  PassTotals& totals_;
  OutputVerifier& verifier_;
  MergeStage merge_;
  CutStage cut_;
  WriteStage write_;
  std::exception_ptr failure_;  // of the cut stage
  InFlightUnits units_;         // last: units give their buffers back to the stages
};

void Execution::run() {
  const auto cut_filter = tbb::make_filter<void, InFlightUnit*>(
      tbb::filter_mode::serial_in_order, [this](tbb::flow_control& flow) { return cut(flow); });
  const auto merge_filter = tbb::make_filter<InFlightUnit*, InFlightUnit*>(
      tbb::filter_mode::parallel, [this](InFlightUnit* unit) {
        merge_.merge(*unit);
        return unit;
      });
  const auto write_filter = tbb::make_filter<InFlightUnit*, InFlightUnit*>(
      tbb::filter_mode::serial_in_order, [this](InFlightUnit* unit) {
        stop_if_asked();
        write_.write(*unit);
        return unit;
      });
  const auto verify_filter =
      tbb::make_filter<InFlightUnit*, void>(tbb::filter_mode::parallel, [this](InFlightUnit* unit) {
        verify_later(*unit);
        units_.give_back(unit);
      });
  tbb::task_arena arena(static_cast<int>(workers_of(pass_)));
  arena.execute([&] {
    tbb::parallel_pipeline(pass_.plan.tokens,
                           cut_filter & merge_filter & write_filter & verify_filter);
  });
  if (failure_) std::rethrow_exception(failure_);
  if (write_.has_operators()) {
    InFlightUnit rest;
    write_.write_rest(rest);
    verify_later(rest);
  }
  for (Writer& output : pass_.writers) output.drain();
  if (facts_.is_verified && !write_.is_done()) check_conservation();
  if (facts_.is_verified && pass_.written) *pass_.written += verifier_.fingerprint();
  write_.finish_parts(verifier_.fingerprint());
  totals_.checksum += verifier_.checksum();
  make_durable();
  if (write_.is_done()) totals_.ended_early = true;
  cut_.add_to_totals();
  write_.add_to_totals();
}

// Keeps a failure until the units before are merged: what is wrong with these comes first, however
// far ahead files are read.
InFlightUnit* Execution::cut(tbb::flow_control& flow) {
  stop_if_asked();
  std::optional<WorkUnit> unit;
  try {
    if (!write_.is_done()) unit = cut_.next();
  } catch (...) {
    failure_ = std::current_exception();
  }
  if (!unit) {
    flow.stop();
    return nullptr;
  }
  InFlightUnit* const in_flight = units_.take();
  in_flight->unit = *std::move(unit);
  return in_flight;
}

// Verifies after the write, so that corruption at any earlier moment is found, and on another
// thread, so that the writer never waits. With direct I/O, the last bytes may still be staged.
void Execution::verify_later(InFlightUnit& unit) {
  if (!facts_.is_verified && !pass_.checksum) return;
  Writer* const writer = pass_.writers.empty() ? nullptr : &pass_.writers.front();
  if (writer && writer->is_direct())
    writer->then(
        [this, written = std::make_shared<InFlightUnit>(std::move(unit))] { verify(*written, 1); });
  else
    verify(unit, pass_.threads);
}

void Execution::verify(const InFlightUnit& unit, unsigned threads) {
  const auto& pieces = unit.merged.pieces;
  if (const auto& proof = unit.merged.proof) {
    assert(pieces.size() == 1);
    return verifier_.take(*proof, pieces.front(), unit.sequence, unit.offset, threads);
  }
  const Stopwatch verifying(totals_.verify, {pass_.trace, "verify", pass_.partition, unit.number},
                            unit.unit.sequence);
  verifier_.verify(pieces, unit.sequence, unit.offset, threads);
}

void Execution::check_conservation() {
  assert(pass_.fingerprints.size() == pass_.runs.size());
  std::uint64_t fingerprint = merge_.fingerprint_read();
  for (std::uint32_t run = 0; run < pass_.runs.size(); ++run) {
    fingerprint += cut_.source().fingerprint(run);
    pass_.fingerprints[run] += cut_.source().fingerprint(run);
  }
  cut_.check_complete();
  if (pass_.read) *pass_.read += fingerprint;
  write_.check_conservation(fingerprint, verifier_.fingerprint());
}

void Execution::make_durable() {
  for (Writer& output : pass_.writers) {
    {
      Stopwatch writing(totals_.write, {pass_.trace, "write", pass_.partition}, totals_.units);
      output.make_durable();
    }
    if (const Compressor* const compressor = output.compressor()) {
      totals_.compress += compressor->busy().load();
      totals_.write_for_compress += compressor->wait().load();
      totals_.write -= compressor->wait().load();
    }
    if (const WriteBehind* const behind = output.behind()) totals_.write += behind->busy();
  }
}

void run_pass(const Pass& pass, PassTotals& totals, OutputVerifier& verifier) {
  leave_memory_to_thread();
  const PassFacts facts(pass);
  if (facts.bytes_in_runs == 0 && !facts.has_streams) {
    for (Writer& output : pass.writers) output.make_durable();
    return;
  }
  Stopwatch whole(totals.wall);
  Execution(pass, facts, totals, verifier).run();
}

}  // namespace

void run_passes(std::span<const Pass> partitions, PassTotals& totals) {
  unsigned workers = 0;
  for (const Pass& partition : partitions) workers += workers_of(partition);
  assert(!partitions.empty());
  const WorkerAllowance allowance(workers);
  std::deque<OutputVerifier> verifiers;
  for (const Pass& partition : partitions)
    verifiers.emplace_back(partition.output, partition.fingerprint, partition.checksum);
  if (partitions.size() == 1) return run_pass(partitions.front(), totals, verifiers.front());

  // The first failure stops the others.
  std::stop_source stop;
  std::stop_callback when_asked(partitions.front().stop, [&] { stop.request_stop(); });
  std::mutex mutex;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < partitions.size(); ++i)
      threads.emplace_back([&, i, pass = partitions[i]]() mutable {
        pass.stop = stop.get_token();
        try {
          run_pass(pass, totals, verifiers[i]);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
          stop.request_stop();
        }
      });
  }
  if (failure) std::rethrow_exception(failure);
  const OutputVerifier* before = nullptr;
  for (const OutputVerifier& verifier : verifiers) {
    if (verifier.empty()) continue;
    if (before) before->check_edge(verifier);
    before = &verifier;
  }
}

}  // namespace corank
