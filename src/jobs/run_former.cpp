#include "jobs/run_former.hpp"

#include <algorithm>
#include <cassert>
#include <future>
#include <limits>
#include <numeric>
#include <utility>

#include "format/key_words.hpp"
#include "io/hole_puncher.hpp"
#include "plan/input_groups.hpp"
#include "run/chunk_producer.hpp"
#include "run/run_io.hpp"
#include "util/math.hpp"
#include "util/worker_allowance.hpp"

namespace corank {

RunFormer::RunFormer(std::vector<Run> inputs, const PassRunner::Context& context, Budget& budget,
                     PassTotals& totals, std::optional<std::uint64_t> load_bytes)
    : inputs_(std::move(inputs)),
      context_(context),
      budget_(budget),
      totals_(totals),
      input_bytes_(bytes_to_sort(inputs_)),
      operators_(context.format.reading_operators()),
      memory_(divide_memory({.inputs = inputs_,
                             .format = context.format.input(),
                             .options = context.options,
                             .threads = context.threads,
                             .counts_bytes = context.format.counts_bytes(),
                             .on_device = context.backends.uses_cuda() &&
                                          suits_device(context.format, context.options),
                             .load_bytes = load_bytes},
                            budget)),
      spills_(!load_bytes),
      charged_bytes_(spills_ ? memory_.num_loads * memory_.load_bytes : 0),
      keys_(make_key_words(context.format.input().keys().layout())),
      order_{&context.format.input().keys(), OutputOrder::Kind::none} {
  budget.take(memory_.reading_bytes + charged_bytes_);
  // Records of variable length are read one chunk after another, which is slow if it is direct.
  // Several threads take neighbouring chunks, so that huge pages would seldom be dropped.
  const FormatTraits& traits = context.format.input().traits();
  io_ = std::ranges::all_of(inputs_, &Run::is_in_memory)
            ? "memory"
            : choose_io(inputs_, context.options.io, !memory_.on_device && !traits.may_skip, 0,
                        traits.has_fixed_size ? memory_.reading.chunk_bytes : 0);
}

bool RunFormer::suits_device(const MergeFormat& format, const Options& options) {
  return format.input().traits().has_fixed_size && !format.reading_operators() &&
         !options.query.limit;
}

std::uint64_t RunFormer::num_spilled() const {
  const std::uint64_t loads = divide_up(input_bytes_, memory_.load_bytes);
  if (loads <= memory_.num_loads) return 0;
  return loads - std::max<std::uint64_t>(memory_.num_loads - 1, 1);
}

std::uint64_t RunFormer::late_bytes() const {
  return num_spilled() * HolePuncher::max_late_bytes(memory_.load_bytes);
}

// Makes the device ready, and pins the inputs if they are in memory. Leaves the blocks to the CPU
// if no device holds one.
void RunFormer::make_sorter() {
  const PassPlan& reading = memory_.reading;
  PassPlan plan = reading;
  sorter_ = context_.backends.make_sorter(context_.format.input().keys(), context_.threads, plan);
  const std::uint32_t record_bytes = context_.format.input().record_bytes();
  memory_.block_bytes = plan.unit_records * record_bytes;
  memory_.on_device = sorter_ && plan.unit_records >= reading.chunk_records &&
                      (spills_ || can_merge_load(memory_, record_bytes));
  if (!memory_.on_device) {
    sorter_.reset();
    memory_.block_bytes = block_bytes_on_cpu(memory_);
    return;
  }
  pinned_ = pin(*sorter_, inputs_, {});
}

void RunFormer::begin() {
  if (memory_.on_device) make_sorter();
  const Options& options = context_.options;
  const bool keeps_all_equals = options.query.on_equal == OnEqual::keep;
  const RecordFormat& format = context_.format.input();
  const bool counts_bytes =
      !format.traits().has_fixed_size || std::ranges::any_of(inputs_, &Run::is_stream);
  grouped_inputs_ = group_inputs(inputs_, format, memory_.num_groups);
  for (const std::vector<Run>& inputs : grouped_inputs_) {
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
                    .threads = memory_.threads,
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
    add_memory({}, 0, load.parts.front());  // the inputs have no records
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
  if (!memory_.on_device) return 0;
  const std::uint64_t max_blocks = 2 * divide_up(memory_.load_bytes, memory_.block_bytes) +
                                   inputs_.size() / max_block_chunks + 1;
  return max_blocks * page_bytes();
}

// Returns the bytes of a load of `bytes` bytes for each group: all that it has, if the groups are
// of plain files, which then fit; otherwise those that have not ended get equal shares.
std::vector<std::uint64_t> RunFormer::shares(std::uint64_t bytes) const {
  const auto num_open =
      static_cast<std::uint64_t>(std::ranges::count(groups_, false, &Group::at_end));
  std::vector<std::uint64_t> shares;
  for (const Group& group : groups_)
    shares.push_back(group.at_end        ? 0
                     : num_open == 1     ? bytes
                     : input_bytes_ != 0 ? bytes_to_sort(group.pass.runs)
                                         : bytes / num_open / page_bytes() * page_bytes());
  return shares;
}

// Sorts the next records of each group into its share of `memory`.
std::vector<Load::Part> RunFormer::next_parts(std::span<std::byte> memory) {
  const auto num_open =
      static_cast<std::uint64_t>(std::ranges::count(groups_, false, &Group::at_end));
  const std::vector<std::uint64_t> shares = this->shares(memory.size());
  const auto all = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  assert(all <= memory.size());
  const auto max_of = [&](std::uint64_t share) {
    MaxBatches max = memory_.max_batches;
    for (std::uint64_t* const of : {&max.in_memory, &max.with_mapped, &max.mapped})
      if (share != all) *of = std::max<std::uint64_t>(scaled(*of, share, all), 1);
    return max;
  };
  const WorkerAllowance allowance(context_.threads + static_cast<unsigned>(num_open));
  // The only group is filled by this thread, once it waits for the part.
  const auto launch = num_open == 1 ? std::launch::deferred : std::launch::async;
  std::vector<std::future<Load::Part>> parts;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const std::span<std::byte> share = memory.first(shares[i]);
    memory = memory.subspan(share.size());
    parts.push_back(std::async(launch, [this, &group = groups_[i], share, max = max_of(shares[i])] {
      return next_part(group, share, max);
    }));
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
      part.runs.back().set_fingerprint(run.fingerprint);
    } else {
      add_memory(run.bytes, run.fingerprint, part);
    }
  return part;
}

void RunFormer::add_memory(std::span<const std::byte> bytes, std::uint64_t fingerprint,
                           Load::Part& part) const {
  part.runs.emplace_back(bytes, "the sorted records in memory", context_.format.record_bytes());
  part.runs.back().stop_on(context_.options.stop);
  part.runs.back().set_fingerprint(fingerprint);
}

void RunFormer::check_inputs() const {
  for (const Run& input : inputs_) input.check_unchanged();
}

void RunFormer::finish() {
  assert(!groups_.empty() && at_end());
  check_inputs();
  for (Group& group : groups_) {
    group.formation.finish();
    records_ += group.formation.records_left_out();
  }
  groups_.clear();
  sorter_.reset();
  budget_.give_back(memory_.reading_bytes);
}

void RunFormer::free_loads() {
  assert(pool_->available() == memory_.num_loads);
  pool_.reset();
  budget_.give_back(std::exchange(charged_bytes_, 0));
}

}  // namespace corank
