#include "plan/pass_planner.hpp"

#include <algorithm>
#include <numeric>

#include "corank/text_key.hpp"
#include "util/buffer_pool.hpp"
#include "util/math.hpp"

namespace corank {
namespace {

constexpr unsigned tokens = 4;
constexpr std::uint64_t max_chunk_bytes = std::uint64_t{1} << 20;
constexpr std::uint64_t min_chunk_bytes = std::uint64_t{128} << 10;
// Below these a unit costs more to cut than to merge.
constexpr std::uint64_t min_unit_bytes = std::uint64_t{16} << 10;
constexpr std::uint64_t min_unit_bytes_a_run = 512;
constexpr std::uint64_t max_wide_unit_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t runs_to_units = 32;
// Keys and locators are 12 bytes and more a record: units of tiny records are bounded by these.
constexpr std::uint64_t max_unit_records = std::uint64_t{16} << 20;

// Of a chunk of records of variable length, one entry stands for so many bytes, its own among them;
// records that are shorter on the average leave some of the rest unused.
constexpr std::uint64_t text_bytes_an_entry = 42;
constexpr std::uint64_t min_text_chunk_bytes = std::uint64_t{16} << 10;
constexpr std::uint64_t min_text_record_bytes = 16;
// Buffers, in bytes for each byte of a unit: of chunks at worst 6 for each unit in flight and the
// next, and an output for each.
constexpr std::uint64_t text_unit_cost = 6 * (tokens + 1) + tokens + 1;

// Of very many runs the chunks are small: more of them keep a device busy.
std::uint64_t read_ahead_of(std::uint64_t runs) {
  return std::clamp<std::uint64_t>(runs / 32, std::clamp<std::uint64_t>(runs, 4, 64), 1024);
}

// Why so many chunks: the records of the units in flight and of the unit that is being gathered
// are at most (tokens + 1) units; in each run they start anywhere in a chunk, and one more chunk
// reaches beyond the last record that is known to come next: so two more a run.
std::uint64_t chunks_needed(std::uint64_t runs, std::uint64_t read_ahead,
                            std::uint64_t unit_records, std::uint64_t chunk_records) {
  return 2 * runs + read_ahead + 1 + (tokens + 1) * unit_records / chunk_records;
}

// The most records, no more than `records`, that fill whole pages. As many as they are where they
// are too few for that to be a small difference.
std::uint64_t in_whole_pages(std::uint64_t records, std::uint32_t record_bytes) {
  const std::uint64_t fill = records_of_pages(record_bytes);
  return records < 16 * fill ? records : records - records % fill;
}

}  // namespace

std::uint64_t enough_unit_bytes(std::uint64_t runs, std::uint64_t bytes_a_run,
                                std::uint64_t merged_bytes) {
  return std::min({runs * bytes_a_run, max_wide_unit_bytes, merged_bytes / runs_to_units});
}

std::optional<PassPlan> plan_pass(std::uint64_t runs, std::uint32_t record_bytes,
                                  std::uint64_t memory_bytes, std::uint64_t merged_bytes,
                                  std::uint64_t max_unit_bytes, std::uint64_t edge_bytes,
                                  std::uint64_t runs_to_chunks) {
  const std::uint64_t pass_min_chunk_bytes = round_up(record_bytes + edge_bytes, page_bytes());
  // At least half of a chunk is filled, so twice a chunk leaves room for a record.
  const std::uint64_t pass_min_unit_bytes =
      round_up(std::max(min_unit_bytes, runs * min_unit_bytes_a_run), page_bytes()) +
      2 * pass_min_chunk_bytes;
  PassPlan plan{};
  plan.tokens = tokens;
  plan.read_ahead = read_ahead_of(runs);

  // Half for the chunks that every run holds, however far the merge is; half, or what they need
  // at least, for units. A unit's bytes stand in chunks and in an output.
  const std::uint64_t units_bytes = (2 * tokens + 1) * pass_min_unit_bytes;
  if (memory_bytes < units_bytes) return std::nullopt;
  const std::uint64_t held_chunks = chunks_needed(runs, plan.read_ahead, 0, 1);
  plan.chunk_bytes = std::min(memory_bytes / 2, memory_bytes - units_bytes) / held_chunks;
  plan.chunk_bytes -= plan.chunk_bytes % page_bytes();
  if (plan.chunk_bytes < pass_min_chunk_bytes) return std::nullopt;
  const std::uint64_t enough_bytes =
      std::clamp(merged_bytes / runs_to_chunks / held_chunks, min_chunk_bytes, max_chunk_bytes);
  plan.chunk_bytes = std::min(plan.chunk_bytes,
                              std::max(round_up(enough_bytes, page_bytes()), pass_min_chunk_bytes));
  plan.chunk_records = in_whole_pages((plan.chunk_bytes - edge_bytes) / record_bytes, record_bytes);

  // Chunks are filled by whole records, so a unit's bytes take a little more than themselves there.
  const std::uint64_t filled_bytes = plan.chunk_records * record_bytes;
  const std::uint64_t left_bytes = memory_bytes - held_chunks * plan.chunk_bytes;
  const auto unit_bytes = static_cast<std::uint64_t>(
      static_cast<double>(left_bytes) * static_cast<double>(filled_bytes) /
      static_cast<double>((tokens + 1) * plan.chunk_bytes + tokens * filled_bytes));
  plan.unit_bytes = std::min(unit_bytes - unit_bytes % page_bytes(),
                             std::max(max_unit_bytes, pass_min_unit_bytes));
  plan.unit_records =
      in_whole_pages(std::min(plan.unit_bytes / record_bytes, max_unit_records), record_bytes);
  plan.unit_bytes = round_up(plan.unit_records * record_bytes, page_bytes());
  plan.chunks = chunks_needed(runs, plan.read_ahead, plan.unit_records, plan.chunk_records);
  return plan;
}

std::optional<PassPlan> plan_text_pass(std::uint64_t runs, std::uint64_t memory_bytes,
                                       std::uint64_t merged_bytes, std::uint64_t max_unit_bytes,
                                       std::uint64_t runs_to_chunks) {
  PassPlan plan{};
  plan.tokens = tokens;
  plan.read_ahead = read_ahead_of(runs);
  plan.large_bytes = memory_bytes / 4;
  memory_bytes -= plan.large_bytes;

  // One more a run than in plan_pass(): a last record without its terminator has its own.
  const std::uint64_t held_chunks = 3 * runs + plan.read_ahead + 1;
  const std::uint64_t pass_min_unit_bytes =
      round_up(std::max(min_unit_bytes, runs * min_unit_bytes_a_run), page_bytes());
  const std::uint64_t units_bytes = pass_min_unit_bytes * text_unit_cost;
  if (memory_bytes < units_bytes) return std::nullopt;
  plan.chunk_bytes = std::min(memory_bytes / 2, memory_bytes - units_bytes) / held_chunks;
  plan.chunk_bytes -= plan.chunk_bytes % page_bytes();
  if (plan.chunk_bytes < min_text_chunk_bytes) return std::nullopt;
  const std::uint64_t enough_bytes =
      std::clamp(merged_bytes / runs_to_chunks / held_chunks, min_chunk_bytes, max_chunk_bytes);
  plan.chunk_bytes = std::min(plan.chunk_bytes, round_up(enough_bytes, page_bytes()));
  plan.chunk_records = plan.chunk_bytes / text_bytes_an_entry;

  const std::uint64_t left_bytes = memory_bytes - held_chunks * plan.chunk_bytes;
  plan.unit_bytes = std::min(left_bytes / text_unit_cost, max_unit_bytes);
  plan.unit_bytes -= plan.unit_bytes % page_bytes();
  plan.unit_records = plan.unit_bytes / min_text_record_bytes;
  // A chunk ends when its entries are full or the next record has no room: so two together are full
  // of records, or each is of entries.
  const std::uint64_t room_bytes = plan.chunk_bytes - plan.chunk_records * sizeof(PrefixRef);
  plan.chunks = held_chunks + (tokens + 1) * (plan.unit_records / plan.chunk_records +
                                              2 * plan.unit_bytes / room_bytes + 1);
  return plan;
}

namespace {

// Whether `fits` holds is a matter of how large its argument is: the largest that it holds for, at
// least 1, up to `most`.
template <class Fits>
std::uint64_t max_that(std::uint64_t most, Fits fits) {
  std::uint64_t low = 1;
  std::uint64_t high = most;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

// The same for the smallest that it holds for.
template <class Fits>
std::uint64_t min_that(Fits fits) {
  std::uint64_t high = 1;
  while (!fits(high)) high *= 2;
  std::uint64_t low = high / 2;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

template <class Plan>
std::uint64_t widest(std::uint64_t memory_bytes, Plan plan) {
  // Every run holds two pages.
  const std::uint64_t runs =
      max_that(memory_bytes / page_bytes() + 2, [&](std::uint64_t k) { return !!plan(k); });
  return runs > 1 ? runs : 0;
}

}  // namespace

std::uint64_t widest_pass(std::uint32_t record_bytes, std::uint64_t memory_bytes) {
  return widest(memory_bytes,
                [&](std::uint64_t runs) { return plan_pass(runs, record_bytes, memory_bytes); });
}

std::uint64_t widest_text_pass(std::uint64_t memory_bytes) {
  return widest(memory_bytes,
                [&](std::uint64_t runs) { return plan_text_pass(runs, memory_bytes); });
}

std::uint64_t min_memory(std::uint32_t record_bytes) {
  return round_up(
      min_that([&](std::uint64_t bytes) { return !!plan_pass(2, record_bytes, bytes); }), 1024);
}

std::uint64_t min_text_memory() {
  return round_up(min_that([](std::uint64_t bytes) { return !!plan_text_pass(2, bytes); }), 1024);
}

std::vector<IntermediatePass> plan_intermediate_passes(std::vector<std::uint64_t> records,
                                                       std::size_t widest) {
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
    const auto first = records.begin() + static_cast<std::ptrdiff_t>(pass.first);
    *first = pass.records;
    records.erase(first + 1, first + static_cast<std::ptrdiff_t>(count));
    passes.push_back(pass);
  }
  return passes;
}

}  // namespace corank
