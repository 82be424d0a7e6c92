// Benchmarks sorts of records in memory, in place, against __gnu_parallel::sort, a copy by all
// threads, and the link to the GPU.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bench_peers.hpp"
#include "bench_records.hpp"
#include "corank/sort.hpp"
#include "kernels/backend/link.hpp"

using namespace corank;
using namespace corank::bench;

namespace {

void copy_by_all_threads(std::span<const std::byte> from, std::span<std::byte> to) {
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, from.size(), std::size_t{4} << 20),
                    [&](const auto& range) {
                      std::memcpy(to.data() + range.begin(), from.data() + range.begin(),
                                  range.size());
                    });
}

template <class Record>
void sort_as(std::span<std::byte> records) {
  const auto first = reinterpret_cast<Record*>(records.data());
  __gnu_parallel::sort(first, first + records.size() / sizeof(Record));
}

void sort_by_gnu(std::span<std::byte> records, std::uint32_t record_bytes) {
  if (record_bytes == 8) sort_as<IntegerRecord<8>>(records);
  if (record_bytes == 16) sort_as<IntegerRecord<16>>(records);
  if (record_bytes == 100) sort_as<TextRecord<100>>(records);
}

int run(int argc, char** argv) {
  CLI::App app("Sorts records in memory, beside __gnu_parallel::sort, a copy and the link.");
  std::uint64_t bytes = std::uint64_t{1} << 30;
  std::vector<std::uint32_t> record_bytes{8, 16, 100};
  int repetitions = 5;
  std::string output;
  Options options;
  app.add_option("--bytes", bytes, "of all records; three times as much memory is needed")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--record", record_bytes, "bytes of a record: 8, 16, 100")
      ->delimiter(',')
      ->check(CLI::IsMember({8, 16, 100}));
  app.add_option("--repetitions", repetitions, "of each case; medians are shown");
  app.add_option("--device", options.devices, "numbers of the GPUs to sort on")->delimiter(',');
  app.add_option("-m,--memory", options.memory_bytes, "for buffers beside the records")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("-o,--output", output, "write OUTPUT.md and OUTPUT.json");
  CLI11_PARSE(app, argc, argv);

  const bool cuda = find_cuda_device(0).usable;
  const TwoBuffers buffers(bytes, cuda);
  nlohmann::ordered_json report = begin_report(bytes, repetitions);
  std::string table = fmt::format(
      "# Sorting in memory\n\n{}, {}, {}, commit {}; {} MiB of random records, medians of {} "
      "interleaved repetitions, GB/s. corank verifies what it sorts. Written by "
      "`bench-sort-memory -o`.\n\n"
      "| bytes | link, both ways | copy | __gnu_parallel::sort | corank, CPU | corank, CUDA |\n"
      "|--:|--:|--:|--:|--:|--:|\n",
      cuda ? buffers.registrar->device() : "no GPU", report["machine"].get<std::string>(),
      report["date"].get<std::string>(), report["commit"].get<std::string>(), bytes >> 20,
      repetitions);
  fmt::print("{}", table);
  for (const std::uint32_t size : record_bytes) {
    const Kind& kind = *std::ranges::find(kinds, size, &Kind::record_bytes);
    options.record = Schema::parse(kind.schema);
    const auto all = buffers.first.bytes().first(bytes / size * size);
    const auto sorted = buffers.second.bytes().first(all.size());
    fill_random(all, 46, kind);
    const std::uint64_t sum = sum_of_keys(all, kind);
    std::vector<double> copies, others, on_cpu, on_device, links;
    const auto time_sort = [&](std::vector<double>& seconds, const auto& sort) {
      copies.push_back(seconds_of([&] { copy_by_all_threads(all, sorted); }));
      seconds.push_back(seconds_of([&] { sort(sorted); }));
      if (!is_sorted(sorted, kind) || sum_of_keys(sorted, kind) != sum)
        throw std::runtime_error("the sort is wrong");
    };
    const auto by_corank = [&](std::span<std::byte> records) { corank::sort(records, options); };
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      time_sort(others, [&](auto records) { sort_by_gnu(records, size); });
      options.backend = BackendChoice::cpu;
      time_sort(on_cpu, by_corank);
      if (!cuda) continue;
      options.backend = BackendChoice::cuda;
      time_sort(on_device, by_corank);
      links.push_back(measure_link(options.devices).both);
    }
    const auto rate = [&](const std::vector<double>& seconds) {
      return seconds.empty()
                 ? std::string("-")
                 : fmt::format("{:.2f}", static_cast<double>(all.size()) / median(seconds) / 1e9);
    };
    const std::string link = cuda ? fmt::format("{:.1f}", median(links) / 1e9) : "-";
    add_case(output, table, report,
             fmt::format("| {} | {} | {} | {} | {} | {} |", size, link, rate(copies), rate(others),
                         rate(on_cpu), rate(on_device)),
             {{"record_bytes", size},
              {"copy_seconds", copies},
              {"gnu_parallel_seconds", others},
              {"cpu_seconds", on_cpu},
              {"cuda_seconds", on_device},
              {"link_both_bytes_per_second", links}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return report_errors("bench-sort-memory", [&] { return run(argc, argv); });
}
