#include "jobs/run_former.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <future>
#include <limits>
#include <utility>

#include "corank/error.hpp"
#include "format/key_words.hpp"
#include "io/hole_puncher.hpp"
#include "plan/input_groups.hpp"
#include "run/chunk_producer.hpp"
#include "run/run_io.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"
#include "util/worker_allowance.hpp"

namespace corank {
namespace {

// Bounds of a chunk, which is sorted in L2, and max records of one: their words must fit, too.
constexpr std::uint64_t min_chunk_bytes = std::uint64_t{16} << 10;
constexpr std::uint64_t max_chunk_bytes = MiB;
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
// The budget over these are the bytes for the merges, and at most for chunks and for long records.
constexpr std::uint64_t merging_divisor = 10;
constexpr std::uint64_t reading_divisor = 16;
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
  return std::max(min_chunk_bytes,
                  round_up(format.record_bytes() + 2 * page_bytes(), page_bytes()));
}

// Returns the max size of a chunk that is worth its memory.
std::uint64_t chunk_ceiling_bytes(std::span<const Run> inputs, bool on_device) {
  if (!on_device) return max_chunk_bytes;
  if (std::ranges::any_of(inputs, &Run::is_stream)) return max_device_chunk_bytes;
  constexpr std::uint64_t min_device_chunks = min_device_blocks * RunFormation::max_block_chunks;
  return std::clamp(round_up(total_bytes(inputs) / min_device_chunks, page_bytes()),
                    max_chunk_bytes, max_device_chunk_bytes);
}

PassPlan reading_plan(const RecordFormat& format, std::uint64_t chunk_bytes, unsigned threads,
                      bool on_device, std::uint64_t batch_blocks = 1) {
  constexpr std::uint64_t block_chunks = RunFormation::max_block_chunks;
  PassPlan plan{};
  plan.tokens = on_device ? device_blocks_in_flight : threads + 2;
  plan.read_ahead = read_ahead;
  plan.chunks =
      plan.read_ahead + block_chunks + plan.tokens * (on_device ? block_chunks : batch_blocks) + 2;
  plan.chunk_bytes = plan.unit_bytes = chunk_bytes;
  // Direct I/O reads whole pages, so that a chunk needs room for one more at each end.
  const std::uint64_t records = format.traits().has_fixed_size
                                    ? (chunk_bytes - 2 * page_bytes()) / format.record_bytes()
                                    : chunk_bytes / variable_record_bytes;
  plan.chunk_records = plan.unit_records =
      on_device ? records : std::min(records, max_chunk_records);
  if (on_device) {
    plan.unit_records *= block_chunks;
    plan.unit_bytes *= block_chunks;
  }
  return plan;
}

// Returns how many chunks the memory for reading and sorting holds. A thread that sorts a block
// holds its words and other data, about twice the block's size, and the sorted blocks of its batch.
std::uint64_t chunks_held(std::span<const Run> inputs, const RecordFormat& format, unsigned threads,
                          std::uint64_t batch_blocks) {
  const std::uint64_t read =
      std::ranges::all_of(inputs, &Run::is_in_memory)
          ? 0
          : reading_plan(format, chunk_floor_bytes(format), threads, false, batch_blocks).chunks;
  return read + (threads + 1) * (batch_blocks == 1 ? 2 : 2 + batch_blocks);
}

// Returns how many blocks a batch has: as many as a load of `load_bytes` wants, and as `part_bytes`
// for reading and sorting have room for.
std::uint64_t batch_blocks_of(std::span<const Run> inputs, const RecordFormat& format,
                              unsigned threads, std::uint64_t part_bytes,
                              std::uint64_t load_bytes) {
  if (!format.traits().has_fixed_size || format.record_bytes() > max_batched_record_bytes) return 1;
  if (std::ranges::none_of(inputs, &Run::is_stream))
    load_bytes = std::min(load_bytes, total_bytes(inputs));
  const std::uint64_t block_bytes = std::max(chunk_floor_bytes(format), max_chunk_bytes);
  if (load_bytes / block_bytes <= few_blocks) return 1;
  std::uint64_t blocks =
      std::bit_floor(std::min(load_bytes / (wanted_runs * block_bytes), max_batch_blocks));
  while (blocks > 1 && chunks_held(inputs, format, threads, blocks) * block_bytes > part_bytes)
    blocks /= 2;
  return blocks;
}

// Returns the bytes of a budget for the merges.
std::uint64_t merging_bytes_of(std::uint64_t budget_bytes, const RecordFormat& format,
                               const Options& options) {
  const std::uint64_t partitions = std::max(options.parts, 1u);
  const bool is_fixed = format.traits().has_fixed_size;
  return std::max(
      {budget_bytes / merging_divisor,
       is_fixed ? 0 : std::min(budget_bytes / max_merging_divisor, enough_merging_bytes),
       options.temporary_compression
           ? std::clamp(budget_bytes / 2, min_decoding_bytes, enough_decoding_bytes)
           : 0,
       partitions * min_memory(format.record_bytes())});
}

struct Division {
  SortMemory memory;
  std::uint64_t needed_bytes;  // `memory` is meaningless for a smaller budget
};

// Divides `budget_bytes`, of which the merges get `merging_bytes`. Each of the groups of inputs
// sorts on `threads` threads.
Division divide(std::span<const Run> inputs, const RecordFormat& format, std::uint64_t num_groups,
                unsigned threads, std::uint64_t budget_bytes, std::uint64_t merging_bytes,
                std::optional<std::uint64_t> load_bytes, bool on_device) {
  std::uint64_t decoder_bytes = 0;
  for (const Run& input : inputs)
    decoder_bytes = std::max(decoder_bytes, input.input().memory_bytes);
  decoder_bytes *= std::min<std::uint64_t>(inputs.size(), num_groups * read_ahead);
  const std::uint64_t floor_bytes = chunk_floor_bytes(format);
  const std::uint64_t part_bytes = budget_bytes / reading_divisor / num_groups;
  const std::uint64_t batch_blocks =
      on_device
          ? 1
          : batch_blocks_of(inputs, format, threads, part_bytes, load_bytes.value_or(budget_bytes));
  const std::uint64_t chunks = on_device ? reading_plan(format, floor_bytes, threads, true).chunks
                                         : chunks_held(inputs, format, threads, batch_blocks);
  const std::uint64_t chunk_bytes =
      std::clamp(round_up(part_bytes / chunks, page_bytes()), floor_bytes,
                 std::max(floor_bytes, chunk_ceiling_bytes(inputs, on_device)));
  const std::uint64_t large_bytes =
      format.traits().has_fixed_size ? 0 : std::max(part_bytes, 2 * chunk_bytes);
  SortMemory memory{};
  memory.num_groups = num_groups;
  memory.batch_blocks = batch_blocks;
  memory.reading = reading_plan(format, chunk_bytes, threads, on_device, batch_blocks);
  memory.reading.large_bytes = large_bytes;
  memory.reading_bytes = num_groups * (chunks * chunk_bytes + large_bytes) + decoder_bytes;
  const std::uint64_t others = merging_bytes + memory.reading_bytes;
  const std::uint64_t min_load_bytes =
      load_bytes ? 0 : num_groups * (large_bytes + min_blocks_of_load * chunk_bytes);
  memory.merging_bytes = merging_bytes;
  memory.num_loads = 1;
  memory.load_bytes = load_bytes.value_or(budget_bytes - others);
  return {memory, others + min_load_bytes};
}

// Returns on how many threads a group of inputs sorts, beside one that reads it.
unsigned threads_of_group(unsigned threads, std::uint64_t num_groups) {
  return num_groups == 1 ? threads : static_cast<unsigned>(divide_up(threads, num_groups)) + 1;
}

// Divides the budget. Inputs are read in as many groups as it has room for; kept runs must follow
// one another in the input, and limits apply to whole loads, so these leave one group. Throws
// Error, which names the min budget, if it is too small. A larger budget needs more, too, as its
// parts grow with it.
SortMemory divide_budget(std::span<const Run> inputs, const PassRunner::Context& context,
                         const Budget& budget, std::optional<std::uint64_t> load_bytes,
                         bool on_device) {
  const RecordFormat& format = context.format.input();
  const auto division = [&](std::uint64_t bytes, std::uint64_t num_groups) {
    return divide(inputs, format, num_groups, threads_of_group(context.threads, num_groups), bytes,
                  merging_bytes_of(bytes, format, context.options), load_bytes, on_device);
  };
  const bool in_turn = on_device || context.options.resume || context.options.query.limit;
  for (std::uint64_t groups = in_turn ? 1 : useful_groups(inputs, context.threads);; --groups) {
    const Division found = division(budget.bytes(), groups);
    if (found.needed_bytes <= budget.bytes() &&
        (groups == 1 || found.memory.reading.chunk_bytes >= min_grouped_chunk_bytes))
      return found.memory;
    if (groups == 1) break;
  }
  std::uint64_t enough = division(budget.bytes(), 1).needed_bytes;
  while (division(enough, 1).needed_bytes > enough) enough = division(enough, 1).needed_bytes;
  throw_error(
      ErrorCode::memory,
      "the memory budget leaves {} bytes for buffers, too few to sort these records; {} is enough",
      budget.bytes(), setting_is(Setting::memory, std::to_string(budget.whole_for(enough))));
}

}  // namespace

RunFormer::RunFormer(std::vector<Run> inputs, const PassRunner::Context& context, Budget& budget,
                     PassTotals& totals, std::optional<std::uint64_t> load_bytes)
    : inputs_(std::move(inputs)),
      context_(context),
      budget_(budget),
      totals_(totals),
      operators_(context.format.reading_operators()),
      on_device_(fits_device()),
      memory_(divide_budget(inputs_, context, budget, load_bytes, on_device_)),
      keys_(make_key_words(context.format.input().keys().layout())),
      order_{&context.format.input().keys(), OutputOrder::Kind::none} {
  const bool is_known = std::ranges::none_of(inputs_, &Run::is_stream);
  // A terminator may be added to each.
  if (is_known) input_bytes_ = total_bytes(inputs_) + inputs_.size();
  if (is_known) memory_.load_bytes = std::min(memory_.load_bytes, input_bytes_);
  charged_bytes_ = load_bytes ? 0 : memory_.load_bytes;
  budget.take(memory_.reading_bytes + charged_bytes_);
  // Records of variable length are read one chunk after another, which is slow if it is direct.
  // Several threads take neighbouring chunks, so that huge pages would seldom be dropped.
  const FormatTraits& traits = context.format.input().traits();
  io_ = std::ranges::all_of(inputs_, &Run::is_in_memory)
            ? "memory"
            : choose_io(inputs_, context.options.io, !on_device_ && !traits.may_skip, 0,
                        traits.has_fixed_size ? memory_.reading.chunk_bytes : 0);
  limit_runs(std::max(context.options.parts, 1u));
  if (!load_bytes) divide_loads();
}

bool RunFormer::suits_device(const MergeFormat& format, const Options& options) {
  return format.input().traits().has_fixed_size && !format.reading_operators() &&
         !options.query.limit;
}

// Returns whether a device sorts the records. Small budgets hold too few of its larger blocks.
bool RunFormer::fits_device() const {
  const RecordFormat& format = context_.format.input();
  const std::uint64_t floor_bytes = chunk_floor_bytes(format);
  return context_.backends.uses_cuda() && suits_device(context_.format, context_.options) &&
         budget_.bytes() / reading_divisor >=
             reading_plan(format, floor_bytes, context_.threads, true).chunks * floor_bytes;
}

std::uint64_t RunFormer::num_spilled() const {
  const std::uint64_t loads = divide_up(input_bytes_, memory_.load_bytes);
  if (loads <= memory_.num_loads) return 0;
  return loads - std::max<std::uint64_t>(memory_.num_loads - 1, 1);
}

std::uint64_t RunFormer::late_bytes() const {
  return num_spilled() * HolePuncher::max_late_bytes(memory_.load_bytes);
}

// Sets how many runs the merges can take, and blocks so large that they are not more. In a merge,
// mapped runs take memory for chunks. So do all runs that count bytes, unless all are in memory.
void RunFormer::limit_runs(std::size_t partitions) {
  const std::uint64_t bytes = memory_.merging_bytes / partitions;
  if (!context_.format.input().traits().has_fixed_size) {
    const std::uint64_t widest = widest_pass(0, bytes);
    memory_.max_batches = {widest_pass_in_memory(bytes), widest, widest};
  } else if (context_.format.counts_bytes()) {
    // Its merges copy all records to chunks.
    const std::uint64_t widest = widest_pass(keys_->record_bytes(), bytes / 2);
    memory_.max_batches = {widest, widest, widest};
  } else {
    const std::uint64_t all = std::max(bytes / page_bytes(), min_blocks_of_load);
    memory_.max_batches = {all, all, std::min(all, widest_pass(keys_->record_bytes(), bytes))};
  }
  // Blocks fill at least half of these bytes on average.
  memory_.block_bytes = on_device_
                            ? memory_.reading.unit_bytes
                            : std::max(memory_.reading.chunk_bytes,
                                       2 * memory_.load_bytes / memory_.max_batches.in_memory);
  if (memory_.block_bytes != memory_.reading.chunk_bytes) memory_.batch_blocks = 1;
}

// Divides the memory for runs among several loads, unless all records fit in it.
void RunFormer::divide_loads() {
  constexpr std::uint64_t min_batches = 8;  // of a load
  const std::uint64_t loads =
      may_fit() ? expected_loads_of_pipes : divide_up(input_bytes_, memory_.load_bytes);
  const std::uint64_t min_bytes =
      memory_.num_groups *
      (memory_.reading.large_bytes + min_blocks_of_load * memory_.reading.unit_bytes);
  auto& [in_memory, with_mapped, mapped] = memory_.max_batches;
  if (loads == 1 || usual_loads * memory_.num_groups * std::max(loads, min_batches) > mapped ||
      memory_.load_bytes < usual_loads * min_bytes)
    return;
  memory_.num_loads = usual_loads;
  memory_.load_bytes /= usual_loads;
  for (std::uint64_t* max : {&in_memory, &with_mapped, &mapped}) *max /= usual_loads;
}

// Makes the device ready, and pins the inputs if they are in memory. Leaves the blocks to the CPU
// if no device holds one.
void RunFormer::make_sorter() {
  const PassPlan& reading = memory_.reading;
  PassPlan plan = reading;
  sorter_ = context_.backends.make_sorter(context_.format.input().keys(), context_.threads, plan);
  on_device_ = sorter_ && plan.unit_records >= reading.chunk_records;
  if (!on_device_) {
    sorter_.reset();
    memory_.block_bytes = reading.chunk_bytes;
    return;
  }
  memory_.block_bytes = plan.unit_records * context_.format.input().record_bytes();
  pinned_ = pin(*sorter_, inputs_, {});
}

void RunFormer::begin() {
  if (on_device_) make_sorter();
  const Options& options = context_.options;
  const bool keeps_all_equals = options.query.on_equal == OnEqual::keep;
  const RecordFormat& format = context_.format.input();
  const bool counts_bytes =
      !format.traits().has_fixed_size || std::ranges::any_of(inputs_, &Run::is_stream);
  for (const std::span<const Run> inputs : group_inputs(inputs_, memory_.num_groups)) {
    const Pass pass{.counts_bytes = counts_bytes,
                    .runs = inputs,
                    .format = format,
                    .plan = memory_.reading,
                    .operators = operators_.get(),
                    .limit = keeps_all_equals ? context_.format.load_limit()
                                              : std::numeric_limits<std::uint64_t>::max(),
                    .output = order_,
                    .backend = nullptr,
                    .sorter = sorter_.get(),
                    .writers = {},
                    .in_place = {},
                    .threads = threads_of_group(context_.threads, memory_.num_groups),
                    .stop = options.stop,
                    .checksum = false,
                    .fingerprint = context_.fingerprint,
                    .fingerprints = {},
                    .progress = context_.progress,
                    .trace = context_.trace,
                    .partition = static_cast<unsigned>(groups_.size())};
    groups_.emplace_back(pass, *keys_, memory_, options.query.limit.has_value(), totals_);
  }
}

RunFormer::Group::Group(const Pass& with, const detail::KeyWords& keys, const SortMemory& memory,
                        bool checks_batches, PassTotals& totals)
    : pass(with),
      formation(pass, keys, memory.block_bytes, memory.batch_blocks, checks_batches, totals) {}

Load RunFormer::next_load() {
  assert(groups_.empty() || !at_end());
  if (groups_.empty()) begin();
  const std::uint64_t load_bytes = memory_.load_bytes + aligned_bytes();
  if (!pool_)
    pool_.emplace(round_up(load_bytes + stream_margin_bytes, page_bytes()), memory_.num_loads,
                  nullptr, BufferPool::Pages::huge);
  Load load{.memory = pool_->lease(), .parts = {}, .records = 0, .end = {}};
  load.parts = next_parts(load.memory.bytes().first(load_bytes));
  if (std::ranges::all_of(load.parts, [](const auto& part) { return part.runs.empty(); }))
    add_memory({}, load.parts.front());  // the inputs have no records
  load.records = records_;
  if (at_end())
    load.end = {static_cast<std::uint32_t>(inputs_.size()), 0};
  else if (groups_.size() == 1)
    load.end = groups_.front().formation.position();
  return load;
}

// Returns the bytes of a load that are left free because the batches of a device begin at pages. A
// batch is one block, which ends where the next chunk does not fit or is one too many.
std::uint64_t RunFormer::aligned_bytes() const {
  if (!on_device_) return 0;
  const std::uint64_t max_blocks = 2 * divide_up(memory_.load_bytes, memory_.block_bytes) +
                                   inputs_.size() / RunFormation::max_block_chunks + 1;
  return max_blocks * page_bytes();
}

// Sorts the next records of each group; those that have not ended share the memory.
std::vector<Load::Part> RunFormer::next_parts(std::span<std::byte> memory) {
  const auto num_open =
      static_cast<std::uint64_t>(std::ranges::count(groups_, false, &Group::at_end));
  const std::uint64_t share_bytes =
      num_open == 1 ? memory.size() : memory.size() / num_open / page_bytes() * page_bytes();
  MaxBatches max = memory_.max_batches;
  for (std::uint64_t* const of : {&max.in_memory, &max.with_mapped, &max.mapped})
    *of = std::max<std::uint64_t>(*of / num_open, 1);
  const WorkerAllowance allowance(context_.threads + static_cast<unsigned>(num_open));
  std::vector<std::future<Load::Part>> parts;
  for (Group& group : groups_) {
    // The only group is filled by this thread, once it waits for the part.
    const auto launch = num_open == 1 ? std::launch::deferred : std::launch::async;
    const std::span<std::byte> share =
        group.at_end ? std::span<std::byte>() : memory.first(share_bytes);
    memory = memory.subspan(share.size());
    parts.push_back(
        std::async(launch, [this, &group, share, max] { return next_part(group, share, max); }));
  }
  std::vector<Load::Part> made;
  for (std::future<Load::Part>& part : parts) made.push_back(part.get());
  for (const Load::Part& part : made) records_ += part.records;
  return made;
}

// Sorts the next records of a group into `memory`.
Load::Part RunFormer::next_part(Group& group, std::span<std::byte> memory,
                                const MaxBatches& max) const {
  leave_memory_to_thread();
  Load::Part part{};
  if (group.at_end) return part;
  FormedRuns formed = group.formation.fill(memory, max);
  group.at_end = group.formation.at_end();
  part.fingerprint = formed.fingerprint;
  part.records = formed.records;
  part.pinned = std::move(formed.pinned);
  const std::uint32_t counted_bytes = context_.format.record_bytes();
  for (const FormedRun& run : formed.runs)
    if (run.input) {
      // With compressed temporary runs, all runs count bytes.
      const Run& given = group.pass.runs[*run.input];
      const Run input = counted_bytes == 1 ? given.in_bytes() : given;
      const auto first = static_cast<std::uint64_t>(run.bytes.data() - input.in_place(0));
      part.runs.push_back(input.subspan(first / counted_bytes, run.bytes.size() / counted_bytes));
    } else {
      add_memory(run.bytes, part);
    }
  return part;
}

void RunFormer::add_memory(std::span<const std::byte> bytes, Load::Part& part) const {
  part.runs.emplace_back(bytes, "the sorted records in memory", context_.format.record_bytes());
  part.runs.back().stop_on(context_.options.stop);
}

void RunFormer::finish() {
  assert(!groups_.empty() && at_end());
  for (Group& group : groups_) {
    group.formation.finish();
    records_ += group.formation.records_left_out();
  }
  groups_.clear();
  sorter_.reset();
  for (const Run& input : inputs_) input.check_unchanged();
  budget_.give_back(memory_.reading_bytes);
}

void RunFormer::free_loads() {
  assert(pool_->available() == memory_.num_loads);
  pool_.reset();
  budget_.give_back(std::exchange(charged_bytes_, 0));
}

}  // namespace corank
