#include "corank/merge.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "corank/check.hpp"
#include "cpu_backend.hpp"
#include "cuda_backend.hpp"
#include "pipeline.hpp"

namespace corank {
namespace {

using Clock = std::chrono::steady_clock;

// Descriptors left to everything but the runs: the output, passes, runs opened for one read.
constexpr std::size_t other_descriptors = 96;

std::vector<Run> open_runs(std::span<const std::filesystem::path> paths,
                           std::uint32_t record_bytes) {
  const std::size_t limit = descriptor_limit();
  const std::size_t keep_open =
      limit > 2 * other_descriptors ? limit - other_descriptors : limit / 4;
  std::vector<Run> runs;
  runs.reserve(paths.size());
  for (const auto& path : paths) runs.emplace_back(path, record_bytes, runs.size() < keep_open);
  return runs;
}

std::uint64_t default_memory_bytes() {
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  return std::min(pages * page_bytes() / 4, std::uint64_t{4} << 30);
}

struct BackendDecision {
  bool cuda;
  std::string reason;
};

BackendDecision decide_backend(const Options& options) {
  if (options.backend == BackendChoice::cpu) return {false, "asked for"};
  const CudaDevice device = find_cuda_device(options.device);
  if (options.backend == BackendChoice::automatic)
    return {device.usable, device.usable ? "a usable device was found" : device.description};
  if (!device.usable)
    throw Error(fmt::format("--backend cuda: {}; use --backend cpu or auto", device.description));
  return {true, "asked for"};
}

// Where passes before the last put their files: where the output needs as much space anyway.
std::filesystem::path folder_for_passes(const std::filesystem::path& output) {
  if (output == "-" || std::filesystem::exists(output))
    if (output == "-" || !std::filesystem::is_regular_file(output))
      return std::filesystem::temp_directory_path();
  return output.has_parent_path() ? output.parent_path() : ".";
}

// A backend finds some record that is out of order; this names the run's first.
[[noreturn]] void throw_first_disorder(const Run& run, const RunDisorder& found,
                                       const Options& options) {
  if (run.is_temporary())
    throw Error(
        fmt::format("{}: a temporary file here did not hold what was written to it; check "
                    "the disk and the memory of this machine",
                    run.path().string()));
  check(run.path(), options.record, options.keys, false);
  throw OutOfOrder(run.path(), found.record, found.record * options.record.record_bytes);
}

}  // namespace

Stats merge(std::span<const std::filesystem::path> paths, const std::filesystem::path& output,
            const Options& options) {
  const auto start = Clock::now();
  const std::uint32_t record_bytes = options.record.record_bytes;
  if (record_bytes == 0) throw Error("Options::record has no fields; use Schema::parse");
  if (paths.empty()) throw Error("no runs are named; name at least one");

  const std::uint64_t memory_bytes =
      options.memory_bytes ? options.memory_bytes : default_memory_bytes();
  const std::uint64_t widest = widest_pass(record_bytes, memory_bytes);
  if (widest == 0)
    throw Error(
        fmt::format("--memory {}: too little to merge records of {} bytes; the smallest "
                    "budget that works is {} bytes",
                    memory_bytes, record_bytes, smallest_memory(record_bytes)));
  const BackendDecision decision = decide_backend(options);
  const unsigned threads =
      options.threads ? options.threads : std::max(std::thread::hardware_concurrency(), 1u);
  const KeyEncoding encoding(options.record, options.keys);

  std::vector<Run> runs = open_runs(paths, record_bytes);
  Stats stats;
  std::vector<std::uint64_t> lengths;
  for (const Run& run : runs) {
    stats.records += run.records();
    lengths.push_back(run.records());
  }
  const std::vector<EarlierPass> earlier = plan_earlier_passes(lengths, widest);
  Progress progress{0, stats.records * record_bytes};
  for (const EarlierPass& pass : earlier) progress.bytes_total += pass.records * record_bytes;

  Writer writer(output, options.overwrite, [&runs](FileIdentity file) {
    return std::ranges::any_of(runs, [&](const Run& run) { return run.identity() == file; });
  });

  PassTotals totals;
  std::atomic<std::uint64_t> checksum = 0;
  auto reported = Clock::now();
  const auto wrote = [&](std::uint64_t bytes) {
    progress.bytes_done += bytes;
    const bool due = Clock::now() - reported >= std::chrono::milliseconds(100);
    if (!options.progress || (!due && progress.bytes_done != progress.bytes_total)) return;
    reported = Clock::now();
    options.progress(progress);
  };
  const auto merge_into = [&](Writer& into, std::span<const Run> pass_runs, bool last) {
    const PassPlan plan =
        plan_pass(pass_runs.size(), record_bytes, memory_bytes,
                  decision.cuda ? largest_cuda_unit_bytes : largest_cpu_unit_bytes)
            .value();
    const BackendConfig config{&encoding, plan.unit_records, plan.tokens, threads};
    const std::unique_ptr<Backend> backend =
        decision.cuda ? make_cuda_backend(options.device, config) : make_cpu_backend(config);
    stats.device = backend->device();
    try {
      run_pass({pass_runs, encoding, plan, *backend, into, threads, options.stop,
                last && options.checksum ? &checksum : nullptr, wrote},
               totals);
    } catch (const RunDisorder& found) {
      throw_first_disorder(pass_runs[found.run], found, options);
    }
    ++stats.passes;
  };

  for (const EarlierPass& pass : earlier) {
    const auto first = runs.begin() + static_cast<std::ptrdiff_t>(pass.first);
    const auto end = first + static_cast<std::ptrdiff_t>(pass.count);
    Writer temporary(folder_for_passes(output));
    merge_into(temporary, {first, end}, false);
    for (const Run& run : std::span(first, end)) run.check_unchanged();
    *first = temporary.into_run(record_bytes);
    runs.erase(first + 1, end);
  }
  merge_into(writer, runs, true);
  for (const Run& run : runs) run.check_unchanged();
  if (options.stop.stop_requested()) throw Interrupted();
  writer.commit();

  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  stats.bytes_read = totals.bytes_read;
  stats.bytes_written = totals.bytes_written;
  stats.units = totals.units;
  stats.busy = {seconds(totals.read), seconds(totals.cut), seconds(totals.merge),
                seconds(totals.write)};
  stats.read_wait_seconds = seconds(totals.read_wait);
  stats.backend = decision.cuda ? "cuda" : "cpu";
  stats.backend_reason = decision.reason;
  stats.memory_peak_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  stats.checksum = checksum;
  stats.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return stats;
}

}  // namespace corank
