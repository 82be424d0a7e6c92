// Tests of merges of lines and pairs against std::stable_sort.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "corank/merge.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "plan/pass_planner.hpp"
#include "run/record_search.hpp"
#include "support/catch.hpp"
#include "support/small_files.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Returns a random length of a record, up to `longest` bytes.
std::uint64_t random_length(Random& random, std::uint64_t longest) {
  switch (below(random, 4)) {
    case 0:
      return below(random, 3);
    case 1:
      return below(random, std::min<std::uint64_t>(longest, 20) + 1);
    case 2:
      return below(random, std::min<std::uint64_t>(longest, 70) + 1);
    default:
      return below(random, 100) == 0 ? below(random, longest + 1)
                                     : std::min<std::uint64_t>(longest, 33);
  }
}

std::string random_string(Random& random, std::uint64_t length, const std::string& alphabet) {
  std::string text;
  while (text.size() < length) text += alphabet[below(random, alphabet.size())];
  return text;
}

// Holds sorted runs of lines or pairs and the expected output of their merge.
class TextRuns {
 public:
  explicit TextRuns(TextKind kind, char terminator = '\n') {
    options_.text.emplace();
    options_.text->kind = kind;
    options_.text->terminator = terminator;
    options_.overwrite = true;
    options_.backend = BackendChoice::cpu;
  }

  // Adds a run; if `ended` is false, its last line has no terminator.
  void add(std::vector<std::string> keys, bool ended = true) {
    std::ranges::sort(keys);
    std::string text;
    for (const std::string& key : keys) {
      std::string record = key + options_.text->terminator;
      if (options_.text->kind == TextKind::pairs) {
        const std::string value = std::to_string(all_.size());
        const std::uint32_t lengths[] = {static_cast<std::uint32_t>(key.size()),
                                         static_cast<std::uint32_t>(value.size())};
        record.assign(reinterpret_cast<const char*>(lengths), sizeof lengths);
        record += key + value;
      }
      text += record;
      all_.push_back({key, record});
    }
    if (!ended && !text.empty()) text.pop_back();
    paths_.push_back(folder_ / ("run" + std::to_string(paths_.size())));
    write_file(paths_.back(), bytes_of_text(text));
  }

  std::string expected() const {
    auto sorted = all_;
    std::ranges::stable_sort(sorted, {}, &std::pair<std::string, std::string>::first);
    std::string text;
    for (const auto& record : sorted) text += record.second;
    return text;
  }

  Stats merge() const { return corank::merge(paths_, output(), options_); }

  void check() {
    const std::string wanted = expected();
    for (const BackendChoice backend : {BackendChoice::cuda, BackendChoice::cpu}) {
      options_.backend = backend;
      if (backend == BackendChoice::cuda && !find_cuda_device(0).usable) continue;
      for (const Io io : {Io::automatic, Io::buffered, Io::mapped, Io::direct}) {
        options_.io = io;
        const Stats stats = merge();
        CHECK((text_of(output()) == wanted));
        CHECK(stats.records == all_.size());
        CHECK(stats.verified);
        CHECK(stats.device_fault == "");
      }
    }
  }

  Options& options() { return options_; }
  std::filesystem::path output() const { return folder_ / "output"; }
  const std::vector<std::filesystem::path>& paths() const { return paths_; }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
  Options options_;
  std::vector<std::filesystem::path> paths_;
  std::vector<std::pair<std::string, std::string>> all_;  // key and record
};

std::string what_merging_throws(const TextRuns& runs) {
  try {
    runs.merge();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("lines and pairs of any length are merged stably", "[text]") {
  Random random(11);
  for (unsigned round = 0; round < 60; round += exhaustive_step) {
    const TextKind kind = round % 3 == 2 ? TextKind::pairs : TextKind::lines;
    const char terminator = round % 5 == 4 ? '\0' : '\n';
    const std::string alphabet = round % 2 == 0   ? std::string("ab")
                                 : round % 4 == 1 ? std::string("\x01\x7f\xff z", 5)
                                                  : std::string("0123456789");
    const std::string shared(round % 7 == 6 ? 60 : 0, 's');
    INFO("round " << round);
    TextRuns runs(kind, terminator);
    const std::uint64_t count = 1 + below(random, round % 6 == 5 ? 60 : 6);
    for (std::uint64_t run = 0; run < count; ++run) {
      std::vector<std::string> keys(below(random, 5) == 0 ? 0 : below(random, 3000));
      for (std::string& key : keys)
        key = shared + random_string(random, random_length(random, 3000), alphabet);
      runs.add(keys, kind == TextKind::pairs || below(random, 2) == 0);
    }
    if (round % 2 == 1) runs.options().memory_bytes = min_memory(0) + below(random, 1 << 20);
    runs.check();
  }
}

TEST_CASE("lines larger than a chunk or a unit and units of single lines", "[text]") {
  Random random(12);
  TextRuns runs(TextKind::lines);
  for (int run = 0; run < 4; ++run) {
    std::vector<std::string> keys;
    for (int i = 0; i < 20; ++i) {
      keys.push_back(random_string(random, below(random, 200), "abc"));
      keys.push_back(random_string(random, below(random, 400'000), "abc"));
    }
    keys.push_back(random_string(random, 1'500'000, "a"));
    runs.add(keys, run % 2 == 0);
  }
  runs.check();
  runs.options().memory_bytes = std::uint64_t{96} << 20;
  runs.check();
}

TEST_CASE("runs of nothing and of empty lines are merged", "[text]") {
  TextRuns runs(TextKind::lines);
  runs.add({});
  runs.check();
  runs.add({"", "", ""});
  runs.add({""}, false);  // an empty file has no lines
  CHECK(runs.merge().records == 3);
  CHECK(text_of(runs.output()) == "\n\n\n");
}

TEST_CASE("many runs of lines are merged in several passes", "[text]") {
  Random random(13);
  TextRuns runs(TextKind::lines);
  for (int run = 0; run < 150; ++run) {
    std::vector<std::string> keys(200);
    for (std::string& key : keys) key = random_string(random, below(random, 30), "01");
    runs.add(keys, run % 2 == 0);
  }
  runs.options().memory_bytes = 2 * min_memory(0);
  runs.check();
  CHECK(runs.merge().passes > 1);
}

TEST_CASE("a line that the budget has no room for is named", "[text]") {
  TextRuns runs(TextKind::lines);
  runs.options().memory_bytes = min_memory(0);
  runs.options().io = Io::buffered;
  runs.add({"a", "b", std::string(3'000'000, 'c')});
  runs.check();  // the line is read in place
  // A line without its end is copied.
  TextRuns cut(TextKind::lines);
  cut.options() = runs.options();
  cut.add({"a", "b", std::string(3'000'000, 'c')}, false);
  const std::string what = what_merging_throws(cut);
  INFO(what);
  CHECK(what.find("run0: line 3 (byte 4) has 3000000 bytes") != std::string::npos);
  CHECK(what.find("Options::memory_bytes") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(cut.output()));
}

TEST_CASE("a pair whose lengths run past the end is named", "[text]") {
  TextRuns runs(TextKind::pairs);
  runs.add({"a", "b"});
  std::string text = text_of(runs.paths().front());
  const std::uint32_t lengths[] = {0xfffffff0, 7};
  text.append(reinterpret_cast<const char*>(lengths), sizeof lengths);
  write_file(runs.paths().front(), bytes_of_text(text + "abc"));
  for (const Io io : {Io::buffered, Io::mapped}) {
    runs.options().io = io;
    const std::string what = what_merging_throws(runs);
    INFO(what);
    CHECK(what.find("run0: record 2 (byte 20)") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(runs.output()));
  }
}

TEST_CASE("the first line out of order is named", "[text]") {
  Random random(14);
  for (const std::uint64_t at : {1u, 500u, 99'999u}) {
    TextRuns runs(TextKind::lines);
    std::string text;
    std::uint64_t byte = 0;
    for (std::uint64_t i = 0; i < 100'000; ++i) {
      if (i == at) byte = text.size();
      text += i == at ? "0\n" : "1" + std::to_string(1'000'000 + i) + "\n";
    }
    runs.add({"5", "6"});
    runs.add({"7"});
    write_file(runs.paths().back(), bytes_of_text(text));
    try {
      runs.merge();
      FAIL("it was merged");
    } catch (const OutOfOrder& error) {
      CHECK(error.record() == at);
      CHECK(error.byte() == byte);
      CHECK(error.file() == runs.paths().back());
    }
    CHECK_FALSE(std::filesystem::exists(runs.output()));
  }
}

TEST_CASE("a line that is out of order by what all others have in common is named", "[text]") {
  constexpr std::uint64_t lines = 3000;
  for (const std::string beginning : {"sale", "tame"})
    for (const std::uint64_t at : {1u, 63u, 64u, 255u, 256u, 257u, 2048u, 2998u}) {
      TextRuns runs(TextKind::lines);
      runs.options().verify = false;
      std::string text, other;
      for (std::uint64_t i = 0; i < lines; ++i) {
        const std::string rest = std::to_string(1'000'000 + i) + "\n";
        text += (i == at ? beginning : "same") + rest;
        other += "same" + rest;
      }
      for (const std::string& run : {other, text}) {
        runs.add({});
        write_file(runs.paths().back(), bytes_of_text(run));
      }
      try {
        runs.merge();
        FAIL("it was merged");
      } catch (const OutOfOrder& error) {
        CHECK(error.record() == at + (beginning > "same"));
        CHECK(error.file() == runs.paths().back());
      }
    }
}

TEST_CASE("lines are copied one run after another", "[text]") {
  TextRuns runs(TextKind::lines);
  runs.add({"b", "c"}, false);
  runs.add({std::string(6'000'000, 'a'), "d"});
  runs.options().copy_only = true;
  for (const Io io : {Io::buffered, Io::mapped}) {
    runs.options().io = io;
    CHECK(runs.merge().records == 4);
    CHECK((text_of(runs.output()) == "b\nc\n" + std::string(6'000'000, 'a') + "\nd\n"));
  }
}

TEST_CASE("the checksum of lines is that of each line", "[text]") {
  TextRuns runs(TextKind::lines);
  runs.add({"b", "c"}, false);
  runs.add({"a", "d"});
  TextRuns merged(TextKind::lines);
  merged.add({"a", "b", "c", "d"});
  runs.options().checksum = merged.options().checksum = true;
  const std::uint64_t checksum = runs.merge().checksum;
  CHECK(checksum != 0);
  CHECK(checksum == merged.merge().checksum);
}

TEST_CASE("lines are merged into parts of about equally many bytes", "[text]") {
  Random random(15);
  for (int round = 0; round < 12; ++round) {
    INFO("round " << round);
    TextRuns runs(TextKind::lines);
    const std::uint64_t count = 1 + below(random, 12);
    // With few distinct keys, a part can exceed its share by all records of one key.
    const bool few = round % 3 == 2;
    for (std::uint64_t run = 0; run < count; ++run) {
      std::vector<std::string> keys(below(random, 4) == 0 ? 0 : 1000 + below(random, 3000));
      for (std::string& key : keys)
        key = few ? random_string(random, below(random, 2), "ab")
                  : random_string(random, 1 + random_length(random, 40), "0123456789");
      runs.add(keys, below(random, 2) == 0);
    }
    const std::string wanted = runs.expected();
    for (const unsigned parts_count : {1u, 2u, 7u}) {
      runs.options().parts = parts_count;
      runs.options().io = round % 2 == 0 ? Io::mapped : Io::buffered;
      const TemporaryFolder folder;
      corank::merge(runs.paths(), folder.path(), runs.options());
      std::string all;
      for (const std::string& name : folder.names()) {
        const std::string part = text_of(folder / name);
        CHECK((part.empty() || part.back() == '\n'));
        if (!few) CHECK(part.size() <= wanted.size() / parts_count + wanted.size() / 500 + 3000);
        all += part;
      }
      CHECK(folder.names().size() == parts_count);
      CHECK((all == wanted));
    }
  }
}

TEST_CASE("a stopped merge of lines goes on where a key begins", "[text]") {
  Random random(17);
  for (const Io io : {Io::buffered, Io::direct, Io::mapped})
    for (int round = 0; round < 6; ++round) {
      INFO("io " << static_cast<int>(io) << ", round " << round);
      TextRuns runs(TextKind::lines);
      // Keys are all different, often equal, or one single key.
      const std::uint64_t longest = round % 3 == 0 ? 60 : round % 3 == 1 ? 7 : 0;
      for (int run = 0; run < 5; ++run) {
        std::vector<std::string> keys(longest == 0 ? 60'000 : 8'000);
        for (std::string& key : keys)
          key = longest == 0 ? "a" : random_string(random, below(random, longest + 1), "ab");
        runs.add(keys, run % 2 == 0);
      }
      const std::string wanted = runs.expected();
      runs.options().io = io;
      runs.options().resume = true;
      runs.options().checksum = true;
      const std::uint64_t stop = below(random, wanted.size());
      {
        const SmallFiles small(std::max<std::uint64_t>(stop, 4096));
        CHECK_THROWS_AS(runs.merge(), Error);
      }
      const Stats stats = runs.merge();
      CHECK((text_of(runs.output()) == wanted));
      CHECK(stats.resumed_bytes <= stop + 4096);
      if (longest != 0 && io != Io::direct) CHECK(stats.resumed_bytes + 140'000 > stop);
      CHECK(stats.resumed_bytes + stats.bytes_written == wanted.size());
      runs.options().resume = false;
      CHECK(stats.checksum == runs.merge().checksum);
      CHECK(runs.folder().names().size() == 6);
    }
}

TEST_CASE("what a stopped merge of lines left is not gone on with where it is wrong", "[text]") {
  Random random(18);
  TextRuns runs(TextKind::lines);
  for (int run = 0; run < 3; ++run) {
    std::vector<std::string> keys(10'000);
    for (std::string& key : keys) key = random_string(random, 30, "0123456789");
    runs.add(keys);
  }
  std::vector<std::string> notices;
  runs.options().notice = [&](const Message& warning) { notices.push_back(warning.text()); };
  runs.options().resume = true;
  {
    const SmallFiles small(500'000);
    CHECK_THROWS_AS(runs.merge(), Error);
  }
  const std::filesystem::path left = runs.folder() / ".output.corank";
  std::string text = text_of(left);
  std::replace_if(
      text.end() - 200'000, text.end(), [](char c) { return c != '\n'; }, '7');
  write_file(left, bytes_of_text(text));
  notices.clear();
  CHECK(runs.merge().resumed_bytes == 0);
  REQUIRE(notices.size() == 1);
  CHECK(notices.front().find("starting over") != std::string::npos);
  CHECK((text_of(runs.output()) == runs.expected()));
}

TEST_CASE("bounds of lines are found by their place in the file", "[text]") {
  Random random(16);
  TextRuns runs(TextKind::lines);
  std::vector<std::string> keys(500);
  for (std::string& key : keys) key = random_string(random, random_length(random, 9000), "ab");
  runs.add(keys, false);
  std::ranges::sort(keys);
  Run run(runs.paths().front(), 1, Run::Opening{});
  std::vector<std::uint64_t> begins{0};
  for (const std::string& key : keys) begins.push_back(begins.back() + key.size() + 1);
  begins.back() = run.records();
  // Records of CSV are found from starts that are known.
  Options options = runs.options();
  if (const std::uint64_t step = GENERATE(0, 1, 7, 100)) {
    options.text->kind = TextKind::csv;
    std::vector<std::uint64_t> starts;
    for (std::size_t i = 0; i < keys.size(); i += step) starts.push_back(begins[i]);
    run.set_starts(starts);
  }
  const auto format = make_format(options);
  BlockReader reader(run, 20'000);
  for (int i = 0; i < 300; ++i) {
    const std::string key = i % 2 == 0 ? keys[below(random, keys.size())]
                                       : random_string(random, below(random, 20), "abc");
    const RowBound bound = format->key_of(bytes_of_text(key + "\n"));
    const auto index_of = [&](auto at) { return static_cast<std::size_t>(at - keys.begin()); };
    CHECK(find_record(reader, *format, bound, Bound::lower, 0, run.records()) ==
          begins[index_of(std::ranges::lower_bound(keys, key))]);
    CHECK(find_record(reader, *format, bound, Bound::upper, 0, run.records()) ==
          begins[index_of(std::ranges::upper_bound(keys, key))]);
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    CHECK((record_at(reader, *format, begins[i]) == bytes_of_text(keys[i] + "\n")));
    CHECK(next_record(reader, *format, begins[i]) == begins[i + 1]);
    if (i > 0) CHECK(record_before(reader, *format, begins[i]) == begins[i - 1]);
  }
}

TEST_CASE("merges of pairs are not resumed", "[text]") {
  TextRuns runs(TextKind::pairs);
  runs.add({"a"});
  runs.merge();
  runs.options().resume = true;
  CHECK_THROWS_WITH(runs.merge(), ContainsSubstring("Options::resume"));
}
