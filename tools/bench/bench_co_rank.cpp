// Measures the cost of a k-way co-rank cut, over keys in memory and by probing files.
//
// Usage: bench-co-rank [RUNS [KEYS [FOLDER]]]
//
// By default 1024 runs of 1048576 keys of 8 bytes; the file benchmark works in FOLDER. The keys are
// random, so a cut touches memory that is in no cache.
#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <vector>

#include "corank/algorithm/co_rank.hpp"
#include "io/file.hpp"
#include "run/rank_search.hpp"
#include "tools/corank/work_folder.hpp"

using namespace corank;

namespace {

using Keys = std::vector<std::uint64_t>;

// Returns random keys in ascending order: sums of random gaps.
Keys random_run(std::size_t run, std::uint64_t count) {
  std::mt19937_64 random(run);
  Keys keys(count);
  std::uint64_t key = 0;
  for (std::uint64_t& next : keys) next = key += random() >> 24;
  return keys;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the bytes that this process has read so far, from files and from the page cache.
std::uint64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string name;
  std::uint64_t bytes = 0;
  io >> name >> bytes;
  return bytes;
}

void require(bool condition, const char* what) {
  if (condition) return;
  fmt::print(stderr, "bench-co-rank: {}\n", what);
  std::exit(1);
}

// Exits unless the positions sum to the rank and no record before the cut sorts after the rest.
void verify(const Cut& cut, const std::vector<Keys>& runs) {
  std::uint64_t sum = 0;
  std::pair<std::uint64_t, std::size_t> last{0, 0};
  std::pair<std::uint64_t, std::size_t> next{~std::uint64_t{0}, runs.size()};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::uint64_t position = cut.position[i];
    sum += position;
    if (position > 0) last = std::max(last, {runs[i][position - 1], i});
    if (position < runs[i].size()) next = std::min(next, {runs[i][position], i});
  }
  require(sum == cut.rank && last <= next, "a cut is wrong");
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t k = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024;
  const std::uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1 << 20;
  require(k != 0 && count != 0, "usage: bench-co-rank [RUNS [KEYS [FOLDER]]]");
  std::vector<Keys> runs(k);
  tbb::parallel_for(std::size_t{0}, k, [&](std::size_t i) { runs[i] = random_run(i, count); });
  const std::vector<std::uint64_t> counts(k, count);
  std::mt19937_64 random(1);
  const auto random_rank = [&] { return random() % (k * count); };

  std::vector<double> times;
  std::uint64_t probes = 0;
  for (int i = 0; i < 15; ++i) {
    Cut cut;
    const std::uint64_t rank = random_rank();
    times.push_back(seconds_of([&] {
      cut = co_rank(
          rank, counts, [&](std::size_t run, std::uint64_t at) { return runs[run][at]; },
          std::less<>());
    }));
    verify(cut, runs);
    co_rank(
        rank, counts,
        [&](std::size_t run, std::uint64_t at) {
          ++probes;
          return runs[run][at];
        },
        std::less<>());
  }
  fmt::print("in memory: {} runs of {} keys: {:.2f} ms a cut (median of {}), {} probes\n", k, count,
             1e3 * median(times), times.size(), probes / times.size());

  if (argc <= 3) return 0;
  require(std::filesystem::is_directory(argv[3]), "FOLDER has to be there");
  const WorkFolder folder(argv[3]);
  const Schema schema = Schema::parse("key:u64");
  const KeyEncoding encoding(schema, {{0}});
  std::vector<Run> files;
  for (std::size_t i = 0; i < k; ++i) {
    const auto path = folder / fmt::format("run-{:05}.bin", i);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(runs[i].data()),
               static_cast<std::streamsize>(8 * count));
    files.emplace_back(path, schema.record_bytes,
                       Run::Opening{.keep_open = i + 100 < descriptor_limit()});
  }
  times.clear();
  std::uint64_t read = 0;
  ProbeThreads threads;
  for (int i = 0; i < 5; ++i) {
    Cut cut;
    const std::uint64_t rank = random_rank();
    const std::uint64_t before = bytes_read();
    times.push_back(seconds_of([&] { cut = cut_runs(rank, files, encoding, threads); }));
    read = std::max(read, bytes_read() - before);
    verify(cut, runs);
  }
  fmt::print(
      "in files:  {} runs of {} keys: {:.0f} ms a cut (median of {}), {:.1f} KiB read a run, {} "
      "rounds\n",
      k, count, 1e3 * median(times), times.size(),
      static_cast<double>(read) / static_cast<double>(k) / 1024, threads.rounds() / times.size());
}
