// JSON Lines on the command line. tests/oracle/random_merges.py compares merges with a model.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "format/json_lines.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Runs of JSON Lines in a folder.
struct JsonFolder : RunFolder {
  using RunFolder::RunFolder;

  Result run_all(Strings command) const {
    command.insert(command.begin() + 1, "--jsonl");
    return run_with(std::move(command));
  }
  // Returns what the command writes to its output; fails the test if the command fails.
  std::string output_of(Strings command) const {
    command.insert(command.end(), {"-o", "-", "-q"});
    return test::output_of(run_all(std::move(command)));
  }
};

const std::string old_events = R"({"id":1,"user":{"name":"Zo\u00eb"},"at":"2020-01-01","n":5}
{"id":9,"user":{"name":"Ada"},"at":"2020-01-02","n":null}
{"id":10,"user":{"name":"Bob"},"at":"2020-01-01T12:00","n":"7"}
)";
const std::string new_events = R"({"id": 9, "user": {"name": "Eve"}, "at": "2019-01-01"}
{"id": 11, "user": {"name": "Ada"}, "at": "2021-01-01", "n": 123456789012345678901234567890}
)";

Strings lines_of(const std::string& text) {
  Strings lines;
  for (std::size_t at = 0; at < text.size(); at += lines.back().size())
    lines.push_back(text.substr(at, text.find('\n', at) + 1 - at));
  return lines;
}

}  // namespace

TEST_CASE("JSON Lines merge by fields, and every operator reads them", "[json]") {
  if (!reads_json_lines()) return;
  const JsonFolder test({old_events, new_events});
  const Strings old = lines_of(old_events), now = lines_of(new_events);
  CHECK(test.output_of({"merge", "-b", "id:u64"}) == old[0] + old[1] + now[0] + old[2] + now[1]);
  CHECK(test.output_of({"merge", "-b", "id:u64", "--on-equal", "last"}) ==
        old[0] + now[0] + old[2] + now[1]);
  CHECK(test.output_of({"subtract", "-b", "id:u64"}) == old[0] + old[2]);
  CHECK(test.output_of({"merge", "-b", "id:u64", "--where", "/user/name == 'Ada' or n == ''"}) ==
        old[1] + now[0] + now[1]);
  CHECK(test.output_of({"merge", "-b", "id:u64", "--where", "/user/name == 'Zoë'"}) == old[0]);
  CHECK(test.output_of({"merge", "-b", "id:u64", "--where", "n:decimal < 6.5"}) == old[0]);
  CHECK(test.output_of({"merge", "-b", "id:u64", "--where", "nowhere:u64 > 5"}) == "");
  CHECK(test.output_of({"merge", "-b", "id:u64", "--from", "9", "--to", "11"}) ==
        old[1] + now[0] + old[2]);
  CHECK(test.output_of({"sort", "-b", "/user/name,id:u64:desc"}) ==
        now[1] + old[1] + old[2] + now[0] + old[0]);
  CHECK(test.output_of({"sort", "-b", "at:time:desc"}) ==
        now[1] + old[1] + old[2] + old[0] + now[0]);
  CHECK(test.output_of({"sort", "-b", "n:u64", "--bad", "last"}) ==
        old[0] + old[2] + old[1] + now[0] + now[1]);
  CHECK(test.output_of({"sort"}) == now[1] + now[0] + old[0] + old[2] + old[1]);
  CHECK(test.run_all({"check", "-b", "id:u64"}).code == 0);
  CHECK(test.run_all({"check", "-b", "/user/name"}).code == 1);
  const Result parts =
      test.run_all({"merge", "-b", "id:u64", "--parts", "2", "-o", test.folder / "parts"});
  CHECK(parts.code == 0);
  CHECK(text_of(test.folder / "parts/part-00000") + text_of(test.folder / "parts/part-00001") ==
        old[0] + old[1] + now[0] + old[2] + now[1]);
}

TEST_CASE("bad JSON is an error that names the line and the cause", "[json]") {
  if (!reads_json_lines()) return;
  const auto error_of = [](const std::string& text, const Strings& options) {
    const JsonFolder test({text});
    Strings command{"merge", "-o", test.folder / "out"};
    command.insert(command.end(), options.begin(), options.end());
    const Result result = test.run_all(command);
    CHECK(result.code == 2);
    return result.err;
  };
  const std::string cut = error_of("{\"a\":1}\n{\"a\":2\n", {"-b", "a:u64"});
  CHECK(holds(cut, "line 2 (byte 8): is not valid JSON: "));
  CHECK(holds(cut, "--bad skip"));
  CHECK(holds(error_of("\n", {"-b", "a", "--bad", "last"}), "line 1 (byte 0): is not valid JSON"));
  CHECK(holds(error_of("[]\n", {}), "not an object"));
  const std::string no_number = error_of("{\"a\":{\"b\":\"x\"}}\n", {"-b", "/a/b:u64"});
  CHECK(holds(no_number, "line 1 (byte 0): field /a/b, \"x\", is not a number that u64 holds"));
  CHECK(!holds(no_number, "--header"));
  CHECK(holds(error_of("{}\n", {"-b", "a:u64"}), "there is no field a"));
  CHECK(holds(error_of("{\"a\":null}\n", {"-b", "a:u64"}), "is not a number"));
  const std::string lines = "{\"a\":1}\n{\"a\":\n{}\n{\"a\":2}\n";
  CHECK(JsonFolder({lines}).output_of({"merge", "-b", "a:u64", "--bad", "skip"}) ==
        "{\"a\":1}\n{\"a\":2}\n");
}

TEST_CASE("a field that no first record has is told, with the nearest name", "[json]") {
  if (!reads_json_lines()) return;
  const JsonFolder test({"{\"id\":1}\n", "{\"id\":2,\"n\":null}\n"});
  const auto told = [&](const char* field) {
    return test.run_all({"merge", "-b", field, "-o", "-"}).err;
  };
  CHECK(holds(told("idd"), "has no field idd; its fields are id, n; did you mean id?"));
  CHECK(holds(told("/id/x"), "has no field /id/x"));
  CHECK(told("id").empty());
  CHECK(told("n").empty());
  const Strings where{"merge", "-b", "id", "-o", "-", "--where"};
  CHECK(holds(test.run_all(where + Strings{"nn == 1 or id == 2"}).err,
              "--where: the first record of each file has no field nn"));
  CHECK(test.run_all(where + Strings{"n:u64 == 1"}).err.empty());
  CHECK(test.run_all({"merge", "-b", "id,n", "-o", "-"}).err.empty());
  CHECK(holds(test.run_all({"merge", "-b", "id", "-o", "-", "--having", "m == 'x'"}).err,
              "--having: the first record of each file has no field m"));
  const JsonFolder each({"{\"id\":1,\"x\":1}\n", "{\"id\":2,\"y\":1}\n"});
  CHECK(each.run_all(where + Strings{"x:i64 == 1 or y:i64 == 1"}).err.empty());
}

TEST_CASE("the whole line is a key of JSON Lines, and bad numbers come first on request",
          "[json]") {
  if (!reads_json_lines()) return;
  const JsonFolder test({"{\"a\":2}\n{\"b\":1}\n", "{\"a\":\"x\"}\n"});
  CHECK(test.output_of({"sort", "-b", "line"}) == "{\"a\":\"x\"}\n{\"a\":2}\n{\"b\":1}\n");
  CHECK(test.output_of({"sort", "-b", "b,line"}) == "{\"a\":\"x\"}\n{\"a\":2}\n{\"b\":1}\n");
  CHECK(test.output_of({"sort", "-b", "a:u64", "--bad", "first"}) ==
        "{\"b\":1}\n{\"a\":\"x\"}\n{\"a\":2}\n");
}

TEST_CASE("numbers in quotes may be escaped", "[json]") {
  if (!reads_json_lines()) return;
  const std::string one = "{\"a\":\"\\u0031\"}\n", two = "{\"a\":\"2\"}\n";
  const JsonFolder test({two, one});
  for (const std::string type : {"u64", "i64", "f64", "decimal", "human"})
    CHECK(test.output_of({"sort", "-b", "a:" + type}) == one + two);
  CHECK(test.output_of({"sort", "-b", "a:u64", "--where", "a:u64 < 2"}) == one);
}

TEST_CASE("options that do not fit JSON Lines are refused", "[json]") {
  if (!reads_json_lines()) return;
  const JsonFolder test({"{\"a\":1}\n"});
  const auto refuses = [&](const Strings& options, const char* why) {
    Strings command{"merge", "-o", test.folder / "out"};
    command.insert(command.end(), options.begin(), options.end());
    const Result result = test.run_all(command);
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK(holds(result.err, why));
  };
  refuses({"--csv"}, "one of");
  refuses({"--header"}, "--header");
  refuses({"-t", ","}, "--delimiter");
  refuses({"--select", "a"}, "--select");
  refuses({"-b", "1"}, "have names");
  refuses({"-b", "/a~"}, "~0");
  refuses({"-b", "a,/a/b", "--from", "x,y"}, "holds another");
  refuses({"--on-equal", "reduce:sum(a)"}, "--on-equal");
  CHECK(test.output_of({"merge", "-b", "\"1\""}) == "{\"a\":1}\n");
}

TEST_CASE("a field that is a key twice has one value in a range", "[json]") {
  if (!reads_json_lines()) return;
  const RunFolder test({"{\"k\":1,\"name\":\"Ada\"}\n"});
  const Strings merge{"merge", "--jsonl", "-b", "k,name:nocase,name", "--from"};
  CHECK(output_of(test.run_with(merge + Strings{"1,Ada,Ada"})) == text_of(test.runs[0]));
  CHECK(output_of(test.run_with(merge + Strings{"1,ada,ada"})).empty());
  CHECK(output_of(test.run_with({"merge", "--jsonl", "-b", "k:u64,/k", "--from", "1,1"})) ==
        text_of(test.runs[0]));
  const Result refused = test.run_with(merge + Strings{"1,Ada,Bob"});
  INFO(refused.err);
  CHECK(refused.code == 2);
  CHECK(holds(refused.err, "is a key again"));
}

TEST_CASE("a sort of many JSON Lines agrees with std::stable_sort", "[json]") {
  if (!reads_json_lines()) return;
  Random random(3);
  std::vector<std::pair<std::string, std::string>> records;  // decoded name, line
  for (int i = 0; i < 60'000; ++i) {
    std::string name = "a common prefix ", escaped = name;
    for (std::uint64_t left = below(random, 6); left > 0; --left) {
      const std::pair<const char*, const char*> letters[] = {
          {"a", "a"}, {"b", "\\u0062"}, {"\xc3\xa9", "\\u00e9"}, {"\n", "\\n"}, {"€", "€"}};
      const auto& [plain, json] = letters[below(random, std::size(letters))];
      name += plain;
      escaped += json;
    }
    records.emplace_back(
        name,
        fmt::format("{{\"i\":{},\"deep\":{{\"x\":[\"}}\"],\"name\":\"{}\"}}}}\n", i, escaped));
  }
  std::string text;
  for (const auto& record : records) text += record.second;
  std::ranges::stable_sort(records, {}, &std::pair<std::string, std::string>::first);
  std::string expected;
  for (const auto& record : records) expected += record.second;
  const JsonFolder test({text});
  CHECK((test.output_of({"sort", "-b", "/deep/name"}) == expected));
  CHECK((test.output_of({"sort", "-b", "/deep/name", "-m", "16M", "-T", "2"}) == expected));
}
