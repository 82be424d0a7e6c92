// Tests of cuts of many runs: the same as those of a search in memory, in few rounds of reads.
#include "run/run_search.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "corank/algorithm/co_rank.hpp"
#include "run/block_reader.hpp"
#include "run/rank_search.hpp"
#include "run/record_search.hpp"
#include "run/work_unit.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "util/math.hpp"

using namespace corank;
using namespace corank::test;

namespace {

using Positions = std::vector<std::uint64_t>;
using Keys = std::vector<std::uint64_t>;

constexpr std::uint64_t max_rounds = 70;

// Returns `count` sorted keys of run number `run`, distributed in one of several ways.
Keys keys_of(const std::string& distribution, std::size_t run, std::uint64_t count,
             Random& random) {
  Keys keys(count);
  for (std::uint64_t& key : keys) {
    key = random() >> 1;
    if (distribution == "few") key = below(random, 3);
    if (distribution == "disjoint") key = run << 32 | key >> 32;
    if (distribution == "shifted") key = (key >> (1 + run % 20)) + (run % 3 << 40);
    if (distribution == "far") key = run == 3 ? key >> 40 : key;
  }
  std::ranges::sort(keys);
  return keys;
}

// Sparse files, which hold nothing but zeros.
std::vector<Run> zeros(const TemporaryFolder& folder, std::size_t count, std::uint64_t bytes,
                       std::uint32_t record_bytes) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string path = folder / std::to_string(i);
    write_file(path, {});
    REQUIRE(::truncate(path.c_str(), static_cast<off_t>(bytes)) == 0);
    runs.emplace_back(path, record_bytes, Run::Opening{});
  }
  return runs;
}

std::uint64_t sum(const Positions& positions) {
  return std::reduce(positions.begin(), positions.end());
}

// Returns where every tenth line of the text begins.
Positions some_starts(const std::string& text) {
  Positions starts;
  std::uint64_t line = 0;
  for (std::size_t at = 0; at != text.size(); at = text.find('\n', at) + 1)
    if (line++ % 10 == 0) starts.push_back(at);
  return starts;
}

// Checks that all lines before the cut sort before the others.
void check_cut(const Positions& cut, const std::vector<std::string>& texts) {
  std::string last, first = "~";
  for (std::size_t run = 0; run < texts.size(); ++run) {
    const std::string& text = texts[run];
    const std::uint64_t at = cut[run];
    REQUIRE((at == 0 || text[at - 1] == '\n'));
    if (at != 0) {
      const std::size_t begin = at == 1 ? 0 : text.rfind('\n', at - 2) + 1;
      last = std::max(last, text.substr(begin, at - 1 - begin));
    }
    if (at != text.size()) first = std::min(first, text.substr(at, text.find('\n', at) - at));
  }
  CHECK(last < first);
}

}  // namespace

TEST_CASE("cuts of many runs are those of a search in memory, in few rounds") {
  const KeyEncoding encoding(Schema::parse("key:u64"), {{0}});
  Random random(46);
  for (const char* distribution : {"uniform", "few", "disjoint", "shifted", "far"}) {
    for (const std::size_t count : {1, 2, 17, 300}) {
      INFO(fmt::format("{}, {} runs", distribution, count));
      std::vector<Keys> keys;
      std::vector<Run> runs;
      Positions lengths;
      for (std::size_t i = 0; i < count; ++i)
        keys.push_back(
            keys_of(distribution, i, i % 13 == 5 ? i % 2 : below(random, 20'000), random));
      for (const Keys& run : keys) {
        runs.emplace_back(std::as_bytes(std::span(run)), "memory", 8);
        lengths.push_back(run.size());
      }
      const std::uint64_t records = sum(lengths);
      for (int i = 0; i < 12; ++i) {
        const std::uint64_t rank = i < 2 ? i * records : below(random, records + 1);
        ProbeThreads threads;
        const Positions found = cut_runs(rank, runs, encoding, threads).position;
        CHECK(found ==
              co_rank(
                  rank, lengths, [&](auto run, auto at) { return keys[run][at]; }, std::less<>())
                  .position);
        CHECK(threads.rounds() <= 16);
      }
    }
  }
}

TEST_CASE("keys are found wherever they are, the first ones by one read") {
  Options options;
  options.record = Schema::parse("key:u64");
  const auto format = make_format(options);
  Random random(48);
  for (const char* distribution : {"uniform", "few"}) {
    const Keys keys = keys_of(distribution, 0, 20'000, random);
    const Run run(std::as_bytes(std::span(keys)), "memory", 8);
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t key = i < 4 ? i : keys[below(random, keys.size())] + i % 2;
      const RowBound bound = format->key_of(std::as_bytes(std::span(&key, 1)));
      const auto [first, end] = std::ranges::equal_range(keys, key);
      BlockReader reader(run);
      CHECK(find_record(reader, *format, bound, Bound::lower, 0, run.records()) ==
            static_cast<std::uint64_t>(first - keys.begin()));
      BlockReader other(run);
      const std::uint64_t reads = other.reads_of([&](BlockReader& searched) {
        CHECK(find_near_start(searched, *format, bound) ==
              static_cast<std::uint64_t>(end - keys.begin()));
      });
      if (end - keys.begin() < 256) CHECK(reads == 1);
    }
  }
}

TEST_CASE("cuts of runs out of order end, or tell that") {
  const KeyEncoding encoding(Schema::parse("key:u64"), {{0}});
  Random random(47);
  int told = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<Keys> keys{keys_of("uniform", 0, 5000, random),
                           keys_of("uniform", 1, 5000, random)};
    if (round % 2 == 0)
      std::ranges::reverse(keys[0]);
    else
      std::swap(keys[0][below(random, 5000)], keys[0][below(random, 5000)]);
    std::vector<Run> runs;
    for (const Keys& run : keys) runs.emplace_back(std::as_bytes(std::span(run)), "memory", 8);
    const std::uint64_t rank = 1 + below(random, 9998);
    try {
      ProbeThreads threads;
      const Positions cut = cut_runs(rank, runs, encoding, threads).position;
      CHECK(sum(cut) == rank);
    } catch (const RunOutOfOrder& found) {
      CHECK(found.run == 0);
      ++told;
    }
  }
  CHECK(told >= 20);
}

TEST_CASE("cuts of 300 runs of 10 TB take at most 70 rounds") {
  const TemporaryFolder folder;
  const std::uint64_t bytes = std::uint64_t{33} << 30;
  SECTION("of records") {
    const KeyEncoding encoding(Schema::parse("key:u64,value:u64"), {{0}});
    const std::vector<Run> runs = zeros(folder, 300, bytes, 16);
    // Records of the first runs precede their equals.
    const std::uint64_t records = runs[0].records(), rank = 200 * records + 12'345'678;
    ProbeThreads threads;
    const Positions cut = cut_runs(rank, runs, encoding, threads).position;
    CHECK(cut[199] == records);
    CHECK(cut[200] == 12'345'678);
    CHECK(cut[201] == 0);
    CHECK(threads.rounds() <= max_rounds);
  }
  SECTION("of lines") {
    Options options;
    options.text.emplace();
    options.text->terminator = '\0';
    const auto format = make_format(options);
    const std::vector<Run> runs = zeros(folder, 300, bytes, 1);
    ProbeThreads threads;
    const std::uint64_t rank = 200 * bytes;
    const std::vector<Positions> cuts = cuts_at({&rank, 1}, runs, *format, threads);
    CHECK(cuts.front() == Positions(300, bytes));
    CHECK(threads.rounds() <= max_rounds);
  }
}

TEST_CASE("much text is cut in few rounds, though samples lie beside the rank") {
  Options options;
  options.text.emplace();
  const auto format = make_format(options);
  std::vector<std::string> texts(4);
  for (int line = 0; line < 500'000; ++line)
    for (std::size_t run = 0; run < texts.size(); ++run)
      texts[run] += fmt::format("{:032}\n", 4 * line + static_cast<int>(run));
  std::vector<Run> runs;
  for (const std::string& text : texts)
    runs.emplace_back(std::as_bytes(std::span(text)), "memory", 1);
  const std::uint64_t bytes = 4 * texts[0].size();
  for (std::uint64_t part = 1; part < 50; ++part) {
    const std::uint64_t rank = part_of(bytes, part, 50);
    ProbeThreads threads;
    const Positions cut = cuts_at({&rank, 1}, runs, *format, threads).front();
    const std::uint64_t found = std::reduce(cut.begin(), cut.end());
    CHECK(found + bytes / 1024 >= rank);
    CHECK(found <= rank + bytes / 1024);
    CHECK(threads.rounds() <= max_rounds);
  }
}

TEST_CASE("text is cut in few rounds on both sides of a line longer than all blocks") {
  Options options;
  options.text.emplace();
  const auto format = make_format(options);
  std::string text;
  for (int line = 0; line < 3000; ++line) text += fmt::format("{:07}\n", line);
  const std::uint64_t begin = text.size();
  text += "05" + std::string(40'000'000, 'm') + "\n";
  const std::uint64_t end = text.size();
  for (int line = 600'000; line < 603'000; ++line) text += fmt::format("{:07}\n", line);
  const Run run(std::as_bytes(std::span(text)), "memory", 1);
  for (const std::uint64_t rank : {begin + 9'000'000, begin + 31'000'000}) {
    ProbeThreads threads;
    const std::uint64_t found = cuts_at({&rank, 1}, {&run, 1}, *format, threads).front().front();
    CHECK(found + text.size() / 1024 >= (rank - begin < end - rank ? begin : end));
    CHECK(found <= (rank - begin < end - rank ? begin : end) + text.size() / 1024);
    CHECK(threads.rounds() <= 8 * 40);  // a look at the whole line takes 40
  }
}

TEST_CASE("a line far longer than its neighbours is searched in few reads") {
  Options options;
  options.text.emplace();
  const auto format = make_format(options);
  const std::string before = "a\nb\n", line = std::string(4'000'000, 'm') + "\n";
  const std::string text = before + line + "x\ny\n";
  const Run run(std::as_bytes(std::span(text)), "memory", 1);
  const std::size_t end = before.size() + line.size();
  for (const auto& [key, bound, expected] :
       {std::tuple<std::string, Bound, std::uint64_t>{"a\n", Bound::lower, 0},
        {"b\n", Bound::upper, before.size()},
        {line, Bound::lower, before.size()},
        {line, Bound::upper, end},
        {"mn\n", Bound::lower, end},
        {"y\n", Bound::lower, end + 2},
        {"z\n", Bound::lower, text.size()}}) {
    BlockReader reader(run);
    const RowBound sought = format->key_of(std::as_bytes(std::span(key)));
    std::uint64_t found = 0;
    CHECK(reader.reads_of([&](BlockReader& block) {
      found = find_record(block, *format, sought, bound, 0, run.records());
    }) <= 60);
    CHECK(found == expected);
  }
}

TEST_CASE("cuts of lines divide them by key, near the ranks") {
  Random random(48);
  Options options;
  options.text.emplace();
  const auto format = make_format(options);
  options.text->kind = TextKind::csv;
  const auto csv = make_format(options);
  // Runs beyond what blocks hold are cut by samples.
  for (const bool is_large : {false, true})
    for (const std::string distribution : {"uniform", "few", "disjoint", "shifted", "far"}) {
      const std::uint64_t max_lines = !is_large ? 3000 : distribution == "few" ? 150'000 : 30'000;
      std::vector<std::string> texts;
      for (std::size_t i = 0; i < 30; ++i) {
        std::string text;
        for (const std::uint64_t key : keys_of(distribution, i, below(random, max_lines), random))
          text += fmt::format("{:020}{:.>{}}\n", key, "", key % 131);
        texts.push_back(text);
      }
      std::vector<Run> runs;
      std::uint64_t total = 0;
      for (const std::string& text : texts) {
        runs.emplace_back(std::as_bytes(std::span(text)), "memory", 1);
        total += text.size();
      }
      CHECK((total > max_blocks_bytes) == is_large);
      Positions ranks;
      const std::size_t parts = is_large ? 8 : 40;
      for (std::size_t i = 0; i <= parts; ++i) ranks.push_back(part_of(total, i, parts));
      std::vector<Run> indexed = runs;
      for (std::size_t i = 0; i < runs.size(); ++i) indexed[i].set_starts(some_starts(texts[i]));
      ProbeThreads threads;
      const std::vector<Positions> cuts = cuts_at(ranks, runs, *format, threads);
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        INFO(fmt::format("{}, rank {} of {}", distribution, ranks[i], total));
        ProbeThreads alone;
        const Positions cut = cuts_at({&ranks[i], 1}, runs, *format, alone).front();
        CHECK(alone.rounds() <= max_rounds);
        if (!is_large) CHECK(cut == cuts[i]);
        if (!is_large) CHECK(cuts_at({&ranks[i], 1}, indexed, *csv, alone).front() == cut);
        const std::uint64_t precision = total / 1000 + 200;
        if (distribution != "few") {
          CHECK(sum(cuts[i]) - ranks[i] + precision <= 2 * precision);
          CHECK(sum(cut) - ranks[i] + precision <= 2 * precision);
        }
        check_cut(cuts[i], texts);
      }
    }
}

TEST_CASE("cuts of few lines at many ranks divide them by key, and do not cross") {
  Random random(49);
  Options options;
  options.text.emplace();
  const auto format = make_format(options);
  for (int round = 0; round < 300; ++round) {
    const std::size_t keys = std::size_t{1} << below(random, 10);
    std::vector<std::string> texts(1 + below(random, 12));
    std::vector<Run> runs;
    std::uint64_t total = 0;
    for (std::string& text : texts) {
      std::vector<std::string> lines(below(random, 40));
      for (std::string& line : lines) {
        const std::uint64_t key = below(random, keys);
        line = fmt::format("{}{:.>{}}\n", key, "", key % 7);
      }
      std::ranges::sort(lines);
      for (const std::string& line : lines) text += line;
      runs.emplace_back(std::as_bytes(std::span(text)), "memory", 1);
      total += text.size();
    }
    Positions ranks;
    for (std::size_t i = 0; i <= 50; ++i) ranks.push_back(part_of(total, i, 50));
    ProbeThreads threads(1);
    const std::vector<Positions> cuts = cuts_at(ranks, runs, *format, threads);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      INFO(fmt::format("round {}, rank {} of {}", round, ranks[i], total));
      check_cut(cuts[i], texts);
      if (i != 0) CHECK(std::ranges::equal(cuts[i - 1], cuts[i], std::ranges::less_equal{}));
    }
    CHECK(sum(cuts.front()) == 0);
    CHECK(sum(cuts.back()) == total);
  }
}
