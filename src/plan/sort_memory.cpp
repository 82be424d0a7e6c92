#include "plan/sort_memory.hpp"

#include <algorithm>
#include <bit>

#include "corank/error.hpp"
#include "plan/input_groups.hpp"
#include "plan/pass_planner.hpp"
#include "util/buffer_pool.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Bounds of a chunk, which is sorted in L2, and max records of one: their words must fit, too.
constexpr std::uint64_t min_sort_chunk_bytes = std::uint64_t{16} << 10;
constexpr std::uint64_t max_sort_chunk_bytes = MiB;
constexpr std::uint64_t max_chunk_records = std::uint64_t{1} << 16;
// Max size of a chunk for a device, whose blocks are large so that runs are few; and min blocks
// of an input, so that reading, sorting and copying overlap.
constexpr std::uint64_t max_device_chunk_bytes = 32 * MiB;
constexpr std::uint64_t min_device_blocks = 16;
constexpr unsigned device_blocks_in_flight = 4;
// Bytes of a chunk per variable-length record, its prefix reference included.
constexpr std::uint64_t variable_record_bytes = 42;
constexpr std::uint64_t read_ahead = 8;  // chunks
// Min size of a chunk for which inputs are read in several groups. Not tuned below this.
constexpr std::uint64_t min_grouped_chunk_bytes = std::uint64_t{64} << 10;
// Loads of more blocks than these are merged in batches, of a power of two of blocks, so that about
// `wanted_runs` are left: two merges of few runs are faster than one of thousands.
// Large records cost more to copy twice than that saves. See docs/tuning.md.
constexpr std::uint64_t few_blocks = 1024, wanted_runs = 128;
constexpr std::uint64_t max_batch_blocks = 32, max_batched_record_bytes = 64;
// Chunks of variable-length records that are sorted together: a merge of fewer runs is faster, but
// each thread must have some blocks to sort. Loads of very many chunks have larger blocks, so that
// about `wanted_blocks` are left. See docs/tuning.md.
constexpr std::uint64_t wanted_blocks = 512, usual_block_chunks = 4, min_blocks_of_thread = 4;
// The budget over these are the bytes for the merges, for long records, and at most for chunks.
// Large chunks make few runs, whose merge is faster; small ones leave room for more records, and
// are enough for the blocks of a device. Merges hold the chunks of variable-length records, so that
// their units are smaller. See docs/tuning.md.
constexpr std::uint64_t fixed_merging_divisor = 10, variable_merging_divisor = 6;
constexpr std::uint64_t long_record_divisor = 16;
constexpr std::uint64_t large_chunk_divisor = 4, small_chunk_divisor = 16;
constexpr std::uint64_t min_blocks_of_load = 4;
// The memory for runs holds this many loads, so that one is formed while another is written, unless
// that leaves more temporary runs than the last pass can merge at once. Fewer would be written in
// part while others wait; more would be shorter. Pipes are expected to be as long as some loads.
constexpr std::uint64_t usual_loads = 3;
constexpr std::uint64_t expected_loads_of_pipes = 100;
// Enough for the merges of variable-length records, which need buffers for every run. Small budgets
// spend more than usual on them, up to a third: loads of few runs would leave memory unused.
constexpr std::uint64_t enough_merging_bytes = 2 * MiB;
constexpr std::uint64_t max_merging_divisor = 3;
// Min and enough for merges of compressed temporary files; small budgets spend up to half on them.
constexpr std::uint64_t min_decoding_bytes = 8 * MiB;
constexpr std::uint64_t enough_decoding_bytes = 16 * MiB;

std::uint64_t chunk_floor_bytes(const RecordFormat& format) {
  return std::max(min_sort_chunk_bytes,
                  round_up(format.record_bytes() + 2 * page_bytes(), page_bytes()));
}

// Returns the max size of a chunk that is worth its memory.
std::uint64_t chunk_ceiling_bytes(std::span<const Run> inputs, bool on_device) {
  if (!on_device) return max_sort_chunk_bytes;
  if (std::ranges::any_of(inputs, &Run::is_stream)) return max_device_chunk_bytes;
  constexpr std::uint64_t min_device_chunks = min_device_blocks * max_block_chunks;
  return std::clamp(round_up(total_bytes(inputs) / min_device_chunks, page_bytes()),
                    max_sort_chunk_bytes, max_device_chunk_bytes);
}

// Each thread holds `batch_chunks` chunks.
PassPlan reading_plan(const RecordFormat& format, std::uint64_t chunk_bytes, unsigned threads,
                      bool on_device, std::uint64_t batch_chunks = 1) {
  PassPlan plan{};
  plan.tokens = on_device ? device_blocks_in_flight : threads + 2;
  plan.read_ahead = read_ahead;
  plan.chunks = plan.read_ahead + max_block_chunks +
                plan.tokens * (on_device ? max_block_chunks : batch_chunks) + 2;
  plan.chunk_bytes = plan.unit_bytes = chunk_bytes;
  // Direct I/O reads whole pages, so that a chunk needs room for one more at each end.
  const std::uint64_t records = format.traits().has_fixed_size
                                    ? (chunk_bytes - 2 * page_bytes()) / format.record_bytes()
                                    : chunk_bytes / variable_record_bytes;
  plan.chunk_records = plan.unit_records =
      on_device ? records : std::min(records, max_chunk_records);
  if (on_device) {
    plan.unit_records *= max_block_chunks;
    plan.unit_bytes *= max_block_chunks;
  }
  return plan;
}

// The blocks that a thread sorts at a time: of one chunk each, which it merges, or one of several.
// All are powers of two.
struct BatchSize {
  std::uint64_t blocks = 1;
  std::uint64_t block_chunks = 1;

  std::uint64_t chunks() const { return blocks * block_chunks; }
};

// Returns how many chunks the memory for reading and sorting holds. A thread that sorts a block
// holds its words and other data, about twice the block's size, and the sorted blocks of its batch.
std::uint64_t chunks_held(std::span<const Run> inputs, const RecordFormat& format, unsigned threads,
                          const BatchSize& batch) {
  const std::uint64_t read =
      std::ranges::all_of(inputs, &Run::is_in_memory)
          ? 0
          : reading_plan(format, chunk_floor_bytes(format), threads, false, batch.chunks()).chunks;
  return read + (threads + 1) * (2 * batch.block_chunks + (batch.blocks == 1 ? 0 : batch.blocks));
}

// Returns the size of batches that a load of `chunks` chunks wants.
BatchSize wanted_batch(std::uint64_t chunks, const RecordFormat& format, unsigned threads) {
  const auto to_power = [](std::uint64_t count) {
    return std::bit_floor(std::max<std::uint64_t>(count, 1));
  };
  if (!format.traits().has_fixed_size) {
    const std::uint64_t wanted =
        std::clamp(chunks / wanted_blocks, usual_block_chunks, max_block_chunks);
    return {1, to_power(std::min(wanted, chunks / (min_blocks_of_thread * (threads + 1))))};
  }
  if (format.record_bytes() > max_batched_record_bytes || chunks <= few_blocks) return {};
  return {to_power(std::min(chunks / wanted_runs, max_batch_blocks)), 1};
}

// Returns the size of batches: as large as a load of `load_bytes` wants, and as `part_bytes` for
// reading and sorting have room for.
BatchSize batch_size_of(std::span<const Run> inputs, const RecordFormat& format, unsigned threads,
                        std::uint64_t part_bytes, std::uint64_t load_bytes) {
  if (std::ranges::none_of(inputs, &Run::is_stream))
    load_bytes = std::min(load_bytes, total_bytes(inputs));
  const std::uint64_t chunk_bytes = std::max(chunk_floor_bytes(format), max_sort_chunk_bytes);
  BatchSize batch = wanted_batch(load_bytes / chunk_bytes, format, threads);
  while (batch.chunks() > 1 &&
         chunks_held(inputs, format, threads, batch) * chunk_bytes > part_bytes)
    batch = {divide_up(batch.blocks, 2), divide_up(batch.block_chunks, 2)};
  return batch;
}

// Returns how often merges hold their records in memory: also in chunks, if they copy fixed-size
// records to these.
std::uint64_t copies_of(const SortNeeds& needs) {
  return needs.counts_bytes && needs.format.traits().has_fixed_size ? 2 : 1;
}

// Returns the bytes of a budget for the merges.
std::uint64_t merging_bytes_of(std::uint64_t budget_bytes, const SortNeeds& needs) {
  const RecordFormat& format = needs.format;
  const std::uint64_t partitions = std::max(needs.options.parts, 1u);
  const bool is_fixed = format.traits().has_fixed_size;
  return std::max(
      {budget_bytes / (is_fixed ? fixed_merging_divisor : variable_merging_divisor),
       is_fixed ? 0 : std::min(budget_bytes / max_merging_divisor, enough_merging_bytes),
       needs.options.temporary_compression
           ? std::clamp(budget_bytes / 2, min_decoding_bytes, enough_decoding_bytes)
           : 0,
       copies_of(needs) * partitions * min_memory(format.record_bytes())});
}

struct Division {
  SortMemory memory;
  std::uint64_t needed_bytes;  // `memory` is meaningless for a smaller budget
};

// Returns the bytes for decompressors of files that are read at the same time.
std::uint64_t decoder_bytes_of(std::span<const Run> inputs, std::uint64_t num_groups) {
  std::uint64_t largest = 0;
  for (const Run& input : inputs) largest = std::max(largest, input.input().memory_bytes);
  return largest * std::min<std::uint64_t>(inputs.size(), num_groups * read_ahead);
}

// Returns on how many threads a group of inputs sorts, beside one that reads it.
unsigned threads_of_group(unsigned threads, std::uint64_t num_groups) {
  return num_groups == 1 ? threads : static_cast<unsigned>(divide_up(threads, num_groups)) + 1;
}

// Divides `budget_bytes`, for one load. Each of `num_groups` groups of inputs gets an equal share.
// `chunk_divisor` bounds the bytes for chunks.
Division divide_among(std::uint64_t num_groups, const SortNeeds& needs, std::uint64_t budget_bytes,
                      std::uint64_t chunk_divisor) {
  const auto& [inputs, format, options, all_threads, counts_bytes, on_device, load_bytes] = needs;
  const unsigned threads = threads_of_group(all_threads, num_groups);
  const std::uint64_t floor_bytes = chunk_floor_bytes(format);
  const std::uint64_t part_bytes = budget_bytes / chunk_divisor / num_groups;
  const BatchSize batch = on_device ? BatchSize()
                                    : batch_size_of(inputs, format, threads, part_bytes,
                                                    load_bytes.value_or(budget_bytes));
  const std::uint64_t chunks = on_device ? reading_plan(format, floor_bytes, threads, true).chunks
                                         : chunks_held(inputs, format, threads, batch);
  const std::uint64_t chunk_bytes =
      std::clamp(round_up(part_bytes / chunks, page_bytes()), floor_bytes,
                 std::max(floor_bytes, chunk_ceiling_bytes(inputs, on_device)));
  const std::uint64_t large_bytes =
      format.traits().has_fixed_size
          ? 0
          : std::max(budget_bytes / long_record_divisor / num_groups, 2 * chunk_bytes);
  SortMemory memory{};
  memory.on_device = on_device;
  memory.num_groups = num_groups;
  memory.threads = threads;
  memory.batch_blocks = batch.blocks;
  memory.block_chunks = batch.block_chunks;
  memory.reading = reading_plan(format, chunk_bytes, threads, on_device, batch.chunks());
  memory.reading.large_bytes = large_bytes;
  memory.reading_bytes =
      num_groups * (chunks * chunk_bytes + large_bytes) + decoder_bytes_of(inputs, num_groups);
  memory.merging_bytes = merging_bytes_of(budget_bytes, needs);
  const std::uint64_t others = memory.merging_bytes + memory.reading_bytes;
  const std::uint64_t min_load_bytes =
      load_bytes ? 0 : num_groups * (large_bytes + min_blocks_of_load * chunk_bytes);
  memory.num_loads = 1;
  memory.load_bytes = load_bytes.value_or(budget_bytes - others);
  return {memory, others + min_load_bytes};
}

// Returns the bytes of a load that holds all inputs, in groups; 0 if unknown. A file that is cut
// between two groups is one input more.
std::uint64_t bytes_of_all(std::span<const Run> inputs, std::uint64_t num_groups) {
  const std::uint64_t bytes = bytes_to_sort(inputs);
  return bytes == 0 ? 0 : bytes + num_groups - 1;
}

// Returns a division for as many groups of inputs as the budget has room for; nothing if it is too
// small for one. Kept runs must follow one another in the input, and limits apply to whole loads,
// so these leave one group. So do plain files that do not fit in memory: each group has temporary
// runs of its own, and to merge more of them costs more than to read faster gains.
std::optional<SortMemory> divide_among_groups(const SortNeeds& needs, std::uint64_t budget_bytes,
                                              std::uint64_t chunk_divisor) {
  const bool in_turn = needs.on_device || needs.options.resume || needs.options.query.limit;
  std::uint64_t groups = in_turn ? 1 : useful_groups(needs.inputs, needs.format, needs.threads);
  for (; groups != 0; --groups) {
    const Division found = divide_among(groups, needs, budget_bytes, chunk_divisor);
    const bool suits =
        groups == 1 || (found.memory.reading.chunk_bytes >= min_grouped_chunk_bytes &&
                        found.memory.load_bytes >= bytes_of_all(needs.inputs, groups));
    if (found.needed_bytes <= budget_bytes && suits) return found.memory;
  }
  return {};
}

// Sets how many runs the merges can take, and blocks so large that they are not more. In a merge,
// mapped runs take memory for chunks. So do all runs that count bytes, unless all are in memory.
void limit_runs(const SortNeeds& needs, SortMemory& memory) {
  const std::uint64_t bytes = memory.merging_bytes / std::max(needs.options.parts, 1u);
  const std::uint32_t record_bytes = needs.format.record_bytes();
  if (!needs.format.traits().has_fixed_size) {
    const std::uint64_t widest = widest_pass(0, bytes);
    memory.max_batches = {widest_pass_in_memory(bytes), widest, widest};
  } else if (needs.counts_bytes) {
    const std::uint64_t widest = widest_pass(record_bytes, bytes / copies_of(needs));
    memory.max_batches = {widest, widest, widest};
  } else {
    const std::uint64_t all = std::max(bytes / page_bytes(), min_blocks_of_load);
    memory.max_batches = {all, all, std::min(all, widest_pass(record_bytes, bytes))};
  }
  assert(memory.max_batches.in_memory != 0);
  memory.block_bytes = needs.on_device ? memory.reading.unit_bytes : block_bytes_on_cpu(memory);
  if (memory.block_bytes != memory.reading.chunk_bytes) memory.batch_blocks = 1;
}

// Divides the memory for runs among several loads, unless all records fit in it.
void divide_loads(std::uint64_t input_bytes, SortMemory& memory) {
  constexpr std::uint64_t min_batches = 8;  // of a load
  const std::uint64_t loads =
      input_bytes == 0 ? expected_loads_of_pipes : divide_up(input_bytes, memory.load_bytes);
  const std::uint64_t min_bytes =
      memory.num_groups *
      (memory.reading.large_bytes + min_blocks_of_load * memory.reading.unit_bytes);
  auto& [in_memory, with_mapped, mapped] = memory.max_batches;
  if (loads == 1 || usual_loads * memory.num_groups * std::max(loads, min_batches) > mapped ||
      memory.load_bytes < usual_loads * min_bytes)
    return;
  memory.num_loads = usual_loads;
  memory.load_bytes /= usual_loads;
  for (std::uint64_t* max : {&in_memory, &with_mapped, &mapped}) *max /= usual_loads;
}

// Small budgets hold too few of a device's blocks, which are large.
bool holds_device_blocks(const SortNeeds& needs, std::uint64_t budget_bytes) {
  const std::uint64_t floor_bytes = chunk_floor_bytes(needs.format);
  return budget_bytes / small_chunk_divisor >=
         reading_plan(needs.format, floor_bytes, needs.threads, true).chunks * floor_bytes;
}

// Returns the division of a budget; nothing if it is too small.
std::optional<SortMemory> divide(const SortNeeds& needs, std::uint64_t budget_bytes) {
  const std::uint64_t input_bytes = bytes_to_sort(needs.inputs);
  std::optional<SortMemory> memory = divide_among_groups(needs, budget_bytes, small_chunk_divisor);
  if (!memory) return {};
  if (!needs.on_device) {
    const std::optional<SortMemory> other =
        divide_among_groups(needs, budget_bytes, large_chunk_divisor);
    const bool spills_more =
        other && other->load_bytes < input_bytes && memory->load_bytes >= input_bytes;
    if (other && !spills_more) memory = other;
  }
  if (input_bytes != 0)
    memory->load_bytes =
        std::min(memory->load_bytes, bytes_of_all(needs.inputs, memory->num_groups));
  limit_runs(needs, *memory);
  if (!needs.load_bytes)
    divide_loads(input_bytes, *memory);
  else if (!can_merge_load(*memory, needs.format.record_bytes()))
    return {};
  return memory;
}

// A larger budget needs more, too, as its parts grow with it.
[[noreturn]] void throw_too_small(const SortNeeds& needs, const Budget& budget) {
  const auto needed = [&](std::uint64_t bytes) {
    return divide_among(1, needs, bytes, small_chunk_divisor).needed_bytes;
  };
  std::uint64_t enough = needed(budget.bytes());
  while (needed(enough) > enough) enough = needed(enough);
  while (!divide(needs, enough)) enough += enough / 8;
  throw_error(
      ErrorCode::memory,
      "the memory budget leaves {} bytes for buffers, too few to sort these inputs; {} is enough",
      budget.bytes(), setting_is(Setting::memory, std::to_string(budget.whole_for(enough))));
}

}  // namespace

std::uint64_t bytes_to_sort(std::span<const Run> inputs) {
  return std::ranges::any_of(inputs, &Run::is_stream) ? 0 : total_bytes(inputs) + inputs.size();
}

std::uint64_t block_bytes_on_cpu(const SortMemory& memory) {
  // Blocks fill at least half of these bytes on average.
  return std::max(memory.block_chunks * memory.reading.chunk_bytes,
                  2 * memory.load_bytes / memory.max_batches.in_memory);
}

bool can_merge_load(const SortMemory& memory, std::uint32_t record_bytes) {
  const std::uint64_t chunk_bytes = memory.reading.chunk_records * record_bytes;
  const std::uint64_t block_chunks =
      std::clamp<std::uint64_t>(memory.block_bytes / chunk_bytes, 1, max_block_chunks);
  return divide_up(memory.load_bytes, block_chunks * memory.batch_blocks * chunk_bytes) <=
         memory.max_batches.in_memory;
}

SortMemory divide_memory(SortNeeds needs, const Budget& budget) {
  needs.on_device = needs.on_device && holds_device_blocks(needs, budget.bytes());
  std::optional<SortMemory> memory = divide(needs, budget.bytes());
  if (!memory && needs.on_device) {
    needs.on_device = false;
    memory = divide(needs, budget.bytes());
  }
  if (!memory) throw_too_small(needs, budget);
  return *memory;
}

}  // namespace corank
