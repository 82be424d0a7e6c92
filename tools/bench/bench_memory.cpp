// Benchmarks merges from memory to memory through the whole pipeline, against a copy by the same
// pipeline and against the links to the GPUs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "bench_peers.hpp"
#include "bench_records.hpp"
#include "corank/merge.hpp"
#include "kernels/backend/link.hpp"

using namespace corank;
using namespace corank::bench;

namespace {

int run(int argc, char** argv) {
  CLI::App app("Merges from memory into memory, beside copies and the link.");
  std::uint64_t bytes = std::uint64_t{1} << 30;
  std::vector<std::uint32_t> record_bytes{8, 16, 100};
  std::vector<std::uint64_t> ks{2, 16, 256, 1024};
  int repetitions = 5;
  std::string output;
  Options options;
  app.add_option("--bytes", bytes, "of all runs together; twice as much memory is needed")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--record", record_bytes, "bytes of a record: 8, 16, 100")
      ->delimiter(',')
      ->check(CLI::IsMember({8, 16, 100}));
  app.add_option("-k", ks, "numbers of runs")->delimiter(',');
  app.add_option("--repetitions", repetitions, "of each case; medians are shown");
  app.add_flag_callback(
      "--cpu", [&] { options.backend = BackendChoice::cpu; }, "the CPU backend");
  app.add_option("--device", options.devices, "numbers of the GPUs to merge on")->delimiter(',');
  app.add_option("-T,--threads", options.threads, "threads; without it, all cores");
  app.add_option("-o,--output", output, "write OUTPUT.md and OUTPUT.json");
  CLI11_PARSE(app, argc, argv);
  const bool cuda = options.backend != BackendChoice::cpu && find_cuda_device(0).usable;
  if (cuda) options.backend = BackendChoice::cuda;
  const TwoBuffers buffers(bytes, cuda);
  nlohmann::ordered_json report = begin_report(bytes, repetitions);
  report["device"] = cuda ? buffers.registrar->device() : "none";
  std::string table = fmt::format(
      "# Merging from memory into memory\n\n{}, {}, {}, commit {}; {} MiB in all, medians of {} "
      "interleaved repetitions, GB/s of input. The merge without verification, as it is by "
      "default, and of that the pipeline alone, without its preparations. Copy-only is not "
      "verified either. Written by `bench-memory -o`.\n\n"
      "| bytes | k | copy-only | not verified | merge | pipeline alone |{}\n"
      "|--:|--:|--:|--:|--:|--:|{}\n",
      report["device"].get<std::string>(), report["machine"].get<std::string>(),
      report["date"].get<std::string>(), report["commit"].get<std::string>(), bytes >> 20,
      repetitions, cuda ? " link, both ways | pipeline / link |" : " pipeline / copy-only |",
      cuda ? "--:|--:|" : "--:|");
  fmt::print("{}", table);
  for (const std::uint32_t size : record_bytes)
    for (const std::uint64_t k : ks) {
      const Kind& kind = *std::ranges::find(kinds, size, &Kind::record_bytes);
      options.record = Schema::parse(kind.schema);
      const std::uint64_t run_records = bytes / k / size;
      std::vector<std::span<const std::byte>> runs;
      for (std::uint64_t i = 0; i < k; ++i) {
        const auto run = buffers.first.bytes().subspan(i * run_records * size, run_records * size);
        fill_sorted(run, i, kind);
        runs.push_back(run);
      }
      const auto all = buffers.first.bytes().first(k * run_records * size);
      const auto out = buffers.second.bytes().first(all.size());

      std::vector<double> copies, merges, verified, pipelines, links;
      for (int repetition = 0; repetition < repetitions; ++repetition) {
        options.verify = false;
        options.copy_only = true;
        copies.push_back(seconds_of([&] { merge(runs, out, options); }));
        options.copy_only = false;
        merges.push_back(seconds_of([&] { merge(runs, out, options); }));
        options.verify = true;
        Stats stats;
        verified.push_back(seconds_of([&] { stats = merge(runs, out, options); }));
        pipelines.push_back(stats.pipeline_seconds);
        if (cuda) links.push_back(measure_link(options.devices).both);
        if (repetition == 0 &&
            (!is_sorted(out, kind) || sum_of_keys(all, kind) != sum_of_keys(out, kind)))
          throw std::runtime_error("the merge is wrong");
      }
      const auto rate = [&](const std::vector<double>& seconds) {
        return static_cast<double>(all.size()) / median(seconds) / 1e9;
      };
      std::string line = fmt::format("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |", size, k,
                                     rate(copies), rate(merges), rate(verified), rate(pipelines));
      if (cuda)
        line += fmt::format(" {:.1f} | {:.2f} |", median(links) / 1e9,
                            rate(pipelines) * 1e9 / median(links));
      else
        line += fmt::format(" {:.2f} |", rate(pipelines) / rate(copies));
      fmt::print("{}\n", line);
      std::fflush(stdout);
      table += line + '\n';
      report["cases"].push_back({{"record_bytes", size},
                                 {"k", k},
                                 {"copy_only_seconds", copies},
                                 {"merge_seconds", verified},
                                 {"unverified_seconds", merges},
                                 {"pipeline_seconds", pipelines},
                                 {"link_both_bytes_per_second", links}});
    }
  write_report(output, table, report);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return report_errors("bench-memory", [&] { return run(argc, argv); });
}
