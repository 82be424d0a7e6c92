// Tests of `corank bench` and of the measured hardware limits: printed reports, written files, and
// files left over.
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "corank/error.hpp"
#include "support/catch.hpp"
#include "support/program.hpp"
#include "tools/corank/hardware_limits.hpp"

using namespace corank;
using namespace corank::test;
using Json = nlohmann::json;

namespace {

// `arguments` are separated by blanks.
Result corank_says(const std::string& arguments, const Environment& setting = {}) {
  std::istringstream words(arguments);
  return run(Strings(std::istream_iterator<std::string>(words), {}), setting);
}

// Returns the output of a command whose standard files are all one terminal.
std::string shown_on_terminal(std::vector<std::string> command, unsigned short columns = 0) {
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int terminal = -1;
  const struct winsize window { .ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0 };
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &window);
  if (child == 0) {
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  std::string shown;
  char block[4096];
  for (ssize_t got; (got = ::read(terminal, block, sizeof block)) > 0;)
    shown.append(block, static_cast<std::size_t>(got));
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  return shown;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace

TEST_CASE("ceilings are measured in little room and leave nothing") {
  const TemporaryFolder folder;
  CeilingOptions options;
  options.folder = folder.path();
  options.bytes = 16 << 20;
  options.round = std::chrono::milliseconds(2);
  std::set<std::string> names;
  for (const Ceiling& ceiling : measure_ceilings(options)) {
    INFO(ceiling.name);
    CHECK(names.insert(ceiling.name).second);
    CHECK(!ceiling.what.empty());
    CHECK((ceiling.bytes_per_second > 0) == ceiling.note.empty());
  }
  for (const char* name :
       {"memory_copy_one", "page_cache_read_one", "page_cache_write_one", "page_cache_write_files"})
    CHECK(names.contains(name));
  CHECK(names.contains("direct") != names.contains("direct_read"));
  CHECK(names.contains("link") != names.contains("link_both"));
  CHECK(folder.names().empty());

  options.folder = folder / "nowhere";
  CHECK_THROWS_AS(measure_ceilings(options), Error);
}

TEST_CASE("measuring ceilings needs the room") {
  CeilingOptions options;
  options.folder = std::filesystem::temp_directory_path();
  options.bytes = std::uint64_t{1} << 45;
  try {
    measure_ceilings(options);
    FAIL("32 TiB were free");
  } catch (const Error& error) {
    CHECK(holds(error.what(), options.folder));
    CHECK(holds(error.what(), "--in"));
  }
}

TEST_CASE("info prints what it measured as JSON") {
  const TemporaryFolder folder;
  const Result result = corank_says("info --json --in " + folder.path().string());
  INFO(result.err);
  REQUIRE(result.code == 0);
  const Json info = Json::parse(result.out);
  CHECK(info["machine"]["threads"] >= 1);
  CHECK(info["machine"]["memory_bytes"] > 1 << 20);
  CHECK(info["ceilings"]["memory_copy_one"]["bytes_per_second"] > 1e6);
  for (const auto& [name, ceiling] : info["ceilings"].items())
    CHECK(ceiling.contains("bytes_per_second") != ceiling.contains("not_measured"));
  CHECK(folder.names().empty());
}

TEST_CASE("bench measures every row in turn and checks it") {
  const TemporaryFolder folder;
  const std::string json = folder / "bench.json";
  const Result result =
      corank_says("bench --in " + folder.path().string() +
                  " --size 400K -k 3,40 --repeat 2 "
                  "--distribution uniform,lopsided -r key:u64,value:u64 -r a:bytes10,b:f32 "
                  "--backend cpu -T 2 --commit abc --json " +
                  json);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err.empty());
  CHECK(folder.names() == std::vector<std::string>{"bench.json"});

  const Json bench = Json::parse(text_of(json));
  CHECK(bench["commit"] == "abc");
  CHECK(bench["merge_arguments"] == Json({"--backend", "cpu", "--threads", "2"}));
  REQUIRE(bench["rows"].size() == 8);
  for (const Json& row : bench["rows"]) {
    CHECK(row["bytes"] ==
          row["records"].get<std::uint64_t>() * row["record_bytes"].get<std::uint64_t>());
    CHECK(row["merge_stats"]["backend"] == "cpu");
    const Json& contenders = row["contenders"];
    REQUIRE(contenders.size() == 4);
    for (const Json& contender : contenders) {
      INFO(contender["name"]);
      CHECK(holds(result.out, contender["name"]));
      for (const char* what : {"wall", "cpu"}) {
        const auto seconds = what + std::string("_seconds");
        CHECK(contender[seconds].size() == 2);
        CHECK(contender[seconds][0] > 0);
        const double expected = median_of(contender[seconds]) / median_of(contenders[0][seconds]);
        const double ratio = contender[what + std::string("_ratio")];
        CHECK(std::abs(ratio - expected) < 1e-9);
      }
      CHECK(contender["peak_bytes"][0] > 100'000);
    }
    CHECK(contenders[0]["name"] == "copy-only");
    CHECK(contenders[1]["name"] == "merge");
    CHECK(contenders[1]["output_bytes"] == row["bytes"]);
    CHECK(contenders[2]["output_bytes"] == row["bytes"]);
    // Each record becomes a line: key and payload as hexadecimal digits, a blank and a newline.
    CHECK(contenders[3]["output_bytes"] ==
          2 * row["bytes"].get<std::uint64_t>() + 2 * row["records"].get<std::uint64_t>());
  }
}

TEST_CASE("bench measures a merge into parts beside the one into a file") {
  const TemporaryFolder folder;
  const std::string json = folder / "bench.json";
  const Result result =
      corank_says("bench --in " + folder.path().string() +
                  " --size 100K -k 5 --repeat 1 --distribution zipf -r key:u32,rest:bytes9 "
                  "-b rest:desc,key --parts 3 --backend cpu --peers none --json " +
                  json);
  INFO(result.err);
  REQUIRE(result.code == 0);
  const Json bench = Json::parse(text_of(json));
  CHECK(bench["parts"] == 3);
  const Json& contenders = bench["rows"][0]["contenders"];
  std::vector<std::string> names;
  for (const Json& contender : contenders) {
    names.push_back(contender["name"]);
    CHECK(contender["output_bytes"] == bench["rows"][0]["bytes"]);
    CHECK(contender["wall_seconds"][0] > 0);
    CHECK(holds(result.out, names.back()));
  }
  CHECK(names ==
        std::vector<std::string>{"copy-only", "merge", "copy-only, 3 parts", "merge, 3 parts"});
}

TEST_CASE("bench of cold runs has them out of the page cache or says that it cannot") {
  const TemporaryFolder folder;
  const std::string json = folder / "bench.json";
  const Result result =
      corank_says("bench --in " + folder.path().string() +
                  " --size 1M -k 2 --repeat 1 --distribution uniform -r key:u64 --backend cpu "
                  "--peers none --cold --json " +
                  json);
  INFO(result.err);
  if (result.code == 0)
    CHECK(Json::parse(text_of(json))["rows"][0]["cached_share"] <= 0.01);
  else
    CHECK(holds(result.err, "stay in the page cache"));
}

TEST_CASE("a closed pipe ends bench as it ends other programs") {
  for (const bool ignored : {false, true}) {
    const TemporaryFolder folder;
    const Result result =
        corank_says("bench --in " + folder.path().string() +
                        " --size 100K -k 2 --repeat 1 --distribution uniform -r key:u64 "
                        "--backend cpu --peers none",
                    without_reader(ignored));
    INFO(result.err);
    CHECK(result.code == (ignored ? 2 : 128 + SIGPIPE));
    CHECK(result.err.empty() != ignored);
    CHECK(folder.names().empty());
  }
}

TEST_CASE("bench says what is wrong and leaves nothing") {
  const TemporaryFolder folder;
  const std::string start = "bench --in " + folder.path().string() + " --repeat 1 -k 2 ";
  for (const auto& [arguments, part] : {std::pair{"--peers dog", "dog"},
                                        {"--distribution up", "up"},
                                        {"-k 0", "--runs"},
                                        {"--size 1M -r a:u3", "u3"},
                                        {"--size 100000G", "are free"},
                                        {"--size 1M -m 10K", "smallest budget"},
                                        {"--size 1M --backend gpu", "gpu"}}) {
    const Result result = corank_says(start + arguments);
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK(std::ranges::count(result.err, '\n') == 1);
    CHECK(holds(result.err, part));
    CHECK(folder.names().empty());
  }
  Environment setting;
  setting.before_exec = give_way;
  setting.while_running = [&](pid_t child) {
    wait_until([&] { return !folder.names().empty() || has_ended(child); });
    ::kill(child, SIGINT);
  };
  const Result interrupted = corank_says(start + "--size 400M", setting);
  INFO(interrupted.err);
  CHECK(interrupted.code == 130);
  CHECK(holds(interrupted.err, "interrupted"));
  CHECK(folder.names().empty());
}

TEST_CASE("lopsided runs are one long run and short ones") {
  const TemporaryFolder folder;
  REQUIRE(corank_says("gen -r key:u64 --records 1000 --runs 4 --distribution lopsided -o " +
                      (folder / "runs").string())
              .code == 0);
  const auto records = [&](int run) {
    return std::filesystem::file_size(folder / "runs" /
                                      ("run-0000" + std::to_string(run) + ".bin")) /
           8;
  };
  CHECK(records(0) == 990);
  CHECK(records(1) == 4);
  CHECK(records(2) == 3);
  CHECK(records(3) == 3);
}

TEST_CASE("progress is shown on a terminal and wiped away") {
  const TemporaryFolder folder;
  const std::string runs = folder / "runs";
  REQUIRE(corank_says("gen -r key:u64 --records 125000 --runs 2 -o " + runs).code == 0);
  std::vector<std::string> merge{program(),
                                 "merge",
                                 "-r",
                                 "key:u64",
                                 "--backend",
                                 "cpu",
                                 "-f",
                                 "-o",
                                 folder / "out",
                                 runs + "/run-00000.bin",
                                 runs + "/run-00001.bin"};
  const std::string shown = shown_on_terminal(merge);
  INFO(shown);
  CHECK(holds(shown, "\r100.0%  0:00 left  "));
  CHECK(holds(shown, " MB/s  1 of 1 MB\x1b[K\r\x1b[K"));
  CHECK(holds(shown, "corank: 125000 records in, 125000 out; "));
  CHECK(shown.ends_with(" MB/s\r\n"));
  CHECK(holds(shown_on_terminal(merge, 12), "\r100.0%\x1b[K\r"));
  for (const char* option : {"--no-progress", "--quiet"}) {
    merge.push_back(option);
    CHECK(shown_on_terminal(merge).empty());
    merge.pop_back();
  }
}
