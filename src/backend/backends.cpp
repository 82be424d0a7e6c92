#include "backend/backends.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <utility>

#include "backend/cpu_backend.hpp"
#include "corank/error.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "util/buffer_pool.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"
#include "util/system_limits.hpp"

namespace corank {
namespace {

// Returns the numbers of the devices that the options name, each once. Without any device it
// returns device 0, which then cannot be found.
std::vector<int> devices_of(const Options& options) {
  std::vector<int> devices = options.devices;
  if (devices.empty())
    for (int number = 0; number < std::max(count_cuda_devices(), 1); ++number)
      devices.push_back(number);
  std::ranges::sort(devices);
  const auto repeated = std::ranges::unique(devices);
  devices.erase(repeated.begin(), repeated.end());
  return devices;
}

// Returns whether a device makes up for its start in a merge of `num_runs` runs, or in a sort if
// that is 0. See docs/tuning.md.
bool is_worth_device(const Options& options, std::uint64_t bytes, std::size_t num_runs) {
  constexpr std::uint64_t max_levels = 8;  // of two-way merges
  constexpr std::uint64_t levels_of_sort = 4 * max_levels;
  const std::uint64_t levels =
      num_runs == 0 ? levels_of_sort
                    : std::clamp<std::uint64_t>(std::bit_width(num_runs - 1), 1, max_levels);
  const std::uint64_t threads = thread_budget(options.threads).value;
  return std::min(bytes, bytes / max_levels * levels / threads) >= options.min_device_bytes;
}

BackendDecision decide(const Options& options, const FormatTraits& traits, std::uint64_t bytes,
                       std::size_t num_runs) {
  if (options.backend == BackendChoice::cpu) return {false, "asked for"};
  const std::string cuda = setting_is(Setting::backend, "cuda");
  const std::string cpu = setting_is(Setting::backend, "cpu");
  const bool reduces_columns = traits.has_text_columns && options.query.on_equal == OnEqual::reduce;
  const std::string cpu_only = reduces_columns ? "columns that are reduced" : traits.cpu_only;
  if (!cpu_only.empty()) {
    if (options.backend == BackendChoice::cuda)
      throw_error(ErrorCode::options, "{} does not read {}; use {} or auto for them", cuda,
                  cpu_only, cpu);
    return {false, fmt::format("{} are read on the CPU", cpu_only)};
  }
  if (options.backend == BackendChoice::automatic && built_with_cuda() &&
      !is_worth_device(options, bytes, num_runs))
    return {false, "the runs hold too little to start a device for"};
  BackendDecision decision{true, "asked for", devices_of(options)};
  for (const int number : decision.devices) {
    const CudaDevice device = find_cuda_device(number);
    if (device.usable) continue;
    if (options.backend == BackendChoice::automatic) return {false, device.description};
    throw_error(ErrorCode::device, "{}: {}; use {} or auto", cuda, device.description, cpu);
  }
  if (options.backend == BackendChoice::automatic) decision.reason = "a usable device was found";
  return decision;
}

// Returns the pages of runs in memory and of their output, without overlaps: a page may hold
// several runs, but can be pinned only once. Joins ranges that are at most `gap_bytes` apart, with
// readable memory between them, since a call for each of many runs is slow. See docs/tuning.md.
std::vector<std::span<const std::byte>> pages_of(std::span<const Run> runs,
                                                 std::span<const std::byte> output,
                                                 std::uint64_t gap_bytes) {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  const auto add = [&](const std::byte* begin, std::size_t bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    if (bytes != 0)
      ranges.emplace_back(address - address % page_bytes(),
                          round_up(address + bytes, page_bytes()));
  };
  for (const Run& run : runs)
    if (run.in_place(0)) add(run.in_place(0), run.bytes());
  add(output.data(), output.size());
  std::ranges::sort(ranges);
  std::vector<std::span<const std::byte>> pages;
  for (std::size_t i = 0; i < ranges.size();) {
    auto [begin, end] = ranges[i++];
    for (; i < ranges.size() && ranges[i].first <= end + gap_bytes; ++i)
      end = std::max(end, ranges[i].second);
    assert(begin < end && (pages.empty() || pages.back().data() + pages.back().size() <=
                                                reinterpret_cast<const std::byte*>(begin)));
    pages.emplace_back(reinterpret_cast<const std::byte*>(begin), end - begin);
  }
  return pages;
}

}  // namespace

Backends::Backends(const Options& options, const FormatTraits& traits, std::uint64_t bytes,
                   std::size_t num_runs)
    : options_(options),
      decision_(decide(options, traits, bytes, num_runs)),
      faults_(decision_.devices.size(), options.strict_backend) {}

std::string Backends::outcome(std::uint64_t units) const {
  if (faults_.first().empty()) return {};
  if (!decision_.cuda) return "the CPU merged what was left to do, since " + decision_.reason;
  if (faults_.units_redone() != 0)
    return fmt::format("the device failed and the CPU merged {} of {} units: {}",
                       faults_.units_redone(), units, faults_.first());
  for (std::size_t d = 0; d < decision_.devices.size(); ++d)
    if (faults_.given_up(d))
      return fmt::format("device {} failed and the others merged its units: {}",
                         decision_.devices[d], faults_.first());
  return "smaller units were merged, because device memory was short: " + faults_.first();
}

std::uint64_t Backends::max_sorted_at_once(const KeyEncoding& encoding) const {
  if (!decision_.cuda) return 0;
  std::uint64_t records = std::numeric_limits<std::uint64_t>::max();
  for (const int device : decision_.devices)
    records = std::min(records, corank::max_sorted_at_once(device, encoding));
  return records;
}

std::vector<std::unique_ptr<Backend>> Backends::make(std::size_t partitions, BackendConfig config,
                                                     PassPlan& plan, std::uint32_t record_bytes) {
  assert(partitions != 0);
  if (decision_.cuda && faults_.all_given_up())
    decision_ = {false, "the device failed: " + faults_.first()};
  for (;;) {
    std::vector<std::unique_ptr<Backend>> backends;
    try {
      while (backends.size() < partitions)
        backends.push_back(make(backends.size(), partitions, config));
      return backends;
    } catch (const DeviceError& fault) {
      if (options_.strict_backend) throw;
      const bool shrunk = fault.out_of_memory() && shrink_to_fit_device(plan, record_bytes);
      if (!shrunk) decision_ = {false, std::string("the device failed: ") + fault.problem()};
      config.unit_records = plan.unit_records;
      config.tokens = plan.tokens;
      config.unit_bytes = plan.unit_bytes;
    }
  }
}

std::unique_ptr<Backend> Backends::make_sorter(const KeyEncoding& encoding, unsigned threads,
                                               PassPlan& plan) {
  auto made = make(1,
                   {.encoding = &encoding,
                    .unit_records = plan.unit_records,
                    .tokens = plan.tokens,
                    .threads = threads,
                    .verify = options_.verify,
                    .sorts = true},
                   plan, encoding.record_bytes());
  return decision_.cuda ? std::move(made.front()) : nullptr;
}

// Returns the backend of one partition. Throws DeviceError if no device can be used for it, or if
// memory is short on one.
std::unique_ptr<Backend> Backends::make(std::size_t partition, std::size_t partitions,
                                        BackendConfig config) {
  if (!decision_.cuda) return make_cpu_backend(config);
  std::vector<std::size_t> usable;
  for (std::size_t d = 0; d < decision_.devices.size(); ++d)
    if (!faults_.given_up(d)) usable.push_back(d);
  std::vector<std::size_t> numbers;
  for (std::size_t u = partition % usable.size(); u < usable.size(); u += partitions)
    numbers.push_back(usable[u]);
  BackendConfig of_device = config;
  of_device.tokens = static_cast<unsigned>(divide_up(config.tokens, numbers.size()));
  std::vector<SetDevice> devices;
  for (const std::size_t number : numbers) try {
      devices.push_back({number, make_cuda_backend(decision_.devices[number], of_device)});
    } catch (const DeviceError& fault) {
      faults_.add(number, fault);
      if (fault.out_of_memory() || faults_.all_given_up()) throw;
    }
  if (devices.empty()) return make(partition, partitions, config);  // on the other devices
  return make_backend_set(std::move(devices), config, faults_);
}

std::vector<std::shared_ptr<void>> pin(Backend& backend, std::span<const Run> runs,
                                       std::span<const std::byte> output) {
  const bool mapped = std::ranges::any_of(runs, &Run::is_mapped);
  std::vector<std::shared_ptr<void>> pinned;
  for (const auto& pages : pages_of(runs, output, mapped ? page_bytes() : 0))
    pinned.push_back(backend.pin(pages, mapped));
  return pinned;
}

}  // namespace corank
