// Tests of merges in partitions: plan, merge --plan, finish.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "corank/partitions.hpp"
#include "io/file.hpp"
#include "support/program.hpp"
#include "support/support.hpp"
#include "util/digest.hpp"

using namespace corank;
using namespace corank::test;

namespace {

Environment with_variables(const std::vector<std::pair<std::string, std::string>>& variables) {
  return {.in = {}, .before_exec = [variables] {
            for (const char* name :
                 {"SLURM_ARRAY_TASK_ID", "SLURM_PROCID", "PMI_RANK", "RANK", "WORLD_SIZE",
                  "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX"})
              ::unsetenv(name);
            for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
          }};
}

// Runs, and the options of their merge.
struct Planned : RunFolder {
  Planned(Strings words, const Strings& texts) : RunFolder(texts), command(std::move(words)) {}

  std::string plan = folder / "plan.json", parts = folder / "plan.parts";
  Strings command;  // merge, say, and options

  std::string part(std::size_t i) const { return parts + "/part-0000" + std::to_string(i); }
  Result make_plan(std::size_t partitions, const Strings& options = {"-f"}) const {
    Strings all{"plan"};
    all.insert(all.end(), command.begin(), command.end());
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {"--partitions", std::to_string(partitions), "-o", plan});
    return run_with(all);
  }
  Result merge_part(const std::string& i, const Strings& options = {},
                    const Environment& setting = {}) const {
    Strings all{"merge", "--plan", plan, "--partition", i, "--backend", "cpu"};
    all.insert(all.end(), options.begin(), options.end());
    return run(all, setting);
  }
  void merge_parts(std::size_t partitions, const Strings& options = {}) const {
    for (std::size_t i = 0; i < partitions; ++i) {
      const Result result = merge_part(std::to_string(i), options);
      INFO(result.err);
      REQUIRE(result.code == 0);
    }
  }
  Result finish(const Strings& options = {}) const {
    Strings all{"finish", plan};
    all.insert(all.end(), options.begin(), options.end());
    return run(all);
  }
  std::string whole() const {
    Strings all = command;
    std::erase(all, "--parts-by-key");  // a whole output has no parts
    all.insert(all.end(), {"-f", "-o", folder / "whole"});
    CHECK(run_with(all).code == 0);
    return text_of(folder / "whole");
  }
  // Checks a failure with one line of error that holds all `words`.
  static void check_refusal(const Result& result, const Strings& words) {
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK(std::ranges::count(result.err, '\n') == 1);
    for (const std::string& word : words) CHECK(holds(result.err, word));
  }
};

// Unsorted files, and the options of their sort.
struct PlannedSort : Planned {
  using Planned::Planned;

  std::string sort_plan = folder / "sort.json", sorted = folder / "sort.parts";
  Result plan_sort(std::size_t partitions) const {
    return run_with(Strings{"plan"} + command +
                    Strings{"-f", "--partitions", std::to_string(partitions), "-o", sort_plan});
  }
  Result sort_part(const std::string& i, const Strings& options = {},
                   const Environment& setting = {}) const {
    return run(Strings{"sort", "--plan", sort_plan, "--partition", i, "--backend", "cpu"} + options,
               setting);
  }
  void sort_parts(std::size_t partitions, const Strings& options = {}) const {
    for (std::size_t i = 0; i < partitions; ++i) {
      const Result result = sort_part(std::to_string(i), options);
      INFO(result.err);
      REQUIRE(result.code == 0);
    }
  }
  // Plans the merge of the sorted partitions.
  Result plan_merge(std::size_t partitions, const Strings& options = {}) const {
    return run(Strings{"plan", "merge", "--runs-of", sort_plan, "-f", "--partitions",
                       std::to_string(partitions), "-o", plan} +
               options);
  }
};

// Returns files of records in no order, of which some are equal but for their numbers.
Strings unsorted_texts(const char* header, const char* begin, const char* middle, const char* end) {
  Random random(46);
  Strings texts;
  for (int file = 0; file < 3; ++file) {
    std::string text = header;
    for (int i = 0; i < 500; ++i)
      text += fmt::format("{}{:03}{}{}{:05}{}", begin, below(random, 300), middle, file, i, end);
    texts.push_back(text);
  }
  return texts;
}

std::string random_lines(int count) {
  Random random(46);
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("{:010}\n", below(random, 1'000'000'000));
  return text;
}

std::string json_version(const std::string& plan) {
  return nlohmann::json::parse(plan)["corank_plan"];
}

// Returns a text for each of these, with `header` in front.
Strings with_header(const std::string& header, Strings texts) {
  for (std::string& text : texts) text.insert(0, header);
  return texts;
}

// Returns sorted pairs in which some keys are equal, and whose values look like pairs.
Strings sorted_pairs() {
  Strings texts;
  for (int run = 0; run < 3; ++run) {
    std::string text;
    for (int i = 0; i < 500; ++i)
      text += pair_of(fmt::format("{:04}", i * (run + 1) / 7),
                      pair_of("0000", fmt::format("{}{:03}", run, i)));
    texts.push_back(text);
  }
  return texts;
}

// Returns sorted records "key number" in which some keys are equal, within runs and across.
Strings sorted_texts(const char* begin, const char* middle, const char* end) {
  Strings texts;
  for (int run = 0; run < 3; ++run) {
    std::string text;
    for (int i = 0; i < 500; ++i)
      text += fmt::format("{}{:04}{}{}{:03}{}", begin, i * (run + 1) / 7, middle, run, i, end);
    texts.push_back(text);
  }
  return texts;
}

using Counts = std::vector<std::size_t>;
// Each partition takes a process, which starts slowly under a sanitizer.
const Counts few_partitions = exhaustive_step > 1 ? Counts{5} : Counts{3, 11};

Counts many_partitions() {
  return exhaustive_step > 1 ? Counts{8} : Counts{2, 4, 8, 64};
}

// Checks that partitions of a merge are its output, and that finish proves it.
void check_partitions(const Strings& command, const Strings& runs, const Counts& counts) {
  const Planned test(command, runs);
  INFO(fmt::format("{}", fmt::join(command, " ")));
  const std::string whole = test.whole();
  for (const std::size_t partitions : counts) {
    REQUIRE(output_of(test.make_plan(partitions)).empty());
    test.merge_parts(partitions, {"-f"});
    const std::string all = test.folder / "all";
    const std::string printed = output_of(test.finish({"--read-runs", "-f", "--concatenate", all}));
    CHECK(static_cast<std::size_t>(std::ranges::count(printed, '\n')) == partitions + 1);
    CHECK(text_of(all) == whole);
  }
}

// Checks that partitions of a sort are runs, and that partitions of their merge are its output.
void check_sort_partitions(const Strings& command, const Strings& files, const Counts& counts) {
  const PlannedSort test(command, files);
  INFO(fmt::format("{}", fmt::join(command, " ")));
  const std::string whole = test.whole();
  for (const std::size_t partitions : counts) {
    REQUIRE(output_of(test.plan_sort(partitions)).empty());
    test.sort_parts(partitions, {"-f"});
    output_of(run({"finish", test.sort_plan, "--read-runs"}));
    REQUIRE(output_of(test.plan_merge(4)).empty());
    test.merge_parts(4, {"-f"});
    const std::string all = test.folder / "all";
    output_of(test.finish({"--read-runs", "-f", "--concatenate", all}));
    CHECK(text_of(all) == whole);
  }
}

}  // namespace

TEST_CASE("partitions are the merge, one after another, and finish proves it") {
  const Strings fixed{"-r", "k:bytes4,v:bytes4"}, lines{"--lines", "-t", " ", "-b", "1"};
  const auto with = [](const char* verb, Strings format, const Strings& options = {}) {
    format.insert(format.begin(), verb);
    format.insert(format.end(), options.begin(), options.end());
    return format;
  };
  const Strings records = sorted_texts("", "", ""), texts = sorted_texts("", " ", "\n");
  const Strings objects = sorted_texts(R"({"k": "k)", R"(", "v": ")", "\"}\n");
  const std::vector<std::pair<Strings, Strings>> merges = {
      {with("merge", fixed), records},
      {with("merge", fixed, {"--parts-by-key", "--from", "0020", "--limit", "700"}), records},
      {{"merge", "-r", "k:bytes4,v:u32be", "--on-equal", "reduce:max(v)"}, records},
      {with("merge", fixed, {"--on-equal", "last", "--where", "v != '1100'"}), records},
      {with("union", fixed, {"-b", "k"}), records},
      {with("intersect", fixed, {"-b", "k"}), records},
      {with("subtract", fixed, {"-b", "k"}), records},
      {with("merge", lines), texts},
      {with("merge", lines, {"--on-equal", "first", "--select", "2,1"}), texts},
      {{"merge", "--jsonl", "-b", "k"}, objects}};
  for (const auto& [command, runs] : merges)
    check_partitions(command, runs,
                     command == merges.front().first ? many_partitions() : few_partitions);
}

TEST_CASE("partitions of a sort are runs, and partitions of their merge are the sort") {
  const auto lines = [](Strings options) {
    return Strings{"sort", "--lines", "-t", " ", "-b", "1"} + options;
  };
  const Strings records = unsorted_texts("", "", "", ""), texts = unsorted_texts("", "", " ", "\n"),
                with_header = unsorted_texts("a b\n", "", " ", "\n"),
                one_header{with_header[0], texts[1], texts[2]};
  const std::vector<std::pair<Strings, Strings>> sorts = {
      {{"sort", "-r", "k:bytes3,v:bytes6"}, records},
      {{"sort", "-r", "k:bytes3,v:bytes6", "--parts-by-key"}, records},
      {{"sort", "-r", "k:bytes3,v:bytes6", "--limit", "700"}, records},
      {{"sort", "-r", "k:bytes3,v:bytes6", "--from", "050", "--to", "200", "--limit", "70"},
       records},
      {{"sort", "-r", "k:bytes3,v:bytes6", "--skip-bytes", "4"},
       unsorted_texts("head", "", "", "")},
      {lines({}), texts},
      {lines({"--header"}), with_header},
      {lines({"--header", "--drop-header"}), with_header},
      {lines({"--header=first"}), one_header},
      {lines({"--on-equal", "last", "--where", "1 != '100'", "--select", "2"}), texts},
      {lines({"--from", "050", "--to", "200"}), texts},
      {{"sort", "--jsonl", "-b", "k"}, unsorted_texts("", R"({"k": ")", R"(", "v": ")", "\"}\n")},
      // Records that begin their runs look like comments, byte order marks and other formats.
      {{"sort", "--lines", "--comment", "##", "--from", "#"}, {"##h\na\n##x\nb\nc\n##x\nd\n"}},
      {{"sort", "--lines", "--comment", "##"}, {"##h\na\n##x\nb\nc\n##x\nd\n"}},
      {{"sort", "--lines", "-b", "line:desc", "--on-equal", "first"},
       {"a\nb\nc\nzz\n",
        "d\n\xef\xbb\xbf"
        "zz\ne\nf\n"}},
      // Short records come first in the runs.
      {{"sort", "--csv", "-b", "3"}, {"a,b,c\nx\ny,q\n"}},
      {{"sort", "--csv", "-b", "1", "--ragged", "error"}, {"b,2\na,1,x\nc,3\n"}},
      {lines({}), {"b\nBZh91AY&SYHID\nc\n\x93NUMPY\n", "a\n\xff\xfe\n"}}};
  for (const auto& [command, files] : sorts)
    check_sort_partitions(command, files,
                          command == sorts.front().first ? many_partitions() : Counts{3});
}

// Values of CSV hold what looks like records, quotes and delimiters.
constexpr const char *csv_middle = ",\"x, \"\"y\"\"\n0000,", *csv_end = "\r\n\",7\r\n";

TEST_CASE("partitions of records that are found only from the start of a file") {
  const Strings csv{"--csv", "--header", "-b", "k"}, pairs{"--kv"};
  const char* const header = "\xef\xbb\xbf\"k\",\"v \"\"\n\"\"\",n\r\n";
  Strings texts = with_header(header, sorted_texts("", csv_middle, csv_end));
  texts[1].resize(texts[1].size() - 2);  // the last record lacks its end
  texts.insert(texts.end(), {header, ""});
  Strings records = sorted_pairs();
  records.emplace_back();
  const std::vector<std::pair<Strings, Strings>> merges = {
      {Strings{"merge"} + csv, texts},
      {Strings{"merge"} + pairs, records},
      {Strings{"merge"} + csv + Strings{"--from", "0020", "--to", "0050"}, texts},
      {Strings{"merge"} + csv + Strings{"--on-equal", "last", "--where", "k != '0030'"}, texts},
      {Strings{"merge"} + csv + Strings{"--on-equal", "reduce:sum(n),count()"}, texts},
      {Strings{"merge"} + csv + Strings{"--on-equal", "first", "--select", "v \"\n\",k"}, texts},
      {Strings{"union"} + csv, texts},
      {Strings{"intersect"} + csv, {texts[0], texts[1]}},
      {Strings{"subtract"} + csv, {texts[2], texts[0]}},
      {{"merge", "--csv", "--escape", "\\"}, sorted_texts("", ",\"\\\"\n0000,", "\"\n")},
      {Strings{"merge"} + pairs + Strings{"--from", "0020", "--on-equal", "first"}, records},
      {Strings{"intersect"} + pairs, {records[0], records[1]}}};
  for (const auto& [command, runs] : merges)
    check_partitions(command, runs,
                     runs.size() > 3 && command.size() < 6 && command.front() == "merge"
                         ? many_partitions()
                         : few_partitions);
  Strings unsorted_pairs = records;
  std::swap(unsorted_pairs[0], unsorted_pairs[2]);
  const Strings unsorted = with_header(header, unsorted_texts("", "", csv_middle, csv_end));
  check_sort_partitions(Strings{"sort"} + csv, unsorted, many_partitions());
  check_sort_partitions(Strings{"sort"} + csv + Strings{"--from", "050", "--to", "200"}, unsorted,
                        {3});
  check_sort_partitions({"sort", "--kv"}, {records[2] + records[0], "", records[1]}, {2, 8});
}

TEST_CASE("a byte order mark is that of the first partition") {
  check_partitions({"merge", "--lines"},
                   {"\xef\xbb\xbf"
                    "a\nc\n",
                    "\xef\xbb\xbf"
                    "b\nd\n"},
                   {3});
}

TEST_CASE("partitions of CSV and pairs are refused and proven as others are") {
  const Planned test({"merge", "--csv"}, sorted_texts("", csv_middle, csv_end));
  REQUIRE(test.make_plan(4).code == 0);
  test.merge_parts(4);
  const std::string good = text_of(test.part(2));
  std::string flipped = good;
  flipped[good.find("y\"\"", good.size() / 2)] ^= 1;
  write_file(test.part(2), bytes_of_text(flipped));
  Planned::check_refusal(test.finish(), {test.part(2), "checksum", "--partition 2 --force"});
  write_file(test.runs[1], bytes_of_text(text_of(test.runs[1]) + "9999,1\n"));
  Planned::check_refusal(test.merge_part("0", {"-f"}), {test.runs[1], "changed"});

  const Planned pairs({"merge", "--kv"}, sorted_pairs());
  REQUIRE(pairs.make_plan(4).code == 0);
  pairs.merge_parts(4);
  std::string value = text_of(pairs.part(1));
  value.back() ^= 1;
  write_file(pairs.part(1), bytes_of_text(value));
  Planned::check_refusal(pairs.finish(), {pairs.part(1), "checksum"});

  // Damage anywhere in a run is found before any partition is written.
  const auto refuse = [](const Strings& command, const std::string& text, const Strings& words) {
    const PlannedSort damaged(command, {text});
    const Result planned = command.front() == "sort" ? damaged.plan_sort(2) : damaged.make_plan(2);
    Planned::check_refusal(planned, words + Strings{damaged.runs[0]});
  };
  refuse({"merge", "--csv"}, "a,\"\n\"\nb,\"c\nd\n", {"line 3 (byte 6)", "quote"});
  refuse({"sort", "--csv"}, "b,\"\n\"\na,\"c\nd\n", {"line 3 (byte 6)", "quote"});
  refuse({"merge", "--kv"}, pair_of("a", "b") + "\1", {"record 1 (byte 10)"});
  const Planned descending({"merge", "--csv"}, {"b\n\"\na\"\n"});
  const Result disorder = descending.make_plan(2);
  CHECK((disorder.code == 1 && holds(disorder.err, descending.runs[0] + ": line 2")));
}

TEST_CASE("a sort in more partitions than it has records leaves some empty") {
  const PlannedSort test({"sort", "--lines"}, {"c\nb", "", "a\n"});
  REQUIRE(test.plan_sort(8).code == 0);
  test.sort_parts(8);
  REQUIRE(test.plan_merge(2).code == 0);
  test.merge_parts(2);
  output_of(test.finish({"--concatenate", test.folder / "all"}));
  CHECK(text_of(test.folder / "all") == "a\nb\nc\n");
}

TEST_CASE("a sort in partitions refuses what does not fit, and finds what is missing") {
  const PlannedSort test({"sort", "-r", "k:bytes3,v:bytes6"}, unsorted_texts("", "", "", ""));
  REQUIRE(test.plan_sort(3).code == 0);
  Planned::check_refusal(test.plan_merge(2), {"3 of 3", "corank sort --plan"});
  test.sort_parts(3);
  const Result again = test.sort_part("1");
  CHECK((again.code == 0 && holds(again.err, "written already")));
  Planned::check_refusal(run({"merge", "--plan", test.sort_plan, "--partition", "0"}),
                         {"a plan of a sort", "corank sort --plan"});
  Planned::check_refusal(run({"finish", test.sort_plan, "--concatenate", test.folder / "all"}),
                         {"--concatenate", "--runs-of"});
  Planned::check_refusal(test.plan_merge(2, {"--where", "k != '100'"}), {"--where", "--runs-of"});
  REQUIRE(test.plan_merge(2).code == 0);
  Planned::check_refusal(run({"plan", "merge", "--runs-of", test.plan, "--partitions", "2", "-f",
                              "-o", test.folder / "other.json"}),
                         {test.plan, "is not a plan of a sort"});
  Planned::check_refusal(run({"sort", "--plan", test.plan, "--partition", "0"}),
                         {"a plan of a merge", "corank merge --plan"});

  // A byte that flips in a run after its sort is not in the records of the parts.
  const std::string sorted = test.sorted + "/part-00001";
  const std::string good = text_of(sorted);
  const auto modified = std::filesystem::last_write_time(sorted);
  std::string flipped = good;
  flipped[9 * 10 + 8] ^= 1;
  write_file(sorted, bytes_of_text(flipped));
  std::filesystem::last_write_time(sorted, modified);
  test.merge_parts(2);
  Planned::check_refusal(test.finish(), {test.plan, "checksum of the runs"});

  write_file(sorted, bytes_of_text(good.substr(9)));
  Planned::check_refusal(test.plan_merge(2), {sorted, "bytes", "corank sort --plan"});
  std::filesystem::remove(sorted);
  Planned::check_refusal(test.plan_merge(2), {"1 of 3", ": 1;"});
  write_file(test.runs[0], bytes_of_text("100000000"));
  Planned::check_refusal(test.sort_part("1"), {test.runs[0], "changed"});
}

TEST_CASE("a sort is not planned that its merge could not follow") {
  const auto refuse = [](const Strings& options, const Strings& words) {
    Planned::check_refusal(PlannedSort(Strings{"sort"} + options, {"b\na\n"}).plan_sort(2), words);
  };
  refuse({"--lines", "--limit", "1"}, {"--limit"});
  refuse({"--lines", "--where", "x == 'a'"}, {"x"});
  Planned::check_refusal(
      run({"plan", "sort", "--lines", "--partitions", "2", "-o", "/dev/null", "-f", "-"}),
      {"pipe"});
}

TEST_CASE("a partition of a sort that was stopped goes on") {
  const PlannedSort test({"sort", "--lines"}, {random_lines(400'000)});
  const std::string whole = test.whole();
  REQUIRE(test.plan_sort(1).code == 0);
  const Strings small{"--resume", "-m", "2M", "-T", "1", "--stats", "-"};
  const auto small_files = [] {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = 2'500'000;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  REQUIRE(test.sort_part("0", small, {.in = {}, .before_exec = small_files}).code == 2);
  const Result resumed = test.sort_part("0", small);
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(nlohmann::json::parse(resumed.out)["resumed_bytes"] > 1'000'000);
  CHECK(text_of(test.sorted + "/part-00000") == whole);
  CHECK(std::distance(std::filesystem::directory_iterator(test.sorted), {}) == 2);
  output_of(run({"finish", test.sort_plan, "--read-runs"}));
}

TEST_CASE("a partition that the scheduler stops goes on where it was") {
  const TemporaryFolder folder;
  const std::string runs = folder / "runs", plan = folder / "plan.json", whole = folder / "whole";
  REQUIRE(run({"gen", "-r", "key:u64", "--records", "16000000", "--runs", "2", "-o", runs}).code ==
          0);
  const std::string first = runs + "/run-00000.bin", second = runs + "/run-00001.bin";
  REQUIRE(run({"plan", "merge", "-r", "key:u64", "--partitions", "2", "-o", plan, first, second})
              .code == 0);
  const Strings merge{"merge", "--plan", plan,        "--partition", "1",       "--resume",
                      "-m",    "700K",   "--backend", "cpu",         "--stats", "-"};
  Environment stopping;
  stopping.before_exec = give_way;
  stopping.while_running = [&](pid_t child) {
    wait_until([&] {
      std::error_code error;
      const std::string written = folder / "plan.parts/.part-00001.resume/.part-00001.corank";
      return std::filesystem::file_size(written, error) + 1 > 20'000'000 || has_ended(child);
    });
    ::kill(child, SIGTERM);
  };
  const Result stopped = run(merge, stopping);
  INFO(stopped.err);
  REQUIRE(stopped.code == 143);
  const Result resumed = run(merge);
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(nlohmann::json::parse(resumed.out)["resumed_bytes"] > 15'000'000);
  REQUIRE(run({"merge", "--plan", plan, "--partition", "0"}).code == 0);
  const std::string all = folder / "all";
  CHECK(run({"finish", plan, "--read-runs", "--concatenate", all}).code == 0);
  REQUIRE(run({"merge", "-r", "key:u64", "-o", whole, first, second}).code == 0);
  CHECK((text_of(all) == text_of(whole)));
}

TEST_CASE("the first partition has the header, and parts may be compressed") {
  const Strings texts{"name\na\nc\nd\n", "name\nb\nc\ne"};
  Planned test({"merge", "--lines", "--header", "--compress", "zstd"}, texts);
  REQUIRE(test.make_plan(3).code == 0);
  test.merge_parts(3);
  CHECK(std::filesystem::exists(test.part(2) + ".zst"));
  const std::string all = test.folder / "all.zst";
  output_of(test.finish({"--concatenate", all}));
  CHECK(output_of(run({"merge", "--lines", "--header", all})) == "name\na\nb\nc\nc\nd\ne\n");

  test.command.resize(3);
  REQUIRE(test.make_plan(3).code == 0);
  Planned::check_refusal(test.merge_part("0"), {test.part(0), "of another plan", "--force"});
  test.merge_parts(3, {"-f"});
  CHECK(text_of(test.part(0)).starts_with("name\n"));
  output_of(test.finish());
  std::fstream(test.part(0)) << "Name";
  Planned::check_refusal(test.finish(), {test.part(0), "header"});
}

TEST_CASE("a plan that is made again is the same with and without --force") {
  // "-f" is also a value here, and a flag among other letters.
  Planned test({"merge", "--lines", "--from", "-f", "-zt:"},
               {std::string("-f\0a\0", 5), std::string("b\0", 2)});
  REQUIRE(test.make_plan(2, {}).code == 0);
  const std::string plan = text_of(test.plan);
  for (const Strings& force : {Strings{"-f"}, {"--force"}, {"--force=true"}}) {
    output_of(test.make_plan(2, force));
    CHECK(text_of(test.plan) == plan);
  }
  CHECK(holds(plan, R"("--from",)"));
  CHECK(holds(plan, R"("-f",)"));
  test.merge_parts(2);
  output_of(test.finish({"--concatenate", test.folder / "all"}));
  CHECK(text_of(test.folder / "all") == test.whole());

  test.command.back() = "-fzt:";
  output_of(test.make_plan(2, {}));
  CHECK(text_of(test.plan) == plan);
  CHECK(holds(test.merge_part("0").err, "is written already"));
}

TEST_CASE("finish finds flipped bytes, missing parts and parts of another plan") {
  const Planned test({"merge", "-r", "k:bytes4,v:bytes4"}, sorted_texts("", "", ""));
  REQUIRE(test.make_plan(4).code == 0);
  Planned::check_refusal(test.finish(), {"4 of 4", "0, 1, 2, 3"});
  test.merge_parts(4);
  const nlohmann::json record = nlohmann::json::parse(text_of(test.part(2) + ".json"));
  CHECK(record["records"] == 375);
  CHECK(record["first_key"] == "k='" + text_of(test.part(2)).substr(0, 4) + "'");
  const std::string printed = output_of(test.finish());
  CHECK(holds(printed, record["checksum"].get<std::string>() + " " + test.part(2)));

  const std::string good = text_of(test.part(2));
  std::string flipped = good;
  flipped[4 + 8 * 100] ^= 1;  // in a value, so that the part stays sorted
  write_file(test.part(2), bytes_of_text(flipped));
  Planned::check_refusal(test.finish({"--concatenate", test.folder / "all"}),
                         {test.part(2), "checksum", "--partition 2 --force"});
  CHECK(!std::filesystem::exists(test.folder / "all"));
  std::string disordered = good;
  disordered[8 * 100] = '~';  // in a key
  write_file(test.part(2), bytes_of_text(disordered));
  Planned::check_refusal(test.finish(), {test.part(2), "has changed", "--partition 2 --force"});
  write_file(test.part(2), bytes_of_text(good.substr(8)));
  Planned::check_refusal(test.finish(), {test.part(2), "2992 bytes"});
  std::filesystem::remove(test.part(2));
  Planned::check_refusal(test.finish(), {"1 of 4", ": 2;"});
  test.merge_parts(4);
  output_of(test.finish());

  REQUIRE(test.make_plan(4, {"-f", "--from", "0001"}).code == 0);
  Planned::check_refusal(test.finish(), {test.part(0), "another plan"});
  Planned::check_refusal(test.merge_part("0"), {test.part(0), "of another plan", "--force"});
  std::filesystem::remove(test.part(0));
  CHECK(test.merge_part("0").code == 0);
  test.merge_parts(4, {"-f"});
  output_of(test.finish());
}

TEST_CASE("a partition of runs that changed, or of a plan that does not fit, is refused") {
  const Planned test({"merge", "-r", "k:bytes4,v:bytes4"}, sorted_texts("", "", ""));
  REQUIRE(test.make_plan(2).code == 0);
  Planned::check_refusal(test.make_plan(2, {}), {test.plan, "exists already"});
  Planned::check_refusal(test.merge_part("2"), {"--partition 2", "0 to 1"});
  Planned::check_refusal(test.merge_part("0", {"--lines"}), {"--lines", "plan again"});
  for (const std::string option : {"--stats", "--trace"})
    for (const std::string& file : {test.runs[0], test.plan, test.parts + "/../plan.json",
                                    test.part(0), test.part(1) + ".json"})
      Planned::check_refusal(test.merge_part("0", {option, file}),
                             {option + " " + file, "too; name another"});
  test.merge_parts(2);
  write_file(test.runs[1], bytes_of_text(text_of(test.runs[1]) + "99999999"));
  Planned::check_refusal(test.merge_part("0", {"-f"}), {test.runs[1], "changed", "4008 bytes"});
  Planned::check_refusal(test.finish(), {test.runs[1], "changed"});

  std::string plan = text_of(test.plan);
  plan.replace(plan.find("\"cuts\""), 6, "\"cutz\"");
  write_file(test.plan, bytes_of_text(plan));
  Planned::check_refusal(test.merge_part("0"), {test.plan, "was changed"});
  plan.replace(plan.find("_plan\": \"") + 9, 1, "9");
  write_file(test.plan, bytes_of_text(plan));
  Planned::check_refusal(test.merge_part("0"), {test.plan, "is a plan of corank", "9."});
  write_file(test.plan, bytes_of_text("{}"));
  Planned::check_refusal(test.finish(), {test.plan, "is not a plan"});

  const auto refuse = [&](const Strings& command, const Strings& words) {
    Planned::check_refusal(Planned(command, {"a,b\n"}).make_plan(2), words);
  };
  refuse({"merge", "--lines", "--limit", "1"}, {"--limit"});
  Planned::check_refusal(
      run({"plan", "merge", "--lines", "--partitions", "2", "-o", test.plan, "-f", "-"}), {"pipe"});
  Planned::check_refusal(run({"plan", "merge", "--lines", "--partitions", "2", "-o", test.plan}),
                         {"no runs are named", "plan merge --help"});
  Planned::check_refusal(run({"plan", "merge", "--lines", "-m", "1G"}),
                         {"plan merge has no option -m"});
}

TEST_CASE("a plan of lines that are out of order names one of them") {
  const Planned test({"merge", "--lines"}, {random_lines(1000), random_lines(900)});
  const Result planned = test.make_plan(20);
  INFO(planned.err);
  CHECK((planned.code == 1 && holds(planned.err, "is out of order")));
}

TEST_CASE("a scheduler's variable names the partition") {
  const Planned test({"merge", "-r", "k:bytes4,v:bytes4"}, sorted_texts("", "", ""));
  REQUIRE(test.make_plan(4).code == 0);
  const auto with = [&](const std::vector<std::pair<std::string, std::string>>& variables) {
    return test.merge_part("auto", {}, with_variables(variables));
  };
  Planned::check_refusal(with({}), {"SLURM_ARRAY_TASK_ID", "name the partition"});
  Planned::check_refusal(with({{"JOB_COMPLETION_INDEX", "4"}}), {"JOB_COMPLETION_INDEX", "4"});
  Planned::check_refusal(with({{"RANK", "x"}}), {"RANK", "\"x\""});
  Planned::check_refusal(with({{"RANK", "1"}, {"WORLD_SIZE", "5"}}), {"WORLD_SIZE", "5 tasks"});
  Planned::check_refusal(with({{"SLURM_ARRAY_TASK_ID", "2"}, {"SLURM_ARRAY_TASK_COUNT", "2"}}),
                         {"SLURM_ARRAY_TASK_COUNT", "2 tasks", "4 partitions"});
  CHECK(with({{"SLURM_ARRAY_TASK_ID", "7"},
              {"SLURM_ARRAY_TASK_MIN", "1"},
              {"SLURM_ARRAY_TASK_STEP", "2"},
              {"SLURM_ARRAY_TASK_COUNT", "4"},
              {"SLURM_PROCID", "0"}})
            .code == 0);
  CHECK(std::filesystem::exists(test.part(3)));
  CHECK(with({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"SLURM_PROCID", "0"}}).code == 0);
  CHECK(std::filesystem::exists(test.part(2)));
  CHECK(with({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}}).code == 0);
  CHECK(std::filesystem::exists(test.part(1)));
}

TEST_CASE("several attempts at one partition do no harm") {
  const Planned test({"merge", "-r", "k:bytes4,v:bytes4"}, sorted_texts("", "", ""));
  REQUIRE(test.make_plan(1).code == 0);
  const std::string whole = test.whole();
  std::vector<std::thread> attempts;
  std::vector<int> codes(4, -1);
  for (int& code : codes)
    attempts.emplace_back([&test, &code] { code = test.merge_part("0", {"-f", "-q"}).code; });
  for (std::thread& attempt : attempts) attempt.join();
  CHECK(codes == std::vector(4, 0));
  CHECK(text_of(test.part(0)) == whole);
  const Result again = test.merge_part("0");
  CHECK((again.code == 0 && holds(again.err, "written already")));

  // Attempts that may resume share a file, whose lock refuses a second one.
  const std::string shared = test.parts + "/.part-00000.resume";
  std::filesystem::create_directory(shared);
  write_file(shared + "/.part-00000.corank", bytes_of_text("begun"));
  const FileDescriptor first = open_to_read(shared + "/.part-00000.corank");
  REQUIRE(::flock(first.get(), LOCK_EX | LOCK_NB) == 0);
  Planned::check_refusal(test.merge_part("0", {"-f", "--resume"}), {"another merge is writing it"});
  ::flock(first.get(), LOCK_UN);
  CHECK(test.merge_part("0", {"-f", "--resume"}).code == 0);
  CHECK(text_of(test.part(0)) == whole);
  CHECK(!std::filesystem::exists(shared));

  // One that is too late finds the part written, whatever the other one has removed by then.
  for (int round = 0; round < 12; ++round) {
    std::filesystem::remove(test.part(0));
    std::vector<Result> results(4);
    attempts.clear();
    for (Result& result : results)
      attempts.emplace_back([&test, &result] { result = test.merge_part("0", {"--resume"}); });
    for (std::thread& attempt : attempts) attempt.join();
    for (const Result& result : results) {
      INFO(result.err);
      CHECK((result.code == 0 || holds(result.err, "another merge is writing this part")));
    }
    CHECK(text_of(test.part(0)) == whole);
  }

  // A killed attempt leaves a folder, which finish removes, and nothing else.
  std::filesystem::create_directory(test.parts + "/.part-00000.host.1.0123abcd");
  write_file(test.parts + "/.part-00000.json.host.1.0123abcd", bytes_of_text("cut"));
  std::filesystem::create_directory(test.parts + "/.part-of-another-program");
  output_of(test.finish());
  CHECK(std::distance(std::filesystem::directory_iterator(test.parts), {}) == 3);
}

TEST_CASE("a partition that was resumed counts all its records") {
  const auto small_files = [] {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = 1000;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  const Strings lines{"merge", "--lines", "-t", " ", "-b", "1"};
  for (const Strings& operators : {Strings{}, Strings{"--on-equal", "last"}}) {
    const Planned test(lines + operators, sorted_texts("", " ", "\n"));
    REQUIRE(test.make_plan(1).code == 0);
    REQUIRE(test.merge_part("0", {"--resume"}, {.in = {}, .before_exec = small_files}).code == 2);
    const Result resumed = test.merge_part("0", {"--resume", "--stats", "-"});
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    CHECK(nlohmann::json::parse(resumed.out)["resumed_bytes"] > 900);
    const nlohmann::json record = nlohmann::json::parse(text_of(test.part(0) + ".json"));
    CHECK(record["records_read"] == 1500);
    const Result finished = test.finish({"--read-runs"});
    INFO(finished.err);
    CHECK(finished.code == 0);
    CHECK(text_of(test.part(0)) == test.whole());
  }
}

TEST_CASE("a part that was whole when its task was killed is not written again") {
  const Planned test({"merge", "--lines", "-t", " ", "-b", "1", "--on-equal", "last"},
                     sorted_texts("", " ", "\n"));
  REQUIRE(test.make_plan(1).code == 0);
  REQUIRE(test.merge_part("0", {"--resume"}).code == 0);
  const std::string record = test.part(0) + ".json", folder = test.parts + "/.part-00000.resume";
  const std::string written = text_of(record);
  // Returns whether the part is written again after a kill before it had its name.
  const auto is_written_again = [&](const std::string& plan) {
    nlohmann::json own = nlohmann::json::parse(text_of(record));
    own["plan"] = plan;
    own["bytes"] = 0;
    own["first_key"] = own["last_key"] = "";
    std::filesystem::create_directory(folder);
    std::filesystem::rename(test.part(0), folder + "/part-00000");
    std::filesystem::remove(record);
    write_file(folder + "/part-00000.json", bytes_of_text(own.dump()));
    const Result result = test.merge_part("0", {"--resume", "--stats", "-"});
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(text_of(record) == written);
    CHECK(text_of(test.part(0)) == test.whole());
    CHECK(!std::filesystem::exists(folder));
    return !result.out.empty();
  };
  CHECK(!is_written_again(nlohmann::json::parse(written)["plan"]));
  CHECK(is_written_again("of another merge"));
}

TEST_CASE("attempts at one partition at once share no file") {
  const TemporaryFolder runs;
  // The merge takes long enough for the task to be stopped meanwhile.
  const std::string records = std::to_string(16'000'000 / exhaustive_step);
  REQUIRE(run({"gen", "-r", "key:u64", "--records", records, "--runs", "2", "-o", runs / "runs"})
              .code == 0);
  Planned test({"merge", "-r", "key:u64"}, {});
  test.runs = {runs / "runs/run-00000.bin", runs / "runs/run-00001.bin"};
  REQUIRE(test.make_plan(1).code == 0);
  const auto folders = [&] {
    Strings names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(test.parts, none))
      if (std::filesystem::exists(entry.path() / ".part-00000.corank", none))
        names.push_back(entry.path().filename());
    return names;
  };
  const auto attempt = [&](std::size_t others, const std::function<void(pid_t)>& act) {
    Environment environment;
    environment.before_exec = give_way;
    environment.while_running = [&, others](pid_t child) {
      wait_until([&] { return folders().size() > others || has_ended(child); });
      act(child);
    };
    const Result result = test.merge_part("0", {"-m", "700K"}, environment);
    INFO(result.err);
    CHECK(result.code == 0);
  };
  Strings both;
  const auto inode = [&] {
    struct stat status {};
    REQUIRE(::stat(test.part(0).c_str(), &status) == 0);
    return status.st_ino;
  };
  ino_t written = 0;
  attempt(0, [&](pid_t first) {
    REQUIRE(::kill(first, SIGSTOP) == 0);  // writes, until the second one has ended
    attempt(1, [&](pid_t) { both = folders(); });
    written = inode();
    REQUIRE(::kill(first, SIGCONT) == 0);
  });
  CHECK(inode() == written);  // the late one leaves it: a plan may have it as a run
  REQUIRE(both.size() == 2);
  CHECK(both[0] != both[1]);
  std::array<char, 256> host{};
  REQUIRE(::gethostname(host.data(), host.size() - 1) == 0);
  for (const std::string& name : both) {
    // The host, the process and a number of the attempt.
    const std::string begin = fmt::format(".part-00000.{}.", host.data());
    REQUIRE(name.starts_with(begin));
    CHECK(std::ranges::count(name.substr(begin.size()), '.') == 1);
  }
  CHECK(folders().empty());
  output_of(test.finish({"--read-runs"}));
}

TEST_CASE("a plan is written as other outputs are, and never over what it is made of") {
  const Planned test({"merge", "--lines"}, {"a\nb\n", "b\nc\n"});
  const auto plan_into = [&](const std::string& file, const Strings& options = {}) {
    return run(Strings{"plan", "merge", "--lines", "-f", "--partitions", "2", "-o", file,
                       test.runs[0], test.runs[1]} +
               options);
  };
  const std::string target = test.folder / "target", link = test.folder / "link";
  write_file(target, bytes_of_text("old"));
  std::filesystem::create_symlink(target, link);
  REQUIRE(plan_into(link).code == 0);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(holds(text_of(target), "corank_plan"));
  CHECK(nlohmann::json::parse(output_of(plan_into("-"))).contains("corank_plan"));
  const std::string device = test.folder / "device";  // a link, so that no fault harms the device
  std::filesystem::create_symlink("/dev/null", device);
  REQUIRE(plan_into(device).code == 0);
  CHECK(std::filesystem::is_symlink(device));

  Planned::check_refusal(plan_into(test.runs[1]), {test.runs[1], "is also read"});
  CHECK(text_of(test.runs[1]) == "b\nc\n");
  const std::string list = test.folder / "list";
  write_file(list, bytes_of_text(test.runs[0] + "\n"));
  Planned::check_refusal(plan_into(list, {"--files-from", list}), {list, "is also read"});
  CHECK(text_of(list) == test.runs[0] + "\n");

  REQUIRE(test.make_plan(2).code == 0);
  test.merge_parts(2);
  for (const std::string& file : {test.plan, test.part(1) + ".json"})
    Planned::check_refusal(test.finish({"-f", "--concatenate", file}), {file, "is also read"});
  Planned::check_refusal(test.finish({"-f", "--concatenate", "-"}), {"--concatenate", "file"});
  output_of(test.finish());
}

TEST_CASE("a part replaces neither runs of its plan nor what is no part") {
  const TemporaryFolder folder;
  const std::string runs = folder / "runs", plan = folder / "plan.json";
  std::filesystem::create_directory(runs);
  const std::string first = runs + "/part-00000.json", second = runs + "/part-00001.json";
  write_file(first, bytes_of_text("{\"id\":1}\n"));
  write_file(second, bytes_of_text("{\"id\":2}\n"));
  output_of(run({"plan", "merge", "--lines", "--partitions", "2", "-o", plan, first, second}));
  for (const Strings& options : {Strings{}, Strings{"--force"}}) {
    const Result result = run(
        Strings{"merge", "--plan", plan, "--partition", "0", "--output-folder", runs} + options);
    Planned::check_refusal(result, {first, "is a run of the plan", "another --output-folder"});
  }
  CHECK(text_of(first) == "{\"id\":1}\n");

  const std::string other = folder / "plan.parts/part-00001.json";
  std::filesystem::create_directory(folder / "plan.parts");
  write_file(other, bytes_of_text("{\"id\":3}\n"));
  Planned::check_refusal(run({"merge", "--plan", plan, "--partition", "1"}),
                         {other, "is not a record of a part", "--force"});
  CHECK(text_of(other) == "{\"id\":3}\n");
  output_of(run({"merge", "--plan", plan, "--partition", "1", "--force"}));
  CHECK(text_of(folder / "plan.parts/part-00001") == "{\"id\":2}\n");
}

TEST_CASE("a record that a crash has cut does not keep its part from being resumed") {
  const Planned test({"merge", "-r", "k:bytes4,v:bytes4"}, sorted_texts("", "", ""));
  REQUIRE(test.make_plan(1).code == 0);
  const std::string shared = test.parts + "/.part-00000.resume";
  std::filesystem::create_directories(shared);
  write_file(shared + "/part-00000", bytes_of_text("half"));
  write_file(shared + "/part-00000.json", {});
  CHECK(test.merge_part("0", {"--resume"}).code == 0);
  CHECK(text_of(test.part(0)) == test.whole());
}

TEST_CASE("finish refuses parts that are not of its plan among its parts") {
  const Planned test({"merge", "-r", "k:bytes4,v:bytes4"}, sorted_texts("", "", ""));
  REQUIRE(test.make_plan(3).code == 0);
  test.merge_parts(3);
  REQUIRE(test.make_plan(2).code == 0);
  test.merge_parts(2, {"-f"});
  Planned::check_refusal(test.finish(), {"/part-00002", "is no part of this plan", "remove it"});
  std::filesystem::remove(test.part(2));
  std::filesystem::remove(test.part(2) + ".json");
  write_file(test.part(1) + ".gz", bytes_of_text("older"));
  Planned::check_refusal(test.finish(), {test.part(1) + ".gz", "is no part of this plan"});
  std::filesystem::remove(test.part(1) + ".gz");
  for (const char* name : {"/part-numbers.txt", "/x"})
    write_file(test.parts + name, bytes_of_text("of somebody else"));
  output_of(test.finish());
}

TEST_CASE("parts are written one after another into no file whose name promises another format") {
  const Planned test({"merge", "-r", "k:bytes4,v:bytes4"}, sorted_texts("", "", ""));
  REQUIRE(test.make_plan(2, {"-f", "--compress", "gzip"}).code == 0);
  test.merge_parts(2);
  for (const char* name : {"all.zst", "all.parquet"}) {
    Planned::check_refusal(test.finish({"--concatenate", test.folder / name}), {name});
    CHECK(!std::filesystem::exists(test.folder / name));
  }
  output_of(test.finish({"--concatenate", test.folder / "all.gz"}));
  // A name that is taken is told before the parts are read.
  const Result taken = test.finish({"--concatenate", test.folder / "all.gz"});
  Planned::check_refusal(taken, {"all.gz: exists already", "--force"});
  CHECK(taken.out.empty());
  for (const std::string name :
       {"none/all.gz", "plan.parts/part-00009.gz", "plan.parts/.part-00001.json.host.1.0123abcd"}) {
    const Result refused = test.finish({"--concatenate", test.folder / name});
    Planned::check_refusal(refused, {name.starts_with("none") ? "none: is not a folder" : name});
    CHECK(refused.out.empty());
    CHECK(!std::filesystem::exists(test.folder / name));
  }
}

TEST_CASE("a part that changes after it was checked is written into no whole") {
  const TemporaryFolder folder;
  const std::string part = folder / "part", whole = folder / "whole";
  for (const std::string_view text : {"abcd", "ab", "abcx", "abcde"}) {
    write_file(part, bytes_of_text("abcd"));
    const std::vector<PartitionPlan::Input> parts{identify(part)};
    if (text != "abcd") {
      write_file(part, bytes_of_text(std::string(text)));
      const struct timespec times[2]{};
      REQUIRE(::utimensat(AT_FDCWD, part.c_str(), times, 0) == 0);
      CHECK_THROWS_AS(concatenate(parts, whole, {}), Error);
      CHECK(!std::filesystem::exists(whole));
      continue;
    }
    concatenate(parts, whole, {});
    CHECK(text_of(whole) == text);
    std::filesystem::remove(whole);
  }
}

TEST_CASE("finish finds that runs of a sort have changed since they were written") {
  const PlannedSort test({"sort", "-r", "k:u8,v:u8", "--on-equal", "first"}, {"bbaa", "dccd"});
  REQUIRE(test.plan_sort(1).code == 0);
  test.sort_parts(1);
  std::string run_text = text_of(test.sorted + "/part-00000");
  run_text.back() ^= 1;
  write_file(test.sorted + "/part-00000", bytes_of_text(run_text));
  REQUIRE(test.plan_merge(1).code == 0);
  test.merge_parts(1);
  Planned::check_refusal(test.finish({"--read-runs"}), {"the runs have changed"});
}

TEST_CASE("a plan or record that is damaged is named") {
  const Planned test({"merge", "--lines"}, {"a\nb\n", "b\nc\n"});
  REQUIRE(test.make_plan(2).code == 0);
  test.merge_parts(2);
  const std::string good = text_of(test.plan);
  const auto refuse = [&](const std::string& text, const Strings& words) {
    write_file(test.plan, bytes_of_text(text));
    for (const Result& result : {run({"plan", "show", test.plan}), test.finish()})
      Planned::check_refusal(result, Strings{test.plan} + words);
  };
  const std::string deep(200'000, '['), end(200'000, ']');
  refuse(R"({"corank_plan":")" + json_version(good) + R"(","x":)" + deep + end + "}", {"changed"});
  refuse(R"({"corank_plan":)" + deep + end + "}", {});
  refuse(R"({"corank_plan":")" + json_version(good) + R"(","digest":5})", {"was changed"});
  using Json = nlohmann::ordered_json;
  const auto with = [&](const std::function<void(Json&)>& change) {
    Json json = Json::parse(good);
    change(json);
    json.erase("digest");
    json["digest"] = fmt::format("{:016x}", digest(json.dump()));
    return json.dump();
  };
  write_file(test.plan, bytes_of_text(with([](Json&) {})));
  output_of(test.finish());  // so these digests are right
  refuse(with([](Json& json) { json["cuts"][1] = Json::array(); }), {"is damaged"});
  refuse(with([](Json& json) { json["cuts"][1][0] = 1.5; }), {"is damaged"});
  refuse(with([](Json& json) { json["cuts"][1][0] = -1; }), {"is damaged"});
  refuse(with([](Json& json) { std::swap(json["cuts"][0], json["cuts"][2]); }), {"is damaged"});
  refuse(with([](Json& json) { json["cuts"] = Json::array(); }), {"is damaged"});
  refuse(with([](Json& json) { json.erase("runs"); }), {"is damaged"});
  refuse(with([](Json& json) { json["command"] = 7; }), {"is damaged"});

  write_file(test.plan, bytes_of_text(good));
  const std::string record = test.part(0) + ".json";
  std::filesystem::copy_file(test.part(1) + ".json", record,
                             std::filesystem::copy_options::overwrite_existing);
  Planned::check_refusal(test.finish(), {test.part(0), "partition 1", "--force"});
  write_file(record, bytes_of_text("["));
  Planned::check_refusal(test.finish(), {record, "write the part again, with --force"});
  std::filesystem::remove(record);
  std::filesystem::create_directory(record);
  Planned::check_refusal(test.finish(), {record, "cannot be read"});
  std::filesystem::remove(record);
  Planned::check_refusal(run({"plan", "show", test.parts}), {test.parts, "cannot be read"});
}

TEST_CASE("a plan refuses text that it cannot hold") {
  const TemporaryFolder folder;
  const std::string plan = folder / "plan.json", name = folder / "\xff", file = folder / "file";
  write_file(name, bytes_of_text("a\n"));
  write_file(file, bytes_of_text("a\n"));
  for (const Strings& arguments : {Strings{name}, {"-t", "\xa7", "-b", "1", file}}) {
    Strings all{"plan", "merge", "--lines", "--partitions", "1", "-o", plan};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Result result = run(all);
    CHECK(result.code == 2);
    CHECK(holds(result.err, "is not UTF-8 text, which a plan needs"));
    CHECK(!std::filesystem::exists(plan));
  }
}

TEST_CASE("the library refuses partitions that a plan does not have") {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> runs{folder / "run"};
  write_file(runs[0], bytes_of_text("abcdefgh"));
  Options options;
  options.record = Schema::parse("k:u64");
  CHECK_THROWS_AS(plan_partitions(runs, 0, options), Error);
  const PartitionPlan plan = plan_partitions(runs, 2, options);
  CHECK(write_partition(plan, 1, folder / "part", options).records +
            write_partition(plan, 0, folder / "other", options).records ==
        1);
  CHECK_THROWS_AS(write_partition(plan, 2, folder / "none", options), Error);
  // A header of known size is of lines, and the same in each file.
  Options sized;
  sized.text.emplace().header_bytes = 0;
  CHECK_NOTHROW(plan_partitions(runs, 1, sized));
  sized.text->header = sized.text->first_header = true;
  CHECK_THROWS_AS(plan_partitions(runs, 1, sized), Error);
  sized.text.emplace().kind = TextKind::pairs;
  sized.text->header_bytes = 4;
  CHECK_THROWS_AS(plan_partitions(runs, 1, sized), Error);
}
