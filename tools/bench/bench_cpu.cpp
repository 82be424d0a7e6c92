// Benchmarks merges in memory: corank::multiway_merge() against the usual alternatives.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench_peers.hpp"
#include "corank/algorithm/multiway_merge.hpp"

namespace {

using namespace corank::bench;

template <class Record>
void copy(const Runs<Record>& runs, std::span<Record> out, unsigned threads) {
  const Record* from = runs.front().data();  // the runs are contiguous
  const std::size_t part = (out.size() + threads - 1) / threads;
  std::vector<std::jthread> workers;
  for (unsigned t = 0; t < threads; ++t)
    workers.emplace_back([=] {
      const std::size_t first = std::min(t * part, out.size());
      std::memcpy(static_cast<void*>(out.data() + first), from + first,
                  std::min(part, out.size() - first) * sizeof(Record));
    });
}

// Computes in registers for about as long as a merge of 256 runs. It shows how threads scale
// without shared memory, and so how many cores the machine provides.
void compute(std::size_t records, unsigned threads) {
  std::vector<std::jthread> workers;
  for (unsigned t = 0; t < threads; ++t)
    workers.emplace_back([=] {
      std::uint64_t state[4] = {t, 1, 2, 3};  // independent, like the lanes of a merge
      for (std::size_t left = 8 * records / threads; left > 0; --left)
        for (std::uint64_t& x : state) x = x * 6364136223846793005u + left;
      [[maybe_unused]] volatile std::uint64_t kept = state[0] ^ state[1] ^ state[2] ^ state[3];
    });
}

struct Case {
  std::uint32_t record_bytes;
  std::size_t k;
  std::vector<std::string> distributions;
  std::vector<unsigned> threads;
};

std::uint64_t random_key(const std::string& distribution, std::size_t run,
                         std::mt19937_64& random) {
  if (distribution == "equal") return 42;
  if (distribution == "disjoint")
    return (std::uint64_t{run} << 40) + random() % (std::uint64_t{1} << 40);
  if (distribution == "zipf") {
    // Rank r of 2^20 with a probability of about 1/r.
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    return static_cast<std::uint64_t>(std::exp2(20 * u)) * 0x9e3779b97f4a7c15u;
  }
  return random();
}

bool single_threaded(const std::string& contender) {
  return contender == "loser tree" || contender == "heap";
}

template <class Record>
struct Input {
  Input(const std::string& distribution, std::size_t k, std::size_t count) : records(count) {
    std::mt19937_64 random(1);
    for (std::size_t r = 0; r < k; ++r) {
      const std::size_t first = count * r / k;
      const std::size_t end = count * (r + 1) / k;
      std::vector<std::uint64_t> keys(end - first);
      for (auto& key : keys) key = random_key(distribution, r, random);
      std::ranges::sort(keys);
      for (std::size_t i = first; i < end; ++i) records[i] = Record::make(keys[i - first], i);
      runs.emplace_back(records.data() + first, end - first);
    }
    expected = records;
    std::stable_sort(expected.begin(), expected.end());
  }

  std::vector<Record> records, expected;
  Runs<Record> runs;  // spans of `records`
};

// Seconds of each repetition, by contender.
using Seconds = std::map<std::string, std::vector<double>>;

// Returns the results by distribution and number of threads. The cases are interleaved, because the
// speed of a shared machine drifts within minutes.
template <class Record>
std::vector<std::vector<Seconds>> measure(const Case& c, std::uint64_t bytes, int repetitions,
                                          const std::vector<std::string>& contenders) {
  const std::size_t count = bytes / sizeof(Record);
  std::vector<Input<Record>> inputs;
  for (const std::string& distribution : c.distributions)
    inputs.emplace_back(distribution, c.k, count);
  std::vector<Record> out(count);
  const std::span<Record> to = out;
  using Work = std::function<void(const Runs<Record>& runs, unsigned threads)>;
  const std::map<std::string, Work> all{
      {"copy", [&](const auto& runs, unsigned threads) { copy(runs, to, threads); }},
      {"compute", [&](const auto&, unsigned threads) { compute(count, threads); }},
      {"corank",
       [&](const auto& runs, unsigned threads) {
         corank::multiway_merge<Record>(runs, to, Record::key_of, threads);
       }},
      {"corank less",
       [&](const auto& runs, unsigned threads) {
         corank::multiway_merge<Record>(runs, to, std::less<Record>{}, threads);
       }},
      {"gnu", [&](const auto& runs, unsigned threads) { merge_by_gnu(runs, to, threads); }},
      {"loser tree", [&](const auto& runs, unsigned) { merge_by_loser_tree(runs, to); }},
      {"heap", [&](const auto& runs, unsigned) { merge_by_heap(runs, to); }},
  };
  const auto take_turn = [&](const Input<Record>& input, unsigned threads, Seconds& seconds) {
    for (const std::string& name : contenders) {
      if (threads > 1 && single_threaded(name)) continue;
      std::memset(static_cast<void*>(out.data()), 0, count * sizeof(Record));
      const auto start = std::chrono::steady_clock::now();
      all.at(name)(input.runs, threads);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      seconds[name].push_back(taken.count());
      if (name == "compute") continue;  // merges nothing
      const auto& wanted = name == "copy" ? input.records : input.expected;
      if (std::memcmp(out.data(), wanted.data(), count * sizeof(Record)) != 0)
        throw std::runtime_error(name + " merged wrongly");
    }
  };
  std::vector<std::vector<Seconds>> seconds(inputs.size(), std::vector<Seconds>(c.threads.size()));
  for (int repetition = 0; repetition < repetitions; ++repetition)
    for (std::size_t d = 0; d < inputs.size(); ++d)
      for (std::size_t t = 0; t < c.threads.size(); ++t)
        take_turn(inputs[d], c.threads[t], seconds[d][t]);
  return seconds;
}

std::vector<std::vector<Seconds>> measure(const Case& c, std::uint64_t bytes, int repetitions,
                                          const std::vector<std::string>& contenders) {
  switch (c.record_bytes) {
    case 8:
      return measure<IntegerRecord<8>>(c, bytes, repetitions, contenders);
    case 16:
      return measure<IntegerRecord<16>>(c, bytes, repetitions, contenders);
    case 100:
      return measure<TextRecord<100>>(c, bytes, repetitions, contenders);
    case 1000:
      return measure<TextRecord<1000>>(c, bytes, repetitions, contenders);
    default:
      throw std::runtime_error("records are of 8, 16, 100 or 1000 bytes");
  }
}

int run(int argc, char** argv) {
  CLI::App app("Merges in memory: this engine beside others. Every result is verified.");
  std::vector<std::string> distributions{"random", "equal", "disjoint", "zipf"};
  std::vector<std::uint32_t> record_bytes{8, 16, 100, 1000};
  std::vector<std::size_t> ks{2, 16, 256, 1024, 4096};
  std::vector<unsigned> threads{1, 2};
  std::vector<std::string> contenders{"copy", "corank", "corank less", "gnu", "loser tree", "heap"};
  std::uint64_t bytes = std::uint64_t{32} << 20;
  int repetitions = 5;
  std::string output;
  app.add_option("--distribution", distributions, "random, equal, disjoint, zipf")->delimiter(',');
  app.add_option("--record", record_bytes, "bytes of a record: 8, 16, 100, 1000")->delimiter(',');
  app.add_option("-k", ks, "numbers of runs")->delimiter(',');
  app.add_option("--threads", threads, "numbers of threads")->delimiter(',');
  app.add_option("--contender", contenders,
                 "who takes part: copy, corank, corank less, gnu, loser tree, heap, and compute, "
                 "which does arithmetic alone")
      ->delimiter(',');
  app.add_option("--bytes", bytes, "of all runs together")->transform(CLI::AsSizeValue(false));
  app.add_option("--repetitions", repetitions, "of each case; medians are shown");
  app.add_option("-o,--output", output, "write OUTPUT.md and OUTPUT.json");
  CLI11_PARSE(app, argc, argv);

  nlohmann::ordered_json report = begin_report(bytes, repetitions);
  std::string table = fmt::format(
      "# Merging in memory\n\n{}, {}, commit {}; {} MiB in all, medians of {} interleaved "
      "repetitions, million records a second and, in brackets, the ratio to "
      "`__gnu_parallel::stable_multiway_merge`. Loser tree and heap know no threads. Written by "
      "`bench-cpu -o`.\n\n| records | bytes | k | threads |",
      report["machine"].get<std::string>(), report["date"].get<std::string>(),
      report["commit"].get<std::string>(), bytes >> 20, repetitions);
  for (const std::string& name : contenders) table += fmt::format(" {} |", name);
  table += "\n|---|---|---|---|";
  for (std::size_t i = 0; i < contenders.size(); ++i) table += "---|";
  table += '\n';
  fmt::print("{}", table);

  const auto report_row = [&](const std::string& distribution, std::uint32_t size, std::size_t k,
                              unsigned t, const Seconds& seconds) {
    const double records = static_cast<double>(bytes / size);
    nlohmann::ordered_json row{
        {"distribution", distribution}, {"record_bytes", size}, {"k", k}, {"threads", t}};
    std::string line = fmt::format("| {} | {} | {} | {} |", distribution, size, k, t);
    for (const std::string& name : contenders) {
      if (!seconds.contains(name)) {
        line += " |";
        continue;
      }
      const double rate = records / median(seconds.at(name)) / 1e6;
      row["seconds"][name] = seconds.at(name);
      row["million_records_per_second"][name] = rate;
      line += fmt::format(" {:.{}f}", rate, rate < 100 ? 1 : 0);
      if (seconds.contains("gnu") && name != "gnu")
        line += fmt::format(" ({:.2f})", median(seconds.at("gnu")) / median(seconds.at(name)));
      line += " |";
    }
    add_case(output, table, report, line, row);
  };
  for (const std::uint32_t size : record_bytes)
    for (const std::size_t k : ks) {
      const auto seconds =
          measure({size, k, distributions, threads}, bytes, repetitions, contenders);
      for (std::size_t d = 0; d < distributions.size(); ++d)
        for (std::size_t t = 0; t < threads.size(); ++t)
          report_row(distributions[d], size, k, threads[t], seconds[d][t]);
    }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return report_errors("bench-cpu", [&] { return run(argc, argv); });
}
