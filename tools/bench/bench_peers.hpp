// Shared by the CPU benchmarks: record types, alternative merges, and reports.
#pragma once

// clang-format off
#include <parallel/algorithm>  // first: the other header depends on it
#include <parallel/multiway_merge.h>
// clang-format on

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <queue>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu_backend.hpp"
#include "corank/key.hpp"

namespace corank::bench {

// A record of `Bytes` bytes with an integer key.
template <std::size_t Bytes>
struct IntegerRecord {
  std::uint64_t key;
  std::byte payload[Bytes - 8];

  static IntegerRecord make(std::uint64_t key, std::uint64_t id) {
    IntegerRecord record{key, {}};
    std::memcpy(record.payload, &id, sizeof id);
    return record;
  }
  friend bool operator<(const IntegerRecord& a, const IntegerRecord& b) { return a.key < b.key; }
  static constexpr auto key_of = &IntegerRecord::key;
};

template <>
struct IntegerRecord<8> {
  std::uint64_t key;

  static IntegerRecord make(std::uint64_t key, std::uint64_t) { return {key}; }
  friend bool operator<(const IntegerRecord& a, const IntegerRecord& b) { return a.key < b.key; }
  static constexpr auto key_of = &IntegerRecord::key;
};

// A record of `Bytes` bytes whose key is its first ten bytes.
template <std::size_t Bytes>
struct TextRecord {
  unsigned char key[10];
  std::byte payload[Bytes - 10];

  static TextRecord make(std::uint64_t key, std::uint64_t id) {
    TextRecord record{};
    const std::uint64_t big_endian = __builtin_bswap64(key);
    std::memcpy(record.key, &big_endian, 8);
    std::memcpy(record.payload, &id, sizeof id);
    return record;
  }
  friend bool operator<(const TextRecord& a, const TextRecord& b) {
    return std::memcmp(a.key, b.key, sizeof a.key) < 0;
  }
  static constexpr auto key_of = [](const TextRecord& record) {
    std::uint64_t head;
    std::uint16_t tail;
    std::memcpy(&head, record.key, 8);
    std::memcpy(&tail, record.key + 8, 2);
    return Key<2>{{__builtin_bswap64(head), std::uint64_t{__builtin_bswap16(tail)} << 48}};
  };
};

// Tournament tree for a k-way merge; each inner node holds the loser of its match. `before(i, j)`
// returns true if the next record of source i precedes that of source j; an exhausted source must
// come last. Source: Knuth, "The Art of Computer Programming", volume 3, section 5.4.1.
template <class Before>
class LoserTree {
 public:
  LoserTree(std::size_t sources, Before before) : before_(before), nodes_(2 * sources) {
    // Sources are the leaves `sources` to `2 * sources - 1` of an implicit binary tree.
    for (std::size_t i = 0; i < sources; ++i) nodes_[sources + i] = i;
    for (std::size_t node = sources - 1; node > 0; --node) {
      const std::size_t i = nodes_[2 * node], j = nodes_[2 * node + 1];
      nodes_[node] = before_(j, i) ? j : i;
    }
    nodes_[0] = nodes_[1];
    // From the root down, replaces each winner with the loser of its match.
    for (std::size_t node = 1; node < sources; ++node)
      nodes_[node] = nodes_[nodes_[2 * node] == nodes_[node] ? 2 * node + 1 : 2 * node];
  }

  std::size_t winner() const { return nodes_[0]; }

  // Restores the tree after the winner's source has advanced.
  void replay() {
    std::size_t source = nodes_[0];
    for (std::size_t node = (nodes_.size() / 2 + source) / 2; node > 0; node /= 2)
      if (before_(nodes_[node], source)) std::swap(nodes_[node], source);
    nodes_[0] = source;
  }

 private:
  Before before_;
  std::vector<std::size_t> nodes_;
};

template <class Record>
using Runs = std::vector<std::span<const Record>>;

template <class Record>
void merge_by_loser_tree(Runs<Record> runs, std::span<Record> out) {
  LoserTree tree(runs.size(), [&](std::size_t i, std::size_t j) {
    if (runs[i].empty() || runs[j].empty()) return runs[j].empty() && (!runs[i].empty() || i < j);
    return i < j ? !(runs[j].front() < runs[i].front()) : runs[i].front() < runs[j].front();
  });
  for (Record& record : out) {
    auto& run = runs[tree.winner()];
    record = run.front();
    run = run.subspan(1);
    tree.replay();
  }
}

template <class Record>
void merge_by_heap(Runs<Record> runs, std::span<Record> out) {
  const auto later = [&](std::size_t i, std::size_t j) {
    return i < j ? runs[j].front() < runs[i].front() : !(runs[i].front() < runs[j].front());
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> heap(later);
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (!runs[i].empty()) heap.push(i);
  for (Record& record : out) {
    const std::size_t i = heap.top();
    heap.pop();
    record = runs[i].front();
    runs[i] = runs[i].subspan(1);
    if (!runs[i].empty()) heap.push(i);
  }
}

template <class Record>
void merge_by_gnu(const Runs<Record>& runs, std::span<Record> out, unsigned threads) {
  // GNU's loser tree takes pointers to mutable records, although it does not change them.
  std::vector<std::pair<Record*, Record*>> pairs;
  for (const auto& run : runs) {
    auto* first = const_cast<Record*>(run.data());
    pairs.push_back({first, first + run.size()});
  }
  const auto length = static_cast<std::ptrdiff_t>(out.size());
  if (threads == 1) {
    __gnu_parallel::stable_multiway_merge(pairs.begin(), pairs.end(), out.data(), length,
                                          std::less<Record>{}, __gnu_parallel::sequential_tag{});
  } else {
    omp_set_num_threads(static_cast<int>(threads));
    __gnu_parallel::stable_multiway_merge(
        pairs.begin(), pairs.end(), out.data(), length, std::less<Record>{},
        __gnu_parallel::parallel_tag{static_cast<std::uint16_t>(threads)});
  }
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

inline std::string output_of(const char* command) {
  std::string text;
  if (FILE* pipe = ::popen(command, "r")) {
    char buffer[256];
    while (std::fgets(buffer, sizeof buffer, pipe)) text += buffer;
    ::pclose(pipe);
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

inline std::string machine() {
  return fmt::format("{}, {} cores", cpu_model(), std::thread::hardware_concurrency());
}

// Returns the fields that every report begins with.
inline nlohmann::ordered_json begin_report(std::uint64_t bytes, int repetitions) {
  return {{"machine", machine()},
          {"date", fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)))},
          {"commit", output_of("git describe --always --dirty 2>/dev/null")},
          {"bytes", bytes},
          {"repetitions", repetitions}};
}

// Writes OUTPUT.md and OUTPUT.json, unless `output` is empty. It is called after each case, so that
// an interrupted benchmark keeps its results.
inline void write_report(const std::string& output, const std::string& table,
                         const nlohmann::ordered_json& report) {
  if (output.empty()) return;
  std::ofstream(output + ".md") << table;
  std::ofstream(output + ".json") << report.dump(1) << '\n';
}

// Prints a case's row of the table and adds it to the report.
inline void add_case(const std::string& output, std::string& table, nlohmann::ordered_json& report,
                     const std::string& line, const nlohmann::ordered_json& row) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
  table += line + '\n';
  report["cases"].push_back(row);
  write_report(output, table, report);
}

// Runs the benchmark, prints an exception, and returns the exit code of main().
inline int report_errors(const char* name, const std::function<int()>& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 2;
  }
}

}  // namespace corank::bench
