// How a memory budget is spent on one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "run/pass_plan.hpp"

namespace corank {

// More than this a unit of the kind does not gain, and memory that was never touched costs time.
inline constexpr std::uint64_t max_cpu_unit_bytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t max_text_unit_bytes = std::uint64_t{4} << 20;
// What goes past the page cache on its way out gains nothing by staying in the caches: to a disk
// two threads merged 16 runs of lines 1.15 times as fast by these as by 4 MiB, of records 1.2
// times.
inline constexpr std::uint64_t min_direct_unit_bytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t runs_to_direct_units = 16;  // lest the first and the last show
// Where threads are few the units in flight stay in the last cache.
inline std::uint64_t cpu_unit_bytes(unsigned threads) {
  return std::min(threads * (std::uint64_t{2} << 20), max_cpu_unit_bytes);
}
inline constexpr std::uint64_t max_cuda_unit_bytes = std::uint64_t{32} << 20;

// What the cut of a unit costs grows with the runs, however small a run's part in it: so large are
// the units of `runs` runs better, as long as the first and the last of them hardly show. How much
// of a run is enough depends on how soon a unit is merged: of 256 runs, two threads lose 5 % of
// their time with 64 KiB a run, which caches do not hold, and 16 threads 5 %, by cutting.
std::uint64_t enough_unit_bytes(std::uint64_t runs, std::uint64_t bytes_a_run,
                                std::uint64_t merged_bytes);
inline std::uint64_t cpu_unit_bytes_a_run(unsigned threads) {
  return std::min(threads * (std::uint64_t{16} << 10), std::uint64_t{256} << 10);
}
inline constexpr std::uint64_t cuda_unit_bytes_a_run = std::uint64_t{64} << 10;

// Chunks together are this part of the runs, unless they would be very large or small then. Devices
// read large ones faster: 256 runs were merged from a disk 1.2 times as fast with 512 KiB as with
// 128 KiB. But memory that is touched once costs more time than small reads from the page cache do.
// Mapped chunks are no such memory, but every one costs two calls that other threads wait for; of
// text, they take memory for entries.
inline constexpr std::uint64_t runs_to_cached_chunks = 16;
inline constexpr std::uint64_t runs_to_direct_chunks = 4;
inline constexpr std::uint64_t runs_to_mapped_chunks = 1;
inline constexpr std::uint64_t runs_to_mapped_text_chunks = 4;

// The best way to merge `runs` runs of `merged_bytes` together at once within `memory_bytes`; none
// if there is none. Whether there is one depends on neither `merged_bytes` nor
// `max_unit_bytes`. A chunk has `edge_bytes` beside its records.
std::optional<PassPlan> plan_pass(
    std::uint64_t runs, std::uint32_t record_bytes, std::uint64_t memory_bytes,
    std::uint64_t merged_bytes = std::numeric_limits<std::uint64_t>::max(),
    std::uint64_t max_unit_bytes = max_cpu_unit_bytes, std::uint64_t edge_bytes = 0,
    std::uint64_t runs_to_chunks = runs_to_cached_chunks);

// The same for records of variable length: of a chunk `chunk_records` entries and their records, of
// a unit as many records as fit in `unit_bytes`, `unit_records` at most.
std::optional<PassPlan> plan_text_pass(
    std::uint64_t runs, std::uint64_t memory_bytes,
    std::uint64_t merged_bytes = std::numeric_limits<std::uint64_t>::max(),
    std::uint64_t max_unit_bytes = max_text_unit_bytes,
    std::uint64_t runs_to_chunks = runs_to_cached_chunks);

// The most runs that one pass can merge; 0 if not even two.
std::uint64_t widest_pass(std::uint32_t record_bytes, std::uint64_t memory_bytes);
std::uint64_t widest_text_pass(std::uint64_t memory_bytes);

// The smallest budget with which any number of runs can be merged.
std::uint64_t min_memory(std::uint32_t record_bytes);
std::uint64_t min_text_memory();

// A pass before the last: merges `count` runs from run `first` on into one, which takes their
// place.
struct IntermediatePass {
  std::size_t first;
  std::size_t count;
  std::uint64_t records;
};

// The passes, in order, that leave no more than `widest` (at least 2) of the runs, whose lengths
// are `records`. Each merges the neighbours that hold the fewest records, and no more of them than
// needed. Neighbours, so that equal keys keep the order of the runs.
std::vector<IntermediatePass> plan_intermediate_passes(std::vector<std::uint64_t> records,
                                                       std::size_t widest);

}  // namespace corank
