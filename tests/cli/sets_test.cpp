// Tests of set operations on the command line.
#include <signal.h>
#include <sys/resource.h>

#include <string>
#include <utility>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Holds runs of two-byte records: a letter as the key, and a digit that identifies the record.
struct SetsFolder : RunFolder {
  explicit SetsFolder(const Strings& texts) : RunFolder(texts) {
    write_file(folder / "output", bytes_of_text("old"));
  }

  Result call(const std::string& operation, const Strings& options = {},
              const Environment& setting = {}) const {
    Strings all{operation, "-r", "k:bytes1,n:bytes1", "-f", "-o", folder / "output"};
    all.insert(all.end(), options.begin(), options.end());
    return run_with(std::move(all), setting);
  }
  std::string output_of(const std::string& operation, const Strings& options = {},
                        const Environment& setting = {}) const {
    const Result result = call(operation, options, setting);
    INFO(result.err);
    CHECK(result.code == 0);
    return text_of(folder / "output");
  }
  void check_refusal(const std::string& operation, const Strings& options, int code,
                     const Strings& parts) const {
    const Result result = call(operation, options);
    INFO(result.err);
    CHECK(result.code == code);
    CHECK(std::ranges::count(result.err, '\n') == 1);
    for (const std::string& part : parts) CHECK(holds(result.err, part));
    CHECK(text_of(folder / "output") == "old");
  }
};

}  // namespace

TEST_CASE("set operations from the command line") {
  const SetsFolder two({"a1a2b1d1", "a3b2b3c4"});
  CHECK(two.output_of("union") == "a1a2b1b3c4d1");
  CHECK(two.output_of("intersect") == "a1b1");
  CHECK(two.output_of("subtract") == "a2d1");

  CHECK(two.output_of("union", {"--distinct"}) == "a1b1c4d1");

  const SetsFolder three({"a1a2a3b1d1", "a4a5b2b3c4", "a6b4b5b6d2d3"});
  CHECK(three.output_of("union") == "a1a2a3b1b3b6c4d1d3");
  CHECK(three.output_of("intersect") == "a1b1");
  CHECK(three.output_of("subtract") == "");
  CHECK(three.output_of("subtract", {"--where", "n != '5'"}) == "a3");
  CHECK(three.output_of("union", {"--limit", "4", "--select", "n"}) == "1231");
  CHECK(three.output_of("union", {"--from", "b", "--to", "d", "-b", "k"}) == "b1b3b6c4");

  const SetsFolder one({"a1a2b1"});
  for (const char* operation : {"union", "intersect", "subtract"})
    CHECK(one.output_of(operation) == "a1a2b1");
}

TEST_CASE("set operations write parts, read pipes and compress") {
  SetsFolder test({"a1a2b1d1", "-"});
  test.runs.back() = "-";
  const Environment in{.in = "a3b2b3c4"};
  CHECK(test.output_of("intersect", {}, in) == "a1b1");
  CHECK(test.output_of("subtract", {}, in) == "a2d1");
  CHECK(test.output_of("union", {}, in) == "a1a2b1b3c4d1");
  const std::string packed = test.folder / "packed.zst";
  CHECK(run({"union", "-r", "k:bytes1,n:bytes1", "-o", packed, test.runs[0], "-"}, in).code == 0);
  CHECK(run({"intersect", "-r", "k:bytes1,n:bytes1", "-f", "-o", test.folder / "output", packed,
             test.runs[0]})
            .code == 0);
  CHECK(text_of(test.folder / "output") == "a1a2b1d1");

  const std::string limited = test.folder / "limited";
  CHECK(run({"union", "-r", "k:bytes1,n:bytes1", "--parts", "2", "--limit", "3", "-o", limited,
             test.runs[0], test.runs[0]})
            .code == 0);
  CHECK(text_of(limited + "/part-00000") == "a1");
  CHECK(text_of(limited + "/part-00001") == "a2b1");

  const std::string parts = test.folder / "parts";
  CHECK(run({"union", "-r", "k:bytes1,n:bytes1", "--parts", "2", "-o", parts, test.runs[0],
             test.runs[0]})
            .code == 0);
  CHECK(text_of(parts + "/part-00000") + text_of(parts + "/part-00001") == "a1a2b1d1");
}

TEST_CASE("a set operation that stopped goes on with --resume") {
  std::string run(4'000, ' ');
  for (std::size_t i = 0; i < run.size(); ++i)
    run[i] = static_cast<char>(i % 2 == 0 ? 'a' + i * 26 / run.size() : '0');
  const SetsFolder test({run, run});
  Environment full;
  full.before_exec = [] {
    const struct rlimit limit { 2'000, 2'000 };
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  const Result stopped = test.call("union", {"--resume"}, full);
  INFO(stopped.err);
  CHECK(stopped.code == 2);
  CHECK(holds(stopped.err, "what was written is kept"));
  CHECK(text_of(test.folder / "output") == "old");
  CHECK(holds(test.call("union", {"--resume", "--stats", "-"}).out, "\"resumed_bytes\": 2000"));
  CHECK(text_of(test.folder / "output") == run);
}

TEST_CASE("bad input: set operations that contradict the options or the runs") {
  const SetsFolder test({"a1b1", "c2b2"});
  test.check_refusal("union", {}, 1, {test.runs[1], "record 1"});
  test.check_refusal("intersect", {"--on-equal", "last"}, 2, {"--on-equal"});
  test.check_refusal("subtract", {"--copy-only"}, 2, {"--copy-only"});
  test.check_refusal("union", {"--limit", "5", "--parts", "2", "--resume"}, 2,
                     {"--limit", "--parts", "--resume"});
  CHECK(holds(run({"union", "-r", "k:u8", "-o", test.folder / "new"}).err, "union: no runs"));
}
