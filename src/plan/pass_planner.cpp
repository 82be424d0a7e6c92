#include "plan/pass_planner.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <ranges>

#include "corank/text_key.hpp"
#include "util/buffer_pool.hpp"
#include "util/gallop.hpp"
#include "util/math.hpp"

namespace corank {
namespace {

// Bounds of the chunk size; a tight budget or long records may go beyond them.
constexpr std::uint64_t max_chunk_bytes = MiB;
constexpr std::uint64_t min_chunk_bytes = std::uint64_t{128} << 10;
// Min size of a unit, and of each run's part in it; smaller units cost more to cut than to merge.
constexpr std::uint64_t min_unit_bytes = std::uint64_t{16} << 10;
constexpr std::uint64_t min_unit_bytes_a_run = 512;
// Upper bound for units that grow with the number of runs.
constexpr std::uint64_t max_wide_unit_bytes = 256 * MiB;
// At least 32 of these units a pass, so that pipeline fill and drain are negligible.
constexpr std::uint64_t runs_to_units = 32;
// Max records in a unit. Keys and row ids take memory per record, which this bounds for tiny
// records.
constexpr std::uint64_t max_unit_records = std::uint64_t{16} << 20;

// Bytes of a variable-length chunk per prefix reference, the reference included. If the records
// are shorter on average, references run out first and some of the chunk stays unused.
constexpr std::uint64_t text_bytes_an_entry = 42;
constexpr std::uint64_t min_text_chunk_bytes = std::uint64_t{16} << 10;
// Assumed min average length of a record, from which the max records in a unit follow.
constexpr std::uint64_t min_text_record_bytes = 16;
// Chunks that each run holds: one more than for records of a fixed size, since a last record that
// lacks its terminator is copied to a chunk of its own.
constexpr std::uint64_t chunks_a_run = 3;
// Buffer bytes per byte of a unit. Each unit in flight, and the next one, takes at most 6 in
// chunks and 1 in an output.
constexpr std::uint64_t text_unit_cost(unsigned tokens) {
  return 6 * (tokens + 1) + tokens + 1;
}

// If all runs are in memory, chunks hold only prefix references, and other numbers apply. A chunk
// ends after this many bytes per reference, so that chunks of long records are not too many.
constexpr std::uint64_t in_memory_bytes_a_ref = 128;
constexpr std::uint64_t min_in_memory_record_bytes = 32;
// Each unit that is cut, ready or in flight takes at most 1/2 in full chunks and 1/4 in chunks that
// ended early, and each unit in flight 1 in an output.
constexpr std::uint64_t in_memory_unit_cost(unsigned tokens) {
  return divide_up(3 * (tokens + max_units_ahead), 4) + tokens;
}

// Returns how many chunks to read ahead: more for many runs, whose chunks are small, so that the
// storage device stays busy.
std::uint64_t read_ahead_of(std::uint64_t runs) {
  return std::clamp<std::uint64_t>(runs / 32, std::clamp<std::uint64_t>(runs, 4, 64), 1024);
}

// Returns how many chunks of variable-length records to read ahead. Several threads find the
// records of few runs, so more is read ahead where there is memory.
std::uint64_t text_read_ahead_of(std::uint64_t runs, std::uint64_t memory_bytes) {
  constexpr std::uint64_t enough_read_ahead = 16;
  return std::max(read_ahead_of(runs), std::min(memory_bytes / MiB, enough_read_ahead));
}

// Returns the min size of a unit of variable-length records.
std::uint64_t min_unit_bytes_of(std::uint64_t runs) {
  return round_up(std::max(min_unit_bytes, runs * min_unit_bytes_a_run), page_bytes());
}

// Returns how many chunk buffers a pass needs so that it never waits for a buffer that only it can
// free. The units in flight and the unit being cut hold at most (tokens + 1) units of records.
// Each run needs two chunks more: its records start anywhere in a chunk, and the cutter needs one
// chunk beyond the last record of the unit.
std::uint64_t chunks_needed(std::uint64_t runs, std::uint64_t read_ahead,
                            std::uint64_t unit_records, std::uint64_t chunk_records,
                            unsigned tokens) {
  return 2 * runs + read_ahead + 1 + (tokens + 1) * unit_records / chunk_records;
}

// Rounds `records` down to a number that fills whole pages. Returns it unchanged if it is so small
// that rounding would waste much.
std::uint64_t round_down_to_pages(std::uint64_t records, std::uint32_t record_bytes) {
  const std::uint64_t fill = records_of_pages(record_bytes);
  return records < 16 * fill ? records : records - records % fill;
}

// Implements plan_pass() for records that vary in length.
std::optional<PassPlan> plan_variable_pass(const PassNumbers& pass) {
  const std::uint64_t runs = pass.runs;
  const unsigned tokens = pass.tokens;
  // Chunks of runs in memory are small parts of these runs, as those of runs in files are of
  // theirs.
  const std::uint64_t in_memory_bytes = pass.in_memory_runs * chunks_a_run * page_bytes();
  if (pass.memory_bytes < in_memory_bytes) return std::nullopt;
  PassPlan plan{};
  plan.tokens = tokens;
  plan.read_ahead = text_read_ahead_of(runs, pass.memory_bytes);
  plan.in_memory_records = pass.in_memory_runs == 0 ? 0 : page_bytes() / sizeof(PrefixRef);
  plan.large_bytes = (pass.memory_bytes - in_memory_bytes) / 4;
  const std::uint64_t memory_bytes = pass.memory_bytes - in_memory_bytes - plan.large_bytes;

  const std::uint64_t held_chunks = chunks_a_run * runs + plan.read_ahead + 1;
  const std::uint64_t units_bytes = min_unit_bytes_of(runs) * text_unit_cost(tokens);
  if (memory_bytes < units_bytes) return std::nullopt;
  plan.chunk_bytes = std::min(memory_bytes / 2, memory_bytes - units_bytes) / held_chunks;
  plan.chunk_bytes -= plan.chunk_bytes % page_bytes();
  if (plan.chunk_bytes < min_text_chunk_bytes) return std::nullopt;
  const std::uint64_t enough_bytes = std::clamp(
      pass.merged_bytes / pass.runs_to_chunks / held_chunks, min_chunk_bytes, max_chunk_bytes);
  plan.chunk_bytes = std::min(plan.chunk_bytes, round_up(enough_bytes, page_bytes()));
  plan.chunk_records = plan.chunk_bytes / text_bytes_an_entry;

  const std::uint64_t left_bytes = memory_bytes - held_chunks * plan.chunk_bytes;
  plan.unit_bytes = std::min(left_bytes / text_unit_cost(tokens), pass.max_unit_bytes);
  plan.unit_bytes -= plan.unit_bytes % page_bytes();
  plan.unit_records = plan.unit_bytes / min_text_record_bytes;
  // A chunk ends when its prefix references are used up or the next record does not fit. So either
  // its references are full, or it and the next chunk together are full of records.
  const std::uint64_t room_bytes = plan.chunk_bytes - plan.chunk_records * sizeof(PrefixRef);
  plan.chunks = held_chunks + (tokens + 1) * (plan.unit_records / plan.chunk_records +
                                              2 * plan.unit_bytes / room_bytes + 1);
  assert(plan.chunk_records != 0 && plan.unit_records != 0);
  assert(plan.chunk_bytes % page_bytes() == 0 && plan.unit_bytes % page_bytes() == 0);
  return plan;
}

}  // namespace

std::uint64_t enough_unit_bytes(std::uint64_t runs, std::uint64_t bytes_a_run,
                                std::uint64_t merged_bytes) {
  return std::min({runs * bytes_a_run, max_wide_unit_bytes, merged_bytes / runs_to_units});
}

std::optional<PassPlan> plan_pass(const PassNumbers& pass) {
  assert(pass.runs != 0 && pass.runs_to_chunks != 0 && pass.tokens != 0);
  if (pass.record_bytes == 0) return plan_variable_pass(pass);
  const auto [runs, record_bytes, memory_bytes, merged_bytes, max_unit_bytes, edge_bytes,
              runs_to_chunks, tokens, in_memory_runs] = pass;
  assert(in_memory_runs == 0);
  const std::uint64_t pass_min_chunk_bytes = round_up(record_bytes + edge_bytes, page_bytes());
  // Records fill at least half of a chunk, so two chunks have room for a record.
  const std::uint64_t pass_min_unit_bytes = min_unit_bytes_of(runs) + 2 * pass_min_chunk_bytes;
  PassPlan plan{};
  plan.tokens = tokens;
  plan.read_ahead = read_ahead_of(runs);

  // Chunks that every run holds throughout the merge get half of the memory. Units get the other
  // half, or their minimum if that is more. A unit's bytes are held twice: in chunks and in an
  // output buffer.
  const std::uint64_t units_bytes = (2 * tokens + 1) * pass_min_unit_bytes;
  if (memory_bytes < units_bytes) return std::nullopt;
  const std::uint64_t held_chunks = chunks_needed(runs, plan.read_ahead, 0, 1, tokens);
  plan.chunk_bytes = std::min(memory_bytes / 2, memory_bytes - units_bytes) / held_chunks;
  plan.chunk_bytes -= plan.chunk_bytes % page_bytes();
  if (plan.chunk_bytes < pass_min_chunk_bytes) return std::nullopt;
  const std::uint64_t enough_bytes =
      std::clamp(merged_bytes / runs_to_chunks / held_chunks, min_chunk_bytes, max_chunk_bytes);
  plan.chunk_bytes = std::min(plan.chunk_bytes,
                              std::max(round_up(enough_bytes, page_bytes()), pass_min_chunk_bytes));
  plan.chunk_records =
      round_down_to_pages((plan.chunk_bytes - edge_bytes) / record_bytes, record_bytes);

  // Chunks hold whole records only, so a unit takes slightly more bytes in chunks than it has.
  const std::uint64_t filled_bytes = plan.chunk_records * record_bytes;
  const std::uint64_t left_bytes = memory_bytes - held_chunks * plan.chunk_bytes;
  const auto unit_bytes = static_cast<std::uint64_t>(
      static_cast<double>(left_bytes) * static_cast<double>(filled_bytes) /
      static_cast<double>((tokens + 1) * plan.chunk_bytes + tokens * filled_bytes));
  plan.unit_bytes = std::min(unit_bytes - unit_bytes % page_bytes(),
                             std::max(max_unit_bytes, pass_min_unit_bytes));
  plan.unit_records =
      round_down_to_pages(std::min(plan.unit_bytes / record_bytes, max_unit_records), record_bytes);
  plan.unit_bytes = round_up(plan.unit_records * record_bytes, page_bytes());
  plan.chunks = chunks_needed(runs, plan.read_ahead, plan.unit_records, plan.chunk_records, tokens);
  assert(plan.chunk_records != 0 && plan.unit_records != 0);
  assert(plan.chunk_bytes % page_bytes() == 0 && plan.unit_bytes % page_bytes() == 0);
  assert(plan.chunk_records * record_bytes + edge_bytes <= plan.chunk_bytes);
  assert(plan.chunks * plan.chunk_bytes + plan.tokens * plan.unit_bytes <= memory_bytes);
  return plan;
}

std::optional<PassPlan> plan_pass_in_memory(std::uint64_t runs, std::uint64_t memory_bytes,
                                            std::uint64_t merged_bytes,
                                            std::uint64_t max_unit_bytes) {
  PassPlan plan{};
  plan.tokens = default_tokens;
  plan.read_ahead = text_read_ahead_of(runs, memory_bytes);
  plan.large_bytes = memory_bytes / 4;
  // The chunks that every run holds get 3/16 of the memory.
  const std::uint64_t held_chunks = chunks_a_run * runs + plan.read_ahead + 1;
  const std::uint64_t enough_bytes =
      std::clamp(merged_bytes / runs_to_mapped_text_chunks / held_chunks, min_chunk_bytes,
                 max_chunk_bytes) *
      sizeof(PrefixRef) / text_bytes_an_entry;
  std::uint64_t refs_bytes = std::min(memory_bytes / 16 * 3 / held_chunks, enough_bytes);
  refs_bytes -= refs_bytes % page_bytes();
  if (refs_bytes == 0) return std::nullopt;
  plan.chunk_records = refs_bytes / sizeof(PrefixRef);
  plan.chunk_bytes = refs_bytes + plan.chunk_records * in_memory_bytes_a_ref + page_bytes();

  // Each unit that is cut, ready or in flight holds one more, its last.
  const std::uint64_t units = plan.tokens + max_units_ahead;
  const std::uint64_t unit_bytes =
      (memory_bytes - plan.large_bytes - (held_chunks + units) * refs_bytes) /
      in_memory_unit_cost(plan.tokens);
  if (unit_bytes < min_unit_bytes_of(runs)) return std::nullopt;
  plan.unit_bytes = std::min(unit_bytes, max_unit_bytes);
  plan.unit_bytes -= plan.unit_bytes % page_bytes();
  plan.unit_records = plan.unit_bytes / min_in_memory_record_bytes;
  plan.chunks = held_chunks +
                units * (plan.unit_records / plan.chunk_records +
                         2 * plan.unit_bytes / (plan.chunk_records * in_memory_bytes_a_ref) + 1);
  assert(plan.chunk_records != 0 && plan.unit_records != 0);
  assert(plan.chunks * refs_bytes + plan.tokens * plan.unit_bytes <=
         memory_bytes - plan.large_bytes);
  return plan;
}

namespace {

// Returns the largest number of runs for which `plan` returns a plan; 0 if it is below two. Of
// fewer runs than it has a plan for, there must be one, too.
template <class Plan>
std::uint64_t widest(std::uint64_t memory_bytes, Plan plan) {
  // Every run holds at least two pages, which bounds the number of runs.
  const auto several = std::views::iota(std::uint64_t{2}, memory_bytes / page_bytes() + 2);
  const std::uint64_t runs = *std::ranges::partition_point(several, [&](std::uint64_t k) {
    return plan(k).has_value();
  }) - 1;
  return runs > 1 ? runs : 0;
}

}  // namespace

std::uint64_t widest_pass(std::uint32_t record_bytes, std::uint64_t memory_bytes) {
  return widest(memory_bytes, [&](std::uint64_t runs) {
    return plan_pass({runs, record_bytes, memory_bytes});
  });
}

std::uint64_t widest_pass_in_memory(std::uint64_t memory_bytes) {
  return widest(memory_bytes, [&](std::uint64_t runs) {
    return plan_pass_in_memory(runs, memory_bytes, std::numeric_limits<std::uint64_t>::max(),
                               max_text_unit_bytes);
  });
}

std::uint64_t min_memory(std::uint32_t record_bytes) {
  const auto is_too_small = [&](std::uint64_t bytes) {
    return !plan_pass({2, record_bytes, bytes});
  };
  return round_up(gallop(std::numeric_limits<std::uint64_t>::max(), 1, is_too_small), 1024);
}

std::vector<IntermediatePass> plan_intermediate_passes(std::vector<std::uint64_t> records,
                                                       std::size_t widest) {
  assert(widest >= 2);  // a pass over one run would never end
  std::vector<IntermediatePass> passes;
  while (records.size() > widest) {
    const std::size_t count = std::min(widest, records.size() - widest + 1);
    IntermediatePass pass{0, count, 0};
    std::uint64_t sum = 0;
    for (std::size_t end = 0; end < records.size(); ++end) {
      sum += records[end];
      if (end + 1 > count) sum -= records[end - count];
      if (end + 1 == count || (end + 1 > count && sum < pass.records))
        pass = {end + 1 - count, count, sum};
    }
    assert(pass.count >= 2 && pass.first + pass.count <= records.size());
    const auto first = records.begin() + static_cast<std::ptrdiff_t>(pass.first);
    *first = pass.records;
    records.erase(first + 1, first + static_cast<std::ptrdiff_t>(count));
    passes.push_back(pass);
  }
  return passes;
}

}  // namespace corank
