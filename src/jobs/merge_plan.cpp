// Plans of MergeJob: what it would do, as data.
#include <algorithm>

#include "jobs/merge_job.hpp"
#include "util/math.hpp"
#include "util/system_limits.hpp"

namespace corank {

Plan MergeJob::plan(const std::filesystem::path& path) {
  Plan plan = plan_without_passes(path);
  const std::size_t num_files = std::max(options_.parts, 1u);
  const std::vector<Partition> partitions = partitions_of_output(num_partitions());
  const std::uint64_t widest = budget_.widest(partitions.size());
  choose_reading(partitions);
  std::size_t num_left = runs_.size();
  for (const IntermediatePass& pass : intermediate_.plan(widest)) {
    plan.passes.push_back(
        {pass.first, pass.count, pass.records * format_.record_bytes(),
         "a temporary run in " + folders_for_passes(options_, path).front().string()});
    num_left -= pass.count - 1;
  }
  plan.passes.push_back({0, num_left, plan.input_bytes, path.string()});
  plan.has_direct_output =
      partitions.size() == num_files && wants_direct(options_, plan.input_bytes / num_files);
  const std::uint64_t held = options_.copy_only ? std::min<std::uint64_t>(num_left, 32) : num_left;
  plan.buffers = passes_
                     .plan(last_pass(partitions), std::min(held, widest),
                           std::ranges::any_of(runs_, &Run::is_direct), plan.has_direct_output)
                     .value();
  plan.reading = stats_.io;
  return plan;
}

Plan MergeJob::plan_sort(const std::filesystem::path& path) {
  Plan plan = plan_without_passes(path);
  RunFormer former(std::move(runs_), passes_.context(), budget_, passes_.totals());
  const SortMemory& memory = former.memory();
  plan.num_loads = std::max<std::uint64_t>(divide_up(plan.input_bytes, memory.load_bytes), 1);
  plan.files_at_once = memory.num_groups;
  plan.loads_in_memory = memory.num_loads;
  plan.load_bytes = memory.load_bytes;
  plan.block_bytes = memory.block_bytes;
  plan.batch_blocks = memory.batch_blocks;
  plan.sorter = former.uses_device() ? "cuda" : "cpu";
  const std::uint64_t num_spilled = former.num_spilled();
  const char* runs = num_spilled == 1 ? "a temporary run in " : "temporary runs in ";
  if (num_spilled != 0)
    plan.passes.push_back({0, 0, memory.load_bytes,
                           runs + folders_for_passes(options_, path).front().string(),
                           num_spilled});
  plan.passes.push_back({0, num_spilled, plan.input_bytes, path.string()});
  plan.buffers = memory.reading;
  plan.reading = former.io();
  return plan;
}

Plan MergeJob::plan_without_passes(const std::filesystem::path& path) {
  const Compression compression = compression_of(options_, path);
  if (compression.codec != Codec::none) budget_.reserve(compression);
  collect_backend_stats();
  Plan plan;
  plan.sorts = sorts_;
  plan.is_copy = options_.copy_only;
  plan.num_runs = runs_.size();
  plan.has_known_size = !std::ranges::any_of(runs_, &Run::is_stream);
  plan.records = format_.input().traits().name;
  plan.operators = operator_names(options_.query);
  plan.input_bytes = run_records_ * format_.record_bytes();
  plan.num_partitions = num_partitions();
  plan.has_temporary_output =
      options_.parts > plan.num_partitions && !has_limited_output() && !known_output_bytes();
  plan.compression = compression.codec == Codec::none ? "" : suffix_of(compression.codec).substr(1);
  plan.backend = stats_.backend;
  plan.backend_reason = stats_.backend_reason;
  plan.threads = threads_;
  plan.threads_reason = thread_budget(options_.threads).reason;
  plan.memory_reason = memory_budget(options_.memory_bytes).reason;
  plan.memory_bytes = budget_.bytes();
  plan.is_verified = options_.verify;
  return plan;
}

}  // namespace corank
