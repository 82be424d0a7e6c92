#include "exec/pass_facts.hpp"

#include <algorithm>
#include <cassert>

#include "util/math.hpp"

namespace corank {

namespace {

// A device verifies input faster than the threads that read it, but does not tell the runs apart,
// as is needed for temporary ones.
bool can_backend_verify(const Pass& pass) {
  const Backend* const reader = pass.reader();
  if (!reader || !reader->verifies()) return false;
  return std::ranges::all_of(pass.runs, is_in_place) ||
         (!reader->computes() && std::ranges::none_of(pass.runs, &Run::is_temporary));
}

}  // namespace

bool is_in_place(const Run& run) {
  return run.records() == 0 || run.in_place(0) != nullptr;
}

PassFacts::PassFacts(const Pass& pass)
    : layout(pass.format.keys().layout()),
      record_bytes(layout.record_bytes),
      chunks_in_runs(pass.counts_bytes ? pass.plan.chunks : 0),
      has_streams(std::ranges::any_of(pass.runs, &Run::is_stream)),
      needs_output(!pass.writers.empty() && (pass.backend || pass.writers.front().is_direct())),
      is_verified(pass.fingerprint != nullptr),
      backend_reads(is_verified && !pass.counts_bytes && can_backend_verify(pass)) {
  assert(pass.plan.unit_records != 0 && pass.plan.chunk_records != 0 && pass.plan.tokens != 0);
  assert(pass.writers.empty() || pass.in_place.empty());
  for (const Run& run : pass.runs) {
    bytes_in_runs += run.bytes();
    const std::uint64_t chunk_records = pass.plan.chunk_records;
    if (!pass.counts_bytes && !run.in_place(0))  // one more where the first chunk is smaller
      chunks_in_runs += divide_up(run.records(), chunk_records) + (run.records() > chunk_records);
  }
  units = pass.counts_bytes ? pass.plan.tokens
                            : divide_up(bytes_in_runs / record_bytes, pass.plan.unit_records);
}

}  // namespace corank
