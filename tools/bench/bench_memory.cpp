// Benchmarks merges from memory to memory through the whole pipeline, against a copy by the same
// pipeline and against the link to the GPU.
#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/parallel_reduce.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench_peers.hpp"
#include "corank/merge.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "kernels/backend/link.hpp"
#include "util/buffer_pool.hpp"

using namespace corank;
using namespace corank::bench;

namespace {

// Hashes `x`.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44d;
  return x ^ (x >> 33);
}

struct Kind {
  std::uint32_t record_bytes;
  const char* schema;
  bool big_endian;  // the key's first eight bytes
};

constexpr Kind kinds[] = {{8, "key:u64", false},
                          {16, "key:u64,value:u64", false},
                          {100, "key:bytes10,value:bytes90", true}};

std::uint64_t key_of(const std::byte* record, const Kind& kind) {
  std::uint64_t key;
  std::memcpy(&key, record, sizeof key);
  return kind.big_endian ? __builtin_bswap64(key) : key;
}

// Fills a sorted run with random keys, each within its own range.
void fill(std::span<std::byte> run, std::uint64_t seed, const Kind& kind) {
  const std::uint64_t records = run.size() / kind.record_bytes;
  const std::uint64_t range = ~std::uint64_t{0} / records;
  tbb::parallel_for(std::uint64_t{0}, records, [&](std::uint64_t i) {
    std::byte* const record = run.data() + i * kind.record_bytes;
    std::uint64_t key = i * range + mix(i ^ mix(seed)) % range;
    if (kind.big_endian) key = __builtin_bswap64(key);
    std::memcpy(record, &key, sizeof key);
    for (std::uint32_t at = sizeof key; at < kind.record_bytes; at += sizeof i) {
      const std::uint64_t word = mix(seed + i * at);
      std::memcpy(record + at, &word, std::min<std::size_t>(sizeof word, kind.record_bytes - at));
    }
  });
}

std::uint64_t sum_of_keys(std::span<const std::byte> records, const Kind& kind) {
  return tbb::parallel_reduce(
      tbb::blocked_range<std::uint64_t>(0, records.size() / kind.record_bytes), std::uint64_t{0},
      [&](const auto& range, std::uint64_t sum) {
        for (std::uint64_t i = range.begin(); i != range.end(); ++i)
          sum += mix(key_of(records.data() + i * kind.record_bytes, kind));
        return sum;
      },
      std::plus<>());
}

bool is_sorted(std::span<const std::byte> records, const Kind& kind) {
  return tbb::parallel_reduce(
      tbb::blocked_range<std::uint64_t>(1, records.size() / kind.record_bytes), true,
      [&](const auto& range, bool sorted) {
        for (std::uint64_t i = range.begin(); i != range.end(); ++i)
          sorted &= key_of(records.data() + (i - 1) * kind.record_bytes, kind) <=
                    key_of(records.data() + i * kind.record_bytes, kind);
        return sorted;
      },
      std::logical_and<>());
}

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

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

  // Registers the buffers once, as a program that merges often would.
  const Schema any = Schema::parse("key:u64");
  const KeyEncoding encoding(any, {});
  std::unique_ptr<Backend> registrar;
  if (cuda) registrar = make_cuda_backend(0, {&encoding, 1024, 1, 16});
  const PinMemory pin = registrar ? registrar->pin_memory() : nullptr;
  bytes = round_up(bytes, page_bytes());
  BufferPool input_pool(bytes, 1, pin), output_pool(bytes, 1, pin);
  const Buffer input = input_pool.lease(), merged = output_pool.lease();

  nlohmann::ordered_json report = begin_report(bytes, repetitions);
  report["device"] = cuda ? registrar->device() : "none";
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
        const auto run = input.bytes().subspan(i * run_records * size, run_records * size);
        fill(run, i, kind);
        runs.push_back(run);
      }
      const auto all = input.bytes().first(k * run_records * size);
      const auto out = merged.bytes().first(all.size());

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
        if (cuda) links.push_back(measure_link(0).both);
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
