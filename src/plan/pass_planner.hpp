// Plans passes: how one pass divides its memory into chunks, units and outputs, and which
// intermediate passes reduce the runs to a number that one pass can merge.
//
// Pure functions of numbers: thread-safe, without I/O. Sizes are bytes; plans are plain data. A
// plan that does not fit into the memory is reported as nothing or 0; no function throws Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "run/pass_plan.hpp"
#include "util/math.hpp"

namespace corank {

// Max number of units in flight on the CPU, and for each device.
inline constexpr unsigned default_tokens = 4;

// Max unit size, by kind of record; larger units gain nothing and cost page faults. Tuned; see
// docs/tuning.md.
inline constexpr std::uint64_t max_cpu_unit_bytes = 16 * MiB;
inline constexpr std::uint64_t max_text_unit_bytes = 4 * MiB;
// Min unit size if the output is written with direct I/O: it leaves the caches anyway, so units
// need not fit into them. Tuned by bench-files; see docs/tuning.md.
inline constexpr std::uint64_t min_direct_unit_bytes = 16 * MiB;
// At least 16 such units a pass, so that pipeline fill and drain are negligible.
inline constexpr std::uint64_t runs_to_direct_units = 16;
// Returns the unit size for merges on the CPU: small for few threads, so that the units in flight
// stay in the last-level cache.
inline std::uint64_t cpu_unit_bytes(unsigned threads) {
  return std::min(threads * (2 * MiB), max_cpu_unit_bytes);
}
inline constexpr std::uint64_t max_cuda_unit_bytes = 32 * MiB;

// Returns the min unit size for a merge of `runs` runs. Cutting a unit costs O(runs), so units grow
// with the number of runs: `bytes_a_run` for each, up to a fixed fraction of `merged_bytes`.
std::uint64_t enough_unit_bytes(std::uint64_t runs, std::uint64_t bytes_a_run,
                                std::uint64_t merged_bytes);
// Returns `bytes_a_run` for merges on the CPU. Few threads need small units, which stay in the
// caches; many threads need large ones, or they wait for the cutter. Tuned; see docs/tuning.md.
inline std::uint64_t cpu_unit_bytes_a_run(unsigned threads) {
  return std::min(threads * (std::uint64_t{16} << 10), std::uint64_t{256} << 10);
}
// Returns `bytes_a_run` for records that vary in length, whose units take more memory.
inline std::uint64_t text_unit_bytes_a_run(unsigned threads) {
  return std::min(threads * (std::uint64_t{2} << 10), std::uint64_t{32} << 10);
}
inline constexpr std::uint64_t cuda_unit_bytes_a_run = std::uint64_t{256} << 10;

// Divisors of the merged bytes: all chunks together take this fraction of them, within the bounds
// of the chunk size. Tuned by bench-files; see docs/tuning.md.
//
// Page cache: few bytes, since page faults on new memory cost more than small reads.
inline constexpr std::uint64_t runs_to_cached_chunks = 16;
// Direct I/O: storage devices read large chunks faster.
inline constexpr std::uint64_t runs_to_direct_chunks = 4;
// Mapped files: chunks take no memory, but each costs two system calls that block other threads.
inline constexpr std::uint64_t runs_to_mapped_chunks = 1;
// Variable-length records that are mapped or in memory: chunks take memory for prefix references.
inline constexpr std::uint64_t runs_to_mapped_text_chunks = 4;

// Numbers from which a pass is planned.
struct PassNumbers {
  std::uint64_t runs;
  std::uint32_t record_bytes;  // 0 if records vary in length
  std::uint64_t memory_bytes;
  std::uint64_t merged_bytes = std::numeric_limits<std::uint64_t>::max();  // of all runs
  std::uint64_t max_unit_bytes = max_cpu_unit_bytes;
  std::uint64_t edge_bytes = 0;                          // room in each chunk besides its records
  std::uint64_t runs_to_chunks = runs_to_cached_chunks;  // one of the divisors above
  unsigned tokens = default_tokens;                      // max number of units in flight
  std::uint64_t in_memory_runs = 0;  // beside `runs`; see PassPlan::in_memory_records
};

// Plans a pass. In a plan for variable-length records, a chunk holds `chunk_records` prefix
// references and their records, and a unit as many records as fit into `unit_bytes`, at most
// `unit_records`. Returns nothing if the memory is too small, which depends on neither
// `merged_bytes` nor `max_unit_bytes`.
std::optional<PassPlan> plan_pass(const PassNumbers& pass);

// Plans a pass over runs of variable-length records in memory, whose chunks hold only prefix
// references.
std::optional<PassPlan> plan_pass_in_memory(std::uint64_t runs, std::uint64_t memory_bytes,
                                            std::uint64_t merged_bytes,
                                            std::uint64_t max_unit_bytes);

// Return the max fan-in: how many runs one pass can merge within `memory_bytes`; 0 if it is below
// two. Runs in memory hold variable-length records.
std::uint64_t widest_pass(std::uint32_t record_bytes, std::uint64_t memory_bytes);
std::uint64_t widest_pass_in_memory(std::uint64_t memory_bytes);

// Returns the smallest budget that can merge any number of runs, in several passes if need be.
std::uint64_t min_memory(std::uint32_t record_bytes);

// Intermediate pass: merges `count` adjacent runs into one temporary run, which replaces them.
struct IntermediatePass {
  std::size_t first;      // index of the first run, after all earlier passes
  std::size_t count;      // number of runs
  std::uint64_t records;  // total of these runs
};

// Returns the intermediate passes, in order, that reduce the runs to at most `widest` (>= 2).
// `records` holds the length of each run. Each pass merges as few runs as needed, and those
// adjacent runs that hold the fewest records. Merging only adjacent runs keeps the merge stable.
std::vector<IntermediatePass> plan_intermediate_passes(std::vector<std::uint64_t> records,
                                                       std::size_t widest);

}  // namespace corank
