// Tests of lines, CSV and pairs on the command line. tests/oracle/gnu_sort_test.cpp compares lines
// with GNU sort.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/program.hpp"
#include "support/text_reference.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Holds runs of text, and an output from an earlier merge.
struct TextFolder : RunFolder {
  explicit TextFolder(const Strings& texts = {}) : RunFolder(texts) {
    write_file(output(), Bytes(5));
  }

  std::filesystem::path output() const { return folder / "output"; }

  Result merge(const Strings& options) const { return run(command(options)); }

  // Returns the merged text; fails the test if the merge fails.
  std::string merged(const Strings& options) const {
    const Result result = merge(options);
    INFO(result.err);
    REQUIRE(result.code == 0);
    return text_of(output());
  }

  // Checks a clean failure: the exit code, one line of error that contains all of `parts`, and an
  // unchanged folder.
  void check_refusal(const Strings& options, int code, const Strings& parts) const {
    const auto before = folder.names();
    const std::string old = text_of(output());
    const Result result = merge(options);
    INFO(result.err);
    CHECK(result.code == code);
    CHECK(result.err.starts_with("corank: "));
    CHECK(std::ranges::count(result.err, '\n') == 1);
    for (const std::string& part : parts) {
      INFO(part);
      CHECK(holds(result.err, part));
    }
    CHECK((text_of(output()) == old));
    CHECK(folder.names() == before);
  }

 private:
  Strings command(const Strings& options) const {
    Strings all{"merge", "-f", "-o", output()};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), runs.begin(), runs.end());
    return all;
  }
};

std::string random_text(Random& random, std::string_view characters, std::uint64_t max_bytes) {
  std::string text(below(random, max_bytes + 1), ' ');
  for (char& c : text) c = characters[below(random, characters.size())];
  return text;
}

// Returns the part of a record that the reference compares: a pair's key, or the line without its
// end.
std::string decoded(const TextFormat& format, const std::string& record) {
  if (format.kind != TextKind::pairs) return record.substr(0, record.size() - 1);
  return record.substr(
      8, static_cast<unsigned char>(record[0]) + 256u * static_cast<unsigned char>(record[1]));
}

// Deals random records to sorted runs, merges them and compares the output with std::stable_sort.
void check_against_reference(const TextFormat& format, const Strings& options,
                             const std::string& header, Random& random,
                             const std::function<std::string()>& make_record) {
  const auto less = [&](const std::string& a, const std::string& b) {
    return compare_records(decoded(format, a), decoded(format, b), format) < 0;
  };
  TextFolder test;
  Strings all;
  for (std::uint64_t runs = 1 + below(random, 9); runs > 0; --runs) {
    Strings records(below(random, 400));
    for (std::string& record : records) record = make_record();
    std::ranges::stable_sort(records, less);
    std::string text = header;
    for (const std::string& record : records) text += record;
    if (format.kind == TextKind::csv && text.ends_with('\n') && below(random, 3) == 0)
      text.pop_back();
    test.add(text);
    all.insert(all.end(), records.begin(), records.end());
  }
  std::ranges::stable_sort(all, less);
  std::string expected = header;
  for (const std::string& record : all) expected += record;
  CHECK((test.merged(options) == expected));
}

}  // namespace

TEST_CASE("files that are all empty have no header, and need none") {
  const TextFolder none({"", ""});
  CHECK(none.merged({"--csv", "--header", "-b", "city", "--on-equal", "reduce:sum(sales)"}) == "");

  const TextFolder test({"", ""});
  for (const Strings& options : {Strings{"-b", "n:u64"},
                                 {"--where", "n == 'x'"},
                                 {"--select", "n"},
                                 {"--select", "a,b"},
                                 {"--select", "2,a,1"},
                                 {"-b", "a,b:u64", "--from", "'x',1"}}) {
    Strings all{"--csv", "--header"};
    all.insert(all.end(), options.begin(), options.end());
    CHECK(test.merged(all).empty());
  }
  CHECK(run({"check", "--csv", "--header", "-b", "n", test.runs[0]}).code == 0);
}

TEST_CASE("CSV is merged as its decoded columns are ordered", "[text]") {
  Random random(21);
  for (int repetition = 0; repetition < 6; ++repetition)
    for (const char* keys : {"1", "2:u64:desc,1:nocase", "name,count:u64"}) {
      TextFormat format;
      format.kind = TextKind::csv;
      format.delimiter = ';';
      format.header = true;
      format.keys = parse_text_keys(keys);
      for (TextKey& key : format.keys)  // names as in the header below
        if (!key.name.empty()) key.column = key.name == "name" ? 1 : 2;
      check_against_reference(
          format, {"--csv", "-t", ";", "--header", "-b", keys, "-m", "4M"},
          "name;\"count\";more\r\n", random, [&] {
            std::string name = random_text(random, "aAbB", 9);
            if (below(random, 3) == 0)
              name = '"' + random_text(random, "ab;\n", 12) + "\"\"" + name + '"';
            const std::string count = std::to_string(below(random, 30));
            return name + ";" + (below(random, 2) ? '"' + count + '"' : count) + ";" +
                   random_text(random, "xyz", 40) + (below(random, 2) ? "\r\n" : "\n");
          });
    }
}

TEST_CASE("pairs are merged by their keys", "[text]") {
  Random random(22);
  for (int repetition = 0; repetition < 8; ++repetition)
    for (const bool descending : {false, true}) {
      TextFormat format;
      format.kind = TextKind::pairs;
      format.keys = {TextKey{}};
      format.keys[0].descending = descending;
      check_against_reference(
          format, descending ? Strings{"--kv", "-b", "key:desc"} : Strings{"--kv"}, "", random,
          [&] {
            return pair_of(random_text(random, std::string_view("ab\0\xff", 4), 20),
                           random_text(random, "value", below(random, 20) == 0 ? 100'000 : 30));
          });
    }
}

TEST_CASE("a header is kept once and names the columns", "[text]") {
  const TextFolder test({"id,at\n1,b\n", "", "id,at\n0,c\n2,a", "id,at\n", "id,at"});
  CHECK(test.merged({"--csv", "--header", "-b", "id"}) == "id,at\n0,c\n1,b\n2,a\n");
  CHECK(test.merged({"--lines", "-t", ",", "--header", "-b", "id:u64"}) ==
        "id,at\n0,c\n1,b\n2,a\n");
  CHECK(TextFolder({"id,at", "id,at"}).merged({"--csv", "--header"}) == "id,at\n");
  CHECK(TextFolder({"", ""}).merged({"--csv", "--header"}).empty());
  test.check_refusal({"--csv", "--header", "-b", "it"}, 2, {"no column \"it\""});
  TextFolder other({"id,at\n1,b\n", "at,id\n1,2\n"});
  other.check_refusal(
      {"--csv", "--header"}, 2,
      {other.runs[1], "header differs", other.runs[0], "column 1 is \"at\" here and \"id\" there",
       "take --header-lines 1 and --drop-header instead"});
  CHECK(other.merged({"--csv", "--header-lines", "1", "--drop-header", "-b", "1"}) == "1,b\n1,2\n");
  const TextFolder endless({std::string(20'000'000, 'x')});
  endless.check_refusal({"--csv", "--header"}, 2, {"no header ends"});
}

TEST_CASE("headers of compressed files and pipes are kept once", "[text]") {
  const std::string first = "id,at\n" + std::string(5000, '0') + "1,b\n", second = "id,at\n3,a";
  const std::string expected = "id,at\n" + std::string(5000, '0') + "1,b\n3,a\n";
  const Strings options{"--csv", "--header", "-b", "id:u64"};
  for (const std::string suffix : {".zst", ".gz"}) {
    TextFolder test;
    for (const std::string& text : {first, second, std::string("id,at\n"), std::string()}) {
      const std::string plain = test.folder / ("plain" + std::to_string(test.runs.size()));
      write_file(plain, bytes_of_text(text));
      test.runs.push_back(plain + suffix);
      REQUIRE(run({"merge", "--copy-only", "--lines", "-o", test.runs.back(), plain}).code == 0);
    }
    CHECK(test.merged(options) == expected);
    std::swap(test.runs.front(), test.runs.back());
    CHECK(test.merged(options) == expected);
    test.add("at,id\n");
    test.check_refusal(options, 2, {test.runs.back(), "header differs"});
  }

  // A pipe of plain text, a file, and a pipe of compressed text.
  TextFolder test({second});
  test.runs.insert(test.runs.begin(), test.folder / "pipe");
  REQUIRE(::mkfifo(test.runs.front().c_str(), 0600) == 0);
  const std::string packed = test.folder / "small.zst", packed_pipe = test.folder / "packed";
  REQUIRE(::mkfifo(packed_pipe.c_str(), 0600) == 0);
  REQUIRE(run({"merge", "--csv", "--header", "-o", packed, test.runs[1]}).code == 0);
  const auto refused = [&] {
    const std::jthread writer([&] { write_file(test.runs.front(), bytes_of_text("it,at\n")); });
    return test.merge(options);
  }();
  CHECK(refused.code == 2);
  CHECK(holds(refused.err, test.runs[1] + ": its header differs from that of " + test.runs[0]));
  test.runs.push_back(packed_pipe);
  const std::jthread writer([&] { write_file(test.runs.front(), bytes_of_text(first)); });
  const std::jthread other([&] { write_file(packed_pipe, read_file(packed)); });
  CHECK(test.merged(options) == expected + "3,a\n");
}

TEST_CASE("many runs with a header are merged in several passes", "[text]") {
  TextFolder test;
  std::string all;
  for (int run = 0; run < 60; ++run) test.add("id,at\n");
  for (int id = 0; id < 3000; ++id) {
    const std::string line = std::to_string(id) + ",x\n";
    all += line;
    const std::filesystem::path run = test.runs[static_cast<std::size_t>(id) % 60];
    write_file(run, bytes_of_text(text_of(run) + line));
  }
  const Result result =
      test.merge({"--csv", "--header", "-b", "id:u64", "-m", "2M", "--stats", "-"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(nlohmann::json::parse(result.out)["passes"] > 1);
  CHECK(text_of(test.output()) == "id,at\n" + all);
}

TEST_CASE("generated lines are in order and as long as they are to be", "[text]") {
  const TemporaryFolder folder;
  const std::string runs = folder / "runs";
  REQUIRE(run({"gen", "--lines", "34", "--records", "5000", "--runs", "2", "-o", runs}).code == 0);
  for (const char* name : {"/run-00000.txt", "/run-00001.txt"}) {
    const std::string text = text_of(runs + name);
    CHECK(text.size() == 2500 * 34);
    CHECK(std::ranges::count(text, '\n') == 2500);
    CHECK(run({"check", "--lines", runs + name}).code == 0);
  }
  CHECK(run({"gen", "--lines", "34", "-r", "a:u8", "--records", "1", "--runs", "1", "-o", runs})
            .code == 2);
}

TEST_CASE("bad input: a column that is not a number", "[text]") {
  const TextFolder test({"1|1\n2|3\n", "1|2\n2|x\n3|4\n4\n"});
  const Strings columns{"--lines", "-t", "|", "-b", "2:u64"};
  const auto with = [&](const char* what) {
    Strings options = columns;
    options.insert(options.end(), {"--bad", what});
    return options;
  };
  for (const Strings& options : {columns, with("error")})
    test.check_refusal(
        options, 2,
        {test.runs[1] + ": line 2 (byte 4): column 2, \"x\", is not a number that u64"});
  Strings counted = with("skip");
  counted.insert(counted.end(), {"--stats", "-"});
  const Result skipped = test.merge(counted);
  REQUIRE(skipped.code == 0);
  CHECK(text_of(test.output()) == "1|1\n1|2\n2|3\n3|4\n");
  const auto stats = nlohmann::json::parse(skipped.out);
  CHECK(stats["records"] == 4);
  CHECK(stats["records_skipped"] == 2);
  CHECK(holds(skipped.err, "2 records or their keys could not be read and were skipped"));
  test.check_refusal(with("last"), 1, {test.runs[1], "out of order"});

  const TextFolder last({"1|1\n2|x\n3|y\n", "1|2\n4\n"});
  CHECK(last.merged(with("last")) == "1|1\n1|2\n2|x\n3|y\n4\n");
  Strings descending = with("last");
  descending[4] = "2:i64:desc";
  CHECK(TextFolder({"1|1\n2|x\n", "1|2\n"}).merged(descending) == "1|2\n1|1\n2|x\n");
  last.check_refusal(with("ignore"), 2, {"--bad", "ignore"});

  const TextFolder headed({"id\n1\nx\n"});
  headed.check_refusal({"--lines", "-t", "|", "--header", "-b", "id:u64"}, 2,
                       {headed.runs[0] + ": line 3 (byte 5): column 1, \"x\""});
}

TEST_CASE("lines whose columns are no numbers do not mislead what searches for others", "[text]") {
  Random random(21);
  std::vector<std::string> texts(3);
  std::vector<std::uint64_t> numbers;
  for (std::string& text : texts)
    for (std::uint64_t i = 0, n = 0; i < 300; ++i) {
      if (below(random, 3) == 0) text += below(random, 2) == 0 ? "x\n" : "\n";
      numbers.push_back(n += below(random, 10));
      text += std::to_string(n) + "\n";
    }
  texts.push_back("x\ny\n\n");
  std::ranges::sort(numbers);
  const auto expected = [&](std::uint64_t from, std::uint64_t to) {
    std::string text;
    for (const std::uint64_t n : numbers)
      if (n >= from && n < to) text += std::to_string(n) + "\n";
    return text;
  };
  const TextFolder test(texts);
  const Strings skip{"--lines", "-t", ",", "-b", "1:u64", "--bad", "skip"};
  for (std::uint64_t from = 0; from < 1500; from += 97) {
    Strings options = skip;
    options.insert(options.end(),
                   {"--from", std::to_string(from), "--to", std::to_string(from + 300)});
    CHECK(test.merged(options) == expected(from, from + 300));
  }
  for (const std::string parts : {"2", "3", "7"}) {
    const std::string folder = test.folder / ("parts" + parts);
    Strings command{"merge", "-o", folder, "--parts", parts};
    command.insert(command.end(), skip.begin(), skip.end());
    command.insert(command.end(), test.runs.begin(), test.runs.end());
    const Result result = run(command);
    INFO(result.err);
    REQUIRE(result.code == 0);
    std::string text;
    for (int part = 0; part < std::stoi(parts); ++part)
      text += text_of(folder + "/part-0000" + std::to_string(part));
    CHECK(text == expected(0, ~std::uint64_t{0}));
  }

  // A bad number outside the requested range is not reported.
  const TextFolder one({"1\n2\n3\nx\n5\n6\n7\n"});
  const auto between = [](const char* from, const char* to) {
    return Strings{"--lines", "-t", ",", "-b", "1:u64", "--from", from, "--to", to};
  };
  CHECK(one.merged(between("1", "3")) == "1\n2\n");
  CHECK(one.merged(between("6", "8")) == "6\n7\n");
  one.check_refusal(between("3", "6"), 2, {"byte 6", "\"x\""});

  // A bad number in a key column that the bound does not name does not stop the search either.
  const TextFolder two({"1 1\n2 1\n3 1\n0 x\n4 1\n"});
  const Strings by_two{"--lines", "-t", " ", "-b", "1:u64,2:u64", "--bad", "skip"};
  for (const auto& [option, kept] : {std::pair{"--from", "2 1\n3 1\n4 1\n"}, {"--to", "1 1\n"}}) {
    Strings options = by_two;
    options.insert(options.end(), {option, "2"});
    CHECK(two.merged(options) == kept);
  }

  // One column may be used by two keys.
  const TextFolder folded({"A,1\na,2\nB,3\nb,4\nC,5\n"});
  const Strings by_case{"--lines", "-t", ",", "-b", "1:nocase,1", "--from"};
  const auto from = [&](const char* bound) {
    Strings options = by_case;
    options.push_back(bound);
    return options;
  };
  CHECK(folded.merged(from("b")) == "B,3\nb,4\nC,5\n");
  CHECK(folded.merged(from("b,B")) == "B,3\nb,4\nC,5\n");
  CHECK(folded.merged(from("B,b")) == "b,4\nC,5\n");
  folded.check_refusal(from("a,B"), 2, {"--from \"a\"", "column 1"});
}

TEST_CASE("bad input: text out of order", "[text]") {
  const TextFolder skipped({"x\ny\n5\nz\n3\n"});
  skipped.check_refusal({"--lines", "-t", ",", "-b", "1:u64", "--bad", "skip"}, 1,
                        {"line 5 (byte 8) is out of order"});
  const TextFolder lines({"a\nb\n", "a\nc\nb\n"});
  lines.check_refusal({"--lines"}, 1, {lines.runs[1], "line 3 (byte 4) is out of order"});
  const TextFolder headed({"id\n5\n9\n", "id\n5\n7\n6\n8\n"});
  for (const Strings& options :
       {Strings{}, Strings{"--from", "5"}, Strings{"--on-equal", "last"}}) {
    Strings all{"--lines", "-t", ",", "--header", "-b", "id:u64"};
    all.insert(all.end(), options.begin(), options.end());
    headed.check_refusal(all, 1, {headed.runs[1] + ": line 4 (byte 7) is out of order"});
  }
  const TextFolder csv({"id\n5\n7\n6\n"});
  csv.check_refusal({"--csv", "--header", "-b", "id:u64"}, 1,
                    {csv.runs[0], "line 4 (byte 7) is out of order"});
  const Result checked = run({"check", "--csv", "--header", "-b", "id:u64", csv.runs[0]});
  CHECK(checked.code == 1);
  CHECK(holds(checked.err, "line 4 (byte 7) is out of order"));
  CHECK(run({"check", "--lines", lines.runs[0], lines.runs[1]}).code == 1);
  CHECK(run({"check", "--lines", lines.runs[0]}).code == 0);
}

TEST_CASE("long lines are merged in every way of reading a file", "[text]") {
  const std::string b(5'000'000, 'b'), c(5'000'000, 'c');
  const TextFolder test({"a\n" + b + "\n" + c + "\n", b + "\nd\n", c + "\n"});
  const std::string expected = "a\n" + b + "\n" + b + "\n" + c + "\n" + c + "\nd\n";
  for (const char* io : {"auto", "buffered", "direct", "mapped"}) {
    INFO(io);
    CHECK((test.merged({"--lines", "-m", "16M", "--io", io}) == expected));
  }
}

TEST_CASE("bad input: a line longer than the budget", "[text]") {
  const TextFolder test({"a\n" + std::string(20'000'000, 'b') + "\n", "c\n"});
  const std::string packed = test.folder / "packed.gz";
  REQUIRE(run({"merge", "--lines", "-o", packed, test.runs[0]}).code == 0);
  Strings merge{"merge", "--lines", "-o", "-", packed, test.runs[1], "-m", "16M"};
  const Result result = run(merge);
  INFO(result.err);
  CHECK(result.code == 2);
  CHECK(holds(result.err, "line 2 (byte 2) has 20000000 bytes, too long for the memory budget"));
  CHECK(holds(result.err, "--memory: try 9 times"));
  merge.back() = "256M";
  CHECK(run(merge).out.size() == 20'000'005);
  // Records that a merge can write can be checked.
  const TextFolder longer(
      {std::string(30'000'000, 'b') + "\n" + std::string(30'000'000, 'c') + "\n"});
  const std::string whole = longer.folder / "whole.gz";
  REQUIRE(run({"merge", "--lines", "-m", "1G", "--compress", "gzip:1", "-o", whole, longer.runs[0]})
              .code == 0);
  CHECK(run({"check", "--lines", "-m", "1G", whole}).code == 0);

  // Its bytes are read when it is found to be too long, and so is a second one.
  const std::string twice = std::string(3'000'000, 'a') + "\nb\n" + std::string(3'000'000, 'c');
  const Result piped = run({"merge", "--lines", "-m", "34M", "-", test.runs[1]}, {.in = twice});
  CHECK(holds(piped.err, "line 3 (byte 3000003) has 3000000 bytes, too long"));
}

TEST_CASE("bad input: pairs whose lengths run past the end", "[text]") {
  std::string long_lengths = pair_of("b", "");
  long_lengths[3] = long_lengths[7] = '\xff';
  const TextFolder test({pair_of("a", "1"), pair_of("a", "2") + long_lengths});
  test.check_refusal({"--kv"}, 2, {test.runs[1] + ": record 1 (byte 10)"});
  const TextFolder cut({pair_of("a", "1").substr(0, 9)});
  cut.check_refusal({"--kv"}, 2, {"record 0 (byte 0)", "1 and 1 bytes, run past the end"});
  const TextFolder few({pair_of("a", "1") + "abc"});
  few.check_refusal({"--kv"}, 2, {"record 1 (byte 10)", "3 of the 8 bytes"});
}

TEST_CASE("bad input: text that is encoded as UTF-16", "[text]") {
  using namespace std::string_literals;
  for (const std::string& text : {"\xff\xfe"
                                  "a\0\n\0"s,
                                  "\xfe\xff"
                                  "\0a\0\n"s}) {
    for (const Strings& format : {Strings{"--lines"}, {"--csv", "--header", "-b", "1"}}) {
      TextFolder({"a\n", text}).check_refusal(format, 2, {"run1: is encoded as UTF-16", "iconv"});
      Environment piped;
      piped.in = text;
      const Result result = run(Strings{"sort"} + format, piped);
      CHECK(result.code == 2);
      CHECK(holds(result.err, "standard input: is encoded as UTF-16"));
    }
  }
  const TextFolder latin({"\xff\xfe o\n"});  // as it is in one byte a character
  CHECK(run(Strings{"check", "--lines"} + latin.runs).code == 0);
}

TEST_CASE("bad input: a quote that nothing closes", "[text]") {
  const TextFolder test({"a,b\n", "a,b\nc,\"d\ne\n"});
  test.check_refusal({"--csv"}, 2, {test.runs[1] + ": line 2 (byte 4)", "quote"});
}

TEST_CASE("bad input: text after a closing quote", "[text]") {
  const TextFolder test({"id,note\n1,\"a\"\n", "id,note\n2,\"a \\\"x, y\\\" z\"\n"});
  for (const Strings& options : {Strings{"--csv", "--header"},
                                 Strings{"--csv", "--header", "-b", "id:u64", "--bad", "skip"}})
    test.check_refusal(options, 2,
                       {test.runs[1] + ": line 2 (byte 8): column 2", "byte 7", "--escape"});
  CHECK(run({"check", "--csv", "--header", test.runs[1]}).code == 2);
  TextFolder({"1,\"a\"b\",2\n"})
      .check_refusal({"--csv", "-b", "3"}, 2, {"line 1 (byte 0): column 2", "--escape"});
  const TextFolder header({"a,\"b\"c\n1,2\n"});
  header.check_refusal({"--csv", "--header"}, 2, {header.runs[0], "the header: column 2"});
  CHECK(TextFolder({"\"1\" ,x\r\n", "\"0\"\t\n"}).merged({"--csv", "-b", "1:u64"}) ==
        "\"0\"\t\n\"1\" ,x\r\n");
}

TEST_CASE("a value keeps its last carriage return where it ends a line of CSV", "[text]") {
  const auto output = [](const char* text, const Strings& options) {
    return output_of(run(Strings{"sort", "--csv"} + options, {.in = text}));
  };
  CHECK(output("b\r,k\n", {"--select", "2,1"}) == "k,b\r\r\n");
  CHECK(output("b\r,k\r\n", {"--select", "1"}) == "b\r\r\n");
  CHECK(output("b,k\r\n", {"--select", "2,1"}) == "k,b\r\n");
  CHECK(output("v\r,k\n1,2\n", {"--header", "--select", "k,1"}) == "k,v\r\r\n2,1\n");
  CHECK(output("k,a\nk,c\r\r\n", {"-b", "1", "--on-equal", "reduce:max(2)"}) == "k,c\r\r\n");
  const Strings escapes{"--escape", "\\"};
  CHECK(output("k,a\\\r\nk,b\n", Strings{"-b", "1", "--on-equal", "reduce:min(2)"} + escapes) ==
        "k,a\\\r\n");
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += std::to_string(10'000 + i) + "\\\r\n";
  CHECK(output(many.c_str(), Strings{"--select", "1"} + escapes) == many);
  CHECK(output("b\\\r,k\n", Strings{"--select", "2,1"} + escapes) == "k,b\\\r\n");
}

TEST_CASE("a count that holds the delimiter is in quotes or an error", "[text]") {
  const Strings count{"-b", "1", "--on-equal", "reduce:count()"};
  CHECK(output_of(run(Strings{"sort", "--csv", "-t", "1"} + count, {.in = "b\n"})) == "b1\"1\"\n");
  const Result refused = run(Strings{"sort", "--lines", "-t", "1"} + count, {.in = "b\n"});
  CHECK(refused.code == 2);
  CHECK(holds(refused.err, "holds the delimiter"));
}

TEST_CASE("CSV is merged, filtered and selected with escapes", "[text]") {
  const std::string first = "1,\"a \\\"x, y\\\" z\"\n3,c\\,d\\\n\n", second = "2,\"b\"\"\"\n";
  const TextFolder test({"id,\"no\\\"te\"\n" + first, "id,\"no\\\"te\"\n" + second});
  const auto merged = [&](const Strings& options) {
    Strings all{"--csv", "--header", "--escape", "\\"};
    all.insert(all.end(), options.begin(), options.end());
    return test.merged(all).substr(std::string("id,\"no\\\"te\"\n").size());
  };
  const std::string all = "1,\"a \\\"x, y\\\" z\"\n2,\"b\"\"\"\n3,c\\,d\\\n\n";
  CHECK(merged({"-b", "id:u64"}) == all);
  CHECK(merged({"-b", "no\"te"}) == all);
  CHECK(merged({"-b", "2", "--from", "b\""}) == all.substr(all.find("2,")));
  CHECK(merged({"-b", "1", "--where", "2 == 'a \"x, y\" z'"}) == all.substr(0, all.find("2,")));
  CHECK(test.merged({"--csv", "--header", "--escape", "\\", "-b", "1", "--select", "2"}) ==
        "\"no\\\"te\"\n\"a \\\"x, y\\\" z\"\n\"b\"\"\"\nc\\,d\\\n\n");
  const TextFolder numbers({"a,\\5\nb,6\nc,\"1\\2\"\n"});
  for (const std::string type : {"u64", "i64", "f64", "decimal"})
    CHECK(numbers.merged({"--csv", "--escape", "\\", "--where", "2:" + type + " < 6"}) ==
          "a,\\5\n");
  CHECK(output_of(run({"sort", "--csv", "--escape", "\\", "-b", "2:u64:desc", numbers.runs[0]})) ==
        "c,\"1\\2\"\nb,6\na,\\5\n");
  test.check_refusal({"--csv", "--escape", "\\", "--backend", "cuda"}, 2,
                     {"cuda", "escape characters"});
  test.check_refusal({"--lines", "--escape", "\\"}, 2, {"--escape", "--csv"});
  for (const char* const none : {"\"", "1", "."})
    test.check_refusal({"--csv", "--escape", none}, 2, {"escape character"});
  test.check_refusal({"--csv", "--escape", "ab"}, 2, {"--escape", "one byte"});
  // An escaped carriage return belongs to its column, and one after an escaped escape does not.
  const TextFolder returns({"a,b\\\r\nc,d\\\\\r\n"});
  const auto shaped = [&](const std::string& option, const std::string& value) {
    return returns.merged({"--csv", "--escape", "\\", "-b", "1", option, value});
  };
  CHECK(shaped("--select", "2,1") == "b\\\r,a\nd\\\\,c\r\n");
  CHECK(shaped("--on-equal", "reduce:count()") == "a,b\\\r,1\nc,d\\\\,1\r\n");
  const TextFolder open({"a,\"b\\\"\n"});
  open.check_refusal({"--csv", "--escape", "\\"}, 2, {"line 1 (byte 0)", "--escape"});
}

// Sorted lists of keys; a space separates equal keys.
TEST_CASE("keys of every type are merged, bounded and combined by their values", "[text]") {
  const std::vector<std::pair<std::string, std::vector<Strings>>> orders{
      {"time",
       {{"Feb 29 00:00:00"},
        {"Oct  1 22:14:15"},
        {"Oct 11 22:14:15"},
        {"Oct 11 22:14:15.25"},
        {"1969-12-31"},
        {"[10/Oct/2000:13:55:36 -0700]", "2000-10-10T20:55:36Z", "2000-10-10 22:55:36+0200",
         "10/Oct/2000:13:55:36 -0700] \"GET /\" 200", "[10/Oct/2000:20:55:36] rest"},
        {"2000-10-10T20:55:36.000000000001Z"},
        {"2000-10-10T20:55:36.5Z", "2000-10-10t21:55:36,50 +01:00"},
        {"2016-12-31T23:59:59Z"},
        {"2016-12-31T23:59:60Z", "2017-01-01"},
        {"9999-12-31T24:00:00-23:59"}}},
      {"natural", {{""}, {"chr"}, {"chr1"}, {"chr01"}, {"chr1a"}, {"chr2"}, {"chr10"}, {"x"}}},
      {"decimal",
       {{"-123456789012345678901234567890.2"},
        {"-123456789012345678901234567890.1", "-123456789012345678901234567890.10"},
        {"-1.05"},
        {"-1", "-1.0", "-1e0"},
        {"-1e-200"},
        {"0", "-0", "+.0", "0e9"},
        {"1e-130"},
        {".05", "5e-2"},
        {"1"},
        {"1.00000000000000000000000000001"},
        {"1e3", "1000"},
        {"1e130"},
        {"1e99999999998"},
        {"1e99999999999"}}},
      {"human",
       {{"-1M"},
        {"-2000K"},
        {"-1.5"},
        {"0", "0K"},
        {"999999"},
        {"10K", "10k", "10KiB"},
        {"2000K"},
        {"1M"},
        {"1.5G", "1.50G"},
        {"3T"}}},
  };
  for (const auto& [type, groups] : orders) {
    INFO(type);
    TextFolder test;
    std::string text, reversed, first_of_each, odd, even;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      std::string lines;
      for (const std::string& key : groups[i]) lines += key + "|\n";
      text += lines;
      reversed = lines + reversed;
      (i % 2 != 0 ? odd : even) += lines;
      first_of_each += groups[i].front() + "|\n";
    }
    test.add(odd);
    test.add(even);
    const auto merged = [&](Strings options, const std::string& direction = "") {
      const Strings keys{"--lines", "-t", "|", "-b", "1:" + type + direction};
      options.insert(options.begin(), keys.begin(), keys.end());
      return test.merged(options);
    };
    CHECK(merged({}) == text);
    CHECK(merged({"--on-equal", "first"}) == first_of_each);
    for (std::size_t i = 1; i < groups.size(); ++i) {
      const std::string& key = groups[i].back();
      const std::size_t at = text.find("\n" + groups[i].front() + "|") + 1;
      CHECK(merged({"--from", key}) == text.substr(at));
      CHECK(merged({"--to", key}) == text.substr(0, at));
      CHECK(merged({"--where", "1:" + type + " < '" + key + "'"}) == text.substr(0, at));
    }
    const std::string whole = test.folder / "whole";
    write_file(whole, bytes_of_text(text));
    const Strings check{"check", "--lines", "-t", "|", "-b"};
    const auto code = [&](const std::string& direction) {
      Strings all = check;
      all.insert(all.end(), {"1:" + type + direction, whole});
      return run(all).code;
    };
    CHECK(code("") == 0);
    CHECK(code(":desc") == 1);
    test.check_refusal({"--lines", "-t", "|", "-b", "1:" + type, "--backend", "cuda"}, 2,
                       {"cuda", type});
    write_file(test.runs[0], bytes_of_text(reversed));
    write_file(test.runs[1], {});
    CHECK(merged({}, ":desc") == reversed);
    if (type == "natural") continue;
    write_file(test.runs[1], bytes_of_text("none|\n"));
    test.check_refusal({"--lines", "-t", "|", "-b", "1:" + type + ":desc"}, 2,
                       {"line 1 (byte 0): column 1, \"none\", is not a value of type " + type});
    CHECK(merged({"--bad", "last"}, ":desc") == reversed + "none|\n");
    CHECK(merged({"--bad", "skip"}, ":desc") == reversed);
    test.check_refusal({"--lines", "-t", "|", "-b", "1:" + type, "--from", "none"}, 2,
                       {"--from", "not a value of type " + type});
  }
}

TEST_CASE("the time of a line is at its start", "[text]") {
  const std::string first = "Sep  1 22:14:15 host b\n", second = "Oct 11 22:14:15 host a\n";
  CHECK(TextFolder({second, first}).merged({"--lines", "-b", "line:time"}) == first + second);
  const std::string iso = "2024-01-01 12:00:00 +02:00 x\n2024-01-01T10:00:00.5Z a\n2024-01-02\n";
  CHECK(TextFolder({iso}).merged({"--lines", "-b", "line:time"}) == iso);
  const std::string separated =
      "2024-01-01T10:00Z\ta\n2024-01-01 10:00:01,5 b\n2024-01-01T10:00:02Z, c\n"
      "2024-01-01T10:00:03Z|d\n2024-01-01T10:00:04Z;e\n";
  CHECK(TextFolder({separated}).merged({"--lines", "-b", "line:time"}) == separated);
  TextFolder({"Oct 11 22:14:15x\n"})
      .check_refusal({"--lines", "-b", "line:time"}, 2, {"is not a value of type time"});
}

TEST_CASE("bad input: equal keys of text that must not be", "[text]") {
  const TextFolder lines({"a,1\nc,2\n", "b,3\nc,4\nc,5\n"});
  const Strings options{"--lines", "-t", ",", "-b", "1", "--on-equal", "error"};
  lines.check_refusal(options, 2,
                      {lines.runs[0] + ": line 2 (byte 4) and " + lines.runs[1] +
                           ": line 2 (byte 4) have the same key, column 1=c",
                       "--on-equal"});
  Strings limited = options;
  limited.insert(limited.end(), {"--limit", "3"});
  CHECK(lines.merged(limited) == "a,1\nb,3\nc,2\n");
  // A duplicate within the limit is an error, although later records could fill the output.
  limited.back() = "4";
  const TextFolder more({"a,1\nc,2\nd,1\ne,1\nf,1\n", "b,3\nc,4\n"});
  more.check_refusal(limited, 2, {"column 1=c"});
  const TextFolder chosen({"c,1\nc,2\n", "b,1\nc,3\n"});
  Strings choosing = options;
  choosing.insert(choosing.end(), {"--where", "2 != '1'"});
  chosen.check_refusal(choosing, 2,
                       {chosen.runs[0] + ": line 2 (byte 4) and " + chosen.runs[1] +
                        ": line 2 (byte 4) have the same key"});
  const TextFolder csv({"k,v\n1,a\n", "k,v\n\"1\",b\n"});
  csv.check_refusal({"--csv", "--header", "-b", "k", "--on-equal", "error"}, 2,
                    {csv.runs[0] + ": line 2 (byte 4) and " + csv.runs[1] + ": line 2 (byte 4)"});
  const TextFolder pairs({pair_of("a", "1") + pair_of("a", "2")});
  pairs.check_refusal({"--kv", "--on-equal", "error"}, 2,
                      {": record 0 (byte 0) and ", ": record 1 (byte 10)", "key=a"});
}

TEST_CASE("text with equal keys and within bounds", "[text]") {
  const TextFolder test({"k,v\n1,a\n2,b\n", "k,v\n2,c\n3,d\n"});
  const auto merged = [&](const Strings& options) {
    Strings all{"--csv", "--header", "-b", "k:u64"};
    all.insert(all.end(), options.begin(), options.end());
    return test.merged(all);
  };
  CHECK(merged({"--on-equal", "first"}) == "k,v\n1,a\n2,b\n3,d\n");
  CHECK(merged({"--on-equal", "last"}) == "k,v\n1,a\n2,c\n3,d\n");
  CHECK(merged({"--from", "2"}) == "k,v\n2,b\n2,c\n3,d\n");
  CHECK(merged({"--from", "2", "--to", "3", "--on-equal", "last"}) == "k,v\n2,c\n");
  CHECK(merged({"--to", "0"}) == "k,v\n");
  CHECK(merged({"--limit", "2"}) == "k,v\n1,a\n2,b\n");
  CHECK(merged({"--limit", "0"}) == "k,v\n");
  CHECK(test.merged({"--lines", "--header", "-t", ",", "-b", "k:u64,v", "--from", "2,'c'"}) ==
        "k,v\n2,c\n3,d\n");
  CHECK(test.merged({"--lines", "--header", "--from", "2,b", "--to", "3,d"}) == "k,v\n2,b\n2,c\n");
  // Key 1 is only deleted, key 2 is deleted and inserted again, keys 3 and 4 stay: the last record
  // of a key decides.
  const TextFolder upsert({"k,v\n1,a\n2,gone\n3,c\n4,d\n", "k,v\n1,\"gone\"\n2,b\n4,e\n"});
  CHECK(upsert.merged({"--csv", "--header", "-b", "k:u64", "--on-equal", "last", "--tombstone",
                       "v=gone"}) == "k,v\n2,b\n3,c\n4,e\n");
  CHECK(upsert.merged({"--csv", "--header", "-b", "k:u64", "--on-equal", "first", "--tombstone",
                       "2=gone", "--limit", "2"}) == "k,v\n1,a\n3,c\n");
  const TextFolder prices(
      {"id,name,price\r\n1,\"a, b\",9\r\n3,c,x\r\n", "id,name,price\r\n2,\"\",10.5\r\n3,d,7\r\n"});
  CHECK(prices.merged({"--csv", "--header", "-b", "id:u64", "--where",
                       "price:f64 >= 9 or name == 'd'", "--select", "price,name"}) ==
        "price,name\r\n9,\"a, b\"\r\n10.5,\"\"\r\n7,d\r\n");
  const TextFolder cities({"a,5\nb,\nc,20\nd,n/a\n"});
  for (const std::string type : {"u64", "i64", "f64", "decimal"}) {
    const auto kept = [&](const std::string& condition) {
      return cities.merged({"--csv", "--where", condition, "--select", "1"});
    };
    const std::string column = "2:" + type;
    CHECK(kept(column + " > 5") == "c\n");
    CHECK(kept(column + " >= 5") == "a\nc\n");
    CHECK(kept(column + " < 20") == "a\n");
    CHECK(kept(column + " <= 20") == "a\nc\n");
    CHECK(kept(column + " == 5") == "a\n");
    CHECK(kept(column + " != 5") == "b\nc\nd\n");
    CHECK(kept("not " + column + " > 5") == "a\nb\nd\n");
  }
  CHECK(prices.merged({"--csv", "--header", "-b", "id:u64", "--on-equal", "last", "--select", "1",
                       "--limit", "2"}) == "id\r\n1\r\n2\r\n");
  const TextFolder blanks({"unit price,the 'x'\n5,a\n20,b\n", "unit price,the 'x'\n7,c\n"});
  CHECK(blanks.merged({"--csv", "--header", "-b", "unit price:u64", "--where",
                       "'unit price':u64 > 5 and \"the 'x'\" != 'b'", "--select",
                       "the 'x',unit price"}) == "the 'x',unit price\nc,7\n");
  const Strings untyped{"--csv", "--header", "-b", "unit price:u64", "--where"};
  blanks.check_refusal(untyped + Strings{"'unit price' > 5"}, 2, {"'unit price':u64, 'unit"});
  const TextFolder marked(
      {"\xef\xbb\xbf"
       "a,b\n1,2\n"});
  CHECK(marked.merged({"--csv", "--header", "--where", "a == '1'", "--select", "b,a"}) ==
        "\xef\xbb\xbf"
        "b,a\n2,1\n");
  const TextFolder called_key({"key,n\nb,1\n", "key,n\na,3\nb,2\n"});
  CHECK(called_key.merged({"--csv", "--header", "-b", "key", "--on-equal", "last"}) ==
        "key,n\na,3\nb,2\n");
  CHECK(called_key.merged({"--csv", "--header", "-b", "key", "--where", "key == 'a'"}) ==
        "key,n\na,3\n");
  const std::string two_lines =
      "\xef\xbb\xbf"
      "\"a\nb\",c\n";
  const TextFolder quoted({two_lines + "1,2\n", two_lines + "3,4\n"});
  CHECK(quoted.merged({"--csv", "--header", "-b", "a\nb"}) == two_lines + "1,2\n3,4\n");
  const TextFolder pairs({pair_of("a", "1") + pair_of("b", "2"), pair_of("b", "3")});
  for (const char* where : {"key > 'a'", "'key' > 'a'"})
    CHECK(pairs.merged({"--kv", "--where", where}) == pair_of("b", "2") + pair_of("b", "3"));
  CHECK(pairs.merged({"--kv", "--on-equal", "last"}) == pair_of("a", "1") + pair_of("b", "3"));
  CHECK(pairs.merged({"--kv", "--from", "b"}) == pair_of("b", "2") + pair_of("b", "3"));
  CHECK(pairs.merged({"--kv", "--where", "value == '3' or key == 'a'"}) ==
        pair_of("a", "1") + pair_of("b", "3"));
  const TextFolder upserts({pair_of("a", "1") + pair_of("b", "2") + pair_of("c", "gone"),
                            pair_of("b", "") + pair_of("c", "4"), pair_of("c", "gone")});
  CHECK(upserts.merged({"--kv", "--on-equal", "last", "--tombstone", "value="}) ==
        pair_of("a", "1") + pair_of("c", "gone"));
  CHECK(upserts.merged({"--kv", "--on-equal", "last", "--tombstone", "value=gone"}) ==
        pair_of("a", "1") + pair_of("b", ""));
}

TEST_CASE("set operations on text", "[text]") {
  const TextFolder test({"k,v\n1,a\n2,b\n2,c\n5,d\n", "k,v\n\"2\",e\n4,f\n"});
  const auto output_of = [&](const std::string& operation, const Strings& options = {}) {
    Strings all{operation, "--csv", "--header", "-b", "k:u64", "-f", "-o", test.folder / "output"};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), test.runs.begin(), test.runs.end());
    const Result result = run(all);
    INFO(result.err);
    CHECK(result.code == 0);
    return text_of(test.folder / "output");
  };
  CHECK(output_of("union") == "k,v\n1,a\n2,b\n2,c\n4,f\n5,d\n");
  CHECK(output_of("intersect") == "k,v\n2,b\n");
  CHECK(output_of("subtract") == "k,v\n1,a\n2,c\n5,d\n");
  CHECK(output_of("subtract", {"--where", "v != 'e'", "--select", "v", "--limit", "3"}) ==
        "v\na\nb\nc\n");
  const TextFolder pairs({pair_of("a", "1") + pair_of("b", "2"), pair_of("b", "3")});
  const std::string parts = test.folder / "parts";
  CHECK(run({"union", "--lines", "--header", "--limit", "7", "--parts", "4", "--compress", "gzip",
             "-o", parts, test.runs[0], test.runs[1]})
            .code == 0);
  Strings all;
  for (int i = 0; i < 4; ++i) {
    const Result part = run({"merge", "--lines", "--header", "-o", "-",
                             parts + "/part-0000" + std::to_string(i) + ".gz"});
    all.push_back(part.out);
  }
  CHECK(all == Strings{"k,v\n\"2\",e\n", "1,a\n2,b\n", "2,c\n4,f\n", "5,d\n"});
  const Result common = run({"intersect", "--kv", "-o", "-", pairs.runs[0], pairs.runs[1]});
  CHECK(common.out == pair_of("b", "2"));
}

TEST_CASE("two files of lines are compared as comm does", "[text]") {
  Random random(81);
  for (int round = 0; round < 10; ++round) {
    Strings texts(2);
    for (std::string& text : texts) {
      Strings lines(below(random, 400));
      for (std::string& line : lines) line = std::to_string(below(random, 150));
      std::ranges::sort(lines);
      for (const std::string& line : lines) text += line + '\n';
    }
    const TextFolder test(texts);
    for (const auto& [operation, columns] :
         {std::pair("intersect", "-12"), std::pair("subtract", "-23")}) {
      const std::string expected = test.folder / "comm";
      CHECK(std::system(fmt::format("LC_ALL=C comm {} {} {} > {}", columns, test.runs[0],
                                    test.runs[1], expected)
                            .c_str()) == 0);
      CHECK(run({operation, "--lines", "-o", "-", test.runs[0], test.runs[1]}).out ==
            text_of(expected));
    }
  }
}

TEST_CASE("bad input: what is to become of text contradicts itself", "[text]") {
  const TextFolder test({"1,b\n"});
  const auto refuses = [&](const Strings& options, const Strings& parts) {
    Strings all{"--lines", "-t", ",", "-b", "1:u64,2"};
    all.insert(all.end(), options.begin(), options.end());
    test.check_refusal(all, 2, parts);
  };
  refuses({"--on-equal", "reduce:sum(1)"}, {"--on-equal", "column 1 is a key"});
  refuses({"--on-equal", "least"}, {"--on-equal", "allowed: keep first last error"});
  refuses({"--where", "2 > 1"}, {"--where", "quotes", "2:u64"});
  refuses({"--where", "1:u64 > x"}, {"--where \"x\"", "not a number"});
  refuses({"--where", "'1':u64 > 1"}, {"--where", "\"1\"", "--header"});
  refuses({"--where", "'a:u64 > 1"}, {"--where", "quote"});
  refuses({"--where", "'a':desc > 1"}, {"--where", "direction"});
  refuses({"--where", "'a"}, {"--where", "quote"});
  refuses({"--where", "'':u64 > 1"}, {"--where", "name is missing"});
  refuses({"--where", "a == 'x'"}, {"--where", "\"a\"", "--header"});
  refuses({"--select", "a"}, {"--select", "\"a\"", "--header"});
  refuses({"--select", "2,2"}, {"--select", "named twice"});
  refuses({"--select", "2", "--copy-only"}, {"--copy-only"});
  refuses({"--tombstone", "2", "--on-equal", "last"}, {"--tombstone", "column=value"});
  refuses({"--tombstone", "a=1", "--on-equal", "last"}, {"\"a\"", "--header"});
  refuses({"--tombstone", "2=1"}, {"--tombstone", "--on-equal first, last"});
  refuses({"--tombstone", "1:u64=x", "--on-equal", "last"}, {"--tombstone \"x\"", "not a number"});
  const TextFolder of_pairs({pair_of("a", "1")});
  of_pairs.check_refusal({"--kv", "--tombstone", "2=a", "--on-equal", "last"}, 2,
                         {"--tombstone", "name key or value"});
  of_pairs.check_refusal({"--kv", "--on-equal", "reduce:count(1)"}, 2,
                         {"--on-equal reduce", "take first or last"});
  of_pairs.check_refusal({"--kv", "--where", "value:u64 > 5"}, 2, {"--where", "of bytes"});
  of_pairs.check_refusal({"--kv", "-b", "value"}, 2, {"ordered by their keys"});
  refuses({"--from", "x"}, {"--from \"x\"", "not a number"});
  refuses({"--to", "1,b,3"}, {"--to", "there are 3 values, and 2 keys"});
  refuses({"--from", "1,'b"}, {"--from", "quote"});
  refuses({"--from", "1,'b,c'"}, {"--from \"b,c\"", "delimiter"});
  refuses({"--copy-only", "--limit", "1"}, {"--copy-only"});
  refuses({"--copy-only", "--on-equal", "first"}, {"--copy-only"});
}

TEST_CASE("bad input: a column that no file has", "[text]") {
  const TextFolder test({"name,2019\na,1\nb,5\n", "name,2019\n"});
  const Strings csv{"--csv", "--header"};
  const auto refuses = [](const TextFolder& of, Strings all, const Strings& options,
                          const Strings& parts) {
    all.insert(all.end(), options.begin(), options.end());
    of.check_refusal(all, 2, parts);
  };
  refuses(test, csv, {"-b", "2020", "--on-equal", "last"},
          {"--by", "no column 2020", "name, \"2019\""});
  refuses(test, csv, {"-b", "nam"}, {"--by", "\"nam\"", "did you mean name?"});
  refuses(test, csv, {"--where", "3:u64 > 1"}, {"--where", "no column 3", "name, \"2019\""});
  refuses(test, csv, {"--where", "nome == 'a'"}, {"--where", "\"nome\"", "did you mean name?"});
  refuses(test, csv, {"--select", "1,2019"}, {"--select", "no column 2019"});
  refuses(test, csv, {"-b", "1", "--on-equal", "last", "--tombstone", "5=D"},
          {"--tombstone", "no column 5"});
  for (const Strings& layout : {Strings{"--csv"}, Strings{"--lines", "-t", ","}}) {
    refuses(test, layout, {"-b", "3"}, {"--by", "no column 3", "first record has 2 columns"});
    refuses(test, layout, {"--select", "4"}, {"--select", "no column 4"});
    refuses(test, layout, {"--where", "3 == 'x'"}, {"--where", "no column 3"});
  }
  for (const std::string command : {"union", "intersect", "subtract"})
    CHECK(run({command, "--csv", "-b", "7", "-o", "-", test.runs[0], test.runs[1]}).code == 2);
  for (const std::string command : {"check", "info"}) {
    const Result result = run({command, "--csv", "--header", "-b", "7", test.runs[0]});
    CHECK(result.code == 2);
    CHECK(holds(result.err, "no column 7; its columns are name, \"2019\""));
    CHECK(run({command, "--lines", "-t", ",", "-b", "7", test.runs[0]}).code == 2);
  }
  // A column is accepted if some run has it, or no run has a record.
  CHECK(TextFolder({"a\n", "", "a,b\n"}).merged({"--csv", "-b", "1,2"}) == "a\na,b\n");
  CHECK(TextFolder({"", ""}).merged({"--csv", "-b", "7"}).empty());
}

TEST_CASE("columns are named in quotes, whatever they are called", "[text]") {
  const TextFolder test(
      {"a,a,2020,\"x,y:z\",line\n1,2,9,4,5\n", "a,a,2020,\"x,y:z\",line\n0,0,10,3,7\n"});
  const auto merged = [&](const std::string& keys, const Strings& options = {}) {
    Strings all{"--csv", "--header", "-b", keys};
    all.insert(all.end(), options.begin(), options.end());
    return test.merged(all);
  };
  const std::string header = "a,a,2020,\"x,y:z\",line\n";
  CHECK(merged("\"2020\":u64") == header + "1,2,9,4,5\n0,0,10,3,7\n");
  CHECK(merged("'x,y:z':u64,\"line\":desc") == header + "0,0,10,3,7\n1,2,9,4,5\n");
  CHECK(merged("'line'") == header + "1,2,9,4,5\n0,0,10,3,7\n");
  CHECK(merged("line") == header + "0,0,10,3,7\n1,2,9,4,5\n");
  CHECK(merged("'2020':u64", {"--select", "\"line\",'x,y:z'", "--where", "\"x,y:z\":u64 > 3"}) ==
        "line,\"x,y:z\"\n5,4\n");
  CHECK(merged("'2020':u64", {"--on-equal", "last", "--tombstone", "'x,y:z'='4'"}) ==
        header + "0,0,10,3,7\n");
  test.check_refusal({"--csv", "--header", "-b", "3,a"}, 2, {"--by", "2 columns", "\"a\""});
  CHECK(merged("3:u64,1") == header + "1,2,9,4,5\n0,0,10,3,7\n");
  test.check_refusal({"--csv", "--header", "-b", "\"line"}, 2, {"--by", "quote"});
}

TEST_CASE("a column that holds more than a time is no time, whatever asks", "[text]") {
  std::string days;
  for (int year = 1000; year < 4000; ++year)
    days += fmt::format("r\t{}-01-01\ng\t{}-01-01 junk\ng\t{}-01-02 junk\n", year, year, year);
  const TextFolder test({days});
  const Strings by{"--lines", "-t", "\\t", "-b", "2:time"};
  const std::string before = test.merged(by + Strings{"--bad", "skip", "--to", "1500-01-01"});
  CHECK(std::ranges::count(before, '\n') == 500);
  const std::string after = test.merged(by + Strings{"--bad", "skip", "--from", "1500-01-01"});
  CHECK(std::ranges::count(after, '\n') == 2500);
  test.check_refusal(by + Strings{"--from", "1500-01-01 junk"}, 2, {"not a value of type time"});

  const TextFolder two({"a\t2001-01-01 x\n", "a\t2001-02-02 y\n"});
  const Strings later{"--lines", "-t", "\\t", "-b", "1,2:time"};
  two.check_refusal(later, 2, {two.runs[0], "not a value of type time"});
  CHECK(two.merged(later + Strings{"--bad", "skip"}).empty());
  const TextFolder max({"a,2000-01-01\na,2001-01-01 x\na,2002-01-01\n"});
  max.check_refusal({"--csv", "-b", "1", "--on-equal", "reduce:max(2:time)"}, 2,
                    {"2001-01-01 x", "not a value of type time"});
  CHECK(TextFolder({"2001-01-01 x\n2002-01-01 y\n"}).merged({"--lines", "-b", "line:time"}) ==
        "2001-01-01 x\n2002-01-01 y\n");
}

TEST_CASE("a header whose quote is not closed is an error", "[text]") {
  const TextFolder test({"a,\"b\n2,x\n1,y\n"});
  for (const Strings& options : {Strings{"-b", "1"}, {"-b", "a", "--drop-header"}})
    test.check_refusal(Strings{"--csv", "--header"} + options, 2,
                       {test.runs[0], "the header", "a quote that nothing closes"});
  CHECK(TextFolder({"a,\"b\""}).merged({"--csv", "--header"}) == "a,\"b\"\n");
}

TEST_CASE("results of groups are in their columns", "[text]") {
  const Strings counted{"--csv", "--header", "-b", "a", "--on-equal", "reduce:count()"};
  const TextFolder wide({"a,b\n1,2\n1,2,3\n4\n"});
  CHECK(wide.merged(counted + Strings{"--having", "a == '4'"}) == "a,b,count\n4,,1\n");
  const TextFolder wider({"a,b\n1,2,3\n1,2,3\n"});
  wider.check_refusal(counted, 2, {"\"1,2,3\" has 3 columns and the header 2"});
  const TextFolder cases({"k,B\nk,a\n"});
  CHECK(cases.merged({"--csv", "-b", "1", "--on-equal", "reduce:min(2:nocase)"}) == "k,a\n");
  CHECK(cases.merged({"--csv", "-b", "1", "--on-equal", "reduce:max(2:nocase)"}) == "k,B\n");
  const TextFolder dots({"a.\"1.5\"\na.\"1.25\"\n"});
  CHECK(dots.merged({"--csv", "-t", ".", "-b", "1", "--on-equal", "reduce:sum(2)"}) ==
        "a.\"2.75\"\n");
  const TextFolder ragged({"b,2\nb,3\nc\nc\n"});
  CHECK(ragged.merged({"--csv", "-b", "1", "--on-equal", "reduce:sum(2),count()"}) ==
        "b,5,2\nc,,2\n");
  const TextFolder commas({"\"a,b\",k,n\n1,x,3\n2,x,4\n"});
  CHECK(commas.merged({"--csv", "--header", "-b", "k", "--on-equal",
                       "reduce:sum(\"a,b\"),max(n),count()"}) == "\"a,b\",k,n,count\n3,x,4,2\n");
  commas.check_refusal({"--csv", "--header", "-b", "k", "--on-equal", "reduce:sum(\"a,b"}, 2,
                       {"at character 8", "operation(field)"});
  const TextFolder dashes({"a-1\na-2\n", "a-0\n"});
  CHECK(dashes.merged({"--lines", "-t", "-", "-b", "1", "--on-equal", "reduce:sum(2)"}) == "a-3\n");
}

TEST_CASE("records with too few columns are filled up, or an error", "[text]") {
  const TextFolder test({"a,b,c\n1,2,3\n2\n"});
  const Strings lines{"--lines", "-t", ",", "--header"};
  for (Strings options : {Strings{"--csv", "--header"}, lines}) {
    options.insert(options.end(), {"-b", "a:u64"});
    Strings all = options;
    all.insert(all.end(), {"--select", "b,a"});
    CHECK(test.merged(all) == "b,a\n2,1\n,2\n");
    all.insert(all.end(), {"--ragged", "empty"});
    CHECK(test.merged(all) == "b,a\n2,1\n,2\n");
    all.back() = "error";
    test.check_refusal(all, 2, {test.runs[0], "line 3", "1 of 3 columns", "--ragged empty"});
    options.insert(options.end(), {"--ragged", "error"});
    test.check_refusal(options, 2, {test.runs[0], "line 3", "1 of 3 columns"});
    options.insert(options.end(), {"--bad", "skip"});
    test.check_refusal(options, 2, {"line 3", "1 of 3 columns"});
    Strings check{"check"};
    check.insert(check.end(), options.begin(), options.end());
    check.push_back(test.runs[0]);
    CHECK(run(check).code == 2);
  }
  // Without a header the first record determines the number of columns, even if the key is the
  // whole line.
  const TextFolder plain({"1,2\n3\n"});
  plain.check_refusal({"--lines", "-t", ",", "--ragged", "error"}, 2, {"line 2", "1 of 2 columns"});
  CHECK(plain.merged({"--csv", "-b", "1", "--select", "2,1"}) == "2,1\n,3\n");
  CHECK(TextFolder({"1,2\n3,4\n"}).merged({"--csv", "--ragged", "error"}) == "1,2\n3,4\n");
  // A key that the first record lacks may be a mistake.
  const TextFolder narrow({"1\n1,2\n"});
  narrow.check_refusal({"--csv", "-b", "2"}, 2, {"--by", "no column 2", "--ragged empty"});
  CHECK(narrow.merged({"--csv", "-b", "2", "--ragged", "empty"}) == "1\n1,2\n");
  CHECK(narrow.merged({"--csv", "-b", "1", "--where", "2 == '2'", "--ragged", "empty"}) == "1,2\n");
  plain.check_refusal({"--lines", "--ragged", "error"}, 2, {"--ragged", "delimiter"});
  plain.check_refusal({"--kv", "--ragged", "error"}, 2, {"--ragged", "--csv"});
}

TEST_CASE("columns are reduced over equal keys", "[text]") {
  const TextFolder csv(
      {"k,n,p,t\na,1,1.50,x\na,2,,y\nb,7,0.1,z\n", "k,n,p,t\na,-5,2.25,\"w,\"\nb,,3,\n"});
  const auto reduced = [&](const std::string& reductions) {
    return csv.merged({"--csv", "--header", "-b", "k", "--on-equal", "reduce:" + reductions});
  };
  const std::string header = "k,n,p,t\n";
  CHECK(reduced("sum(n:i64),sum(p),last(t)") == header + "a,-2,3.75,\"w,\"\nb,7,3.1,\n");
  CHECK(reduced("min(n:i64),max(p:decimal),min(t)") == header + "a,-5,2.25,\"w,\"\nb,7,3,z\n");
  CHECK(reduced("max(n:i64),count(p),max(t)") == header + "a,2,3,y\nb,7,2,z\n");
  CHECK(reduced("sum(p:f64)") == header + "a,1,3.75,x\nb,7,3.1,z\n");
  CHECK(reduced("count()") == "k,n,p,t,count\na,1,1.50,x,3\nb,7,0.1,z,2\n");
  CHECK(csv.merged({"--csv", "--header", "-b", "k", "--on-equal", "reduce:sum(p)", "--having",
                    "p:decimal > 3.5", "--select", "p,k"}) == "p,k\n3.75,a\n");
  const auto refused = [&](const std::string& reductions, const std::string& why) {
    csv.check_refusal({"--csv", "--header", "-b", "k", "--on-equal", "reduce:" + reductions}, 2,
                      {why});
  };
  refused("sum(t)", "holds \"x\", which is not a value of type decimal");
  refused("sum(k)", "column 1 is a key");
  refused("sum(n),max(n:i64)", "column 2 is named twice");
  refused("sum(pp)", "did you mean p?");
  refused("sum(n:time)", "sums are of type");
  const Strings counted{"--csv", "--header", "-b", "k", "--on-equal", "reduce:count()"};
  CHECK(csv.merged(counted + Strings{"--having", "count:u64 > 2", "--select", "count,k"}) ==
        "count,k\n3,a\n");
  csv.check_refusal(counted + Strings{"--where", "count:u64 > 2"}, 2, {"no column \"count\""});
  const TextFolder lines({"a\na\nb\n", "a\n" + std::string(200, 'c') + "\n"});
  const Strings count{"--lines", "-t", "\\t", "--on-equal", "reduce:count()"};
  CHECK(lines.merged(count) == "a\t3\nb\t1\n" + std::string(200, 'c') + "\t1\n");
  CHECK(lines.merged(count + Strings{"--having", "2:u64 > 1"}) == "a\t3\n");
  lines.check_refusal({"--lines", "--on-equal", "reduce:count()"}, 2, {"--delimiter"});
  lines.check_refusal({"--lines", "-t", ",", "--on-equal", "reduce:sum(1)"}, 2, {"is a key"});
  const TextFolder named({"count,b\n7,x\n7,y\n"});  // as the column that is added
  const Strings by_count{"--csv", "--header", "-b", "count", "--on-equal", "reduce:count()"};
  CHECK(named.merged(by_count + Strings{"--having", "3:u64 > 1"}) == "count,b,count\n7,x,2\n");
  const TextFolder longest({"k,170141183460469231731687303715884105727\n", "k,1\n"});
  const Strings sum{"--csv", "-b", "1", "--on-equal", "reduce:sum(2)"};
  longest.check_refusal(sum, 2, {"the sum of column 2", "\"k,1", "38 digits", "f64"});
  const TextFolder lowest({"k,-170141183460469231731687303715884105727\n", "k,-1\n"});
  lowest.check_refusal(sum, 2, {"38 digits"});
  const TextFolder tiny({"k,1e-2147483648\n", "k,0\n"});
  tiny.check_refusal(sum, 2, {"38 digits"});
  const TextFolder blank({"k, \n", "k,2\n", "k,\n"});
  CHECK(blank.merged(sum) == "k,2\n");
}

TEST_CASE("a sum of integers that its type cannot hold is treated as asked for", "[text]") {
  const TextFolder large({"k,18446744073709551615\n", "k,3\n"});
  const TextFolder small({"k,-9223372036854775808\n", "k,-3\n"});
  const auto options = [](const std::string& type, const std::string& overflow) {
    return Strings{"--csv",      "-b",    "1", "--on-equal", "reduce:sum(2:" + type + ")",
                   "--overflow", overflow};
  };
  large.check_refusal(options("u64", "error"), 2,
                      {"column 2", "2 records", "\"k,18446744073709551615",
                       "is 18446744073709551618", "u64", "--overflow saturate"});
  small.check_refusal(options("i64", "error"), 2, {"is -9223372036854775811"});
  CHECK(large.merged(options("u64", "wrap")) == "k,2\n");
  CHECK(small.merged(options("i64", "wrap")) == "k,9223372036854775805\n");
  CHECK(large.merged(options("u64", "saturate")) == "k,18446744073709551615\n");
  CHECK(small.merged(options("i64", "saturate")) == "k,-9223372036854775808\n");
  CHECK(large.merged(options("decimal", "error")) == "k,18446744073709551618\n");
}

TEST_CASE("columns that records lack are reduced as empty ones", "[text]") {
  const TextFolder csv({"k,x,y\na\nb\n", "k,x,y\na,1,5\na,2,7\n"});
  const auto reduced = [&](const std::string& reductions) {
    return csv.merged({"--csv", "--header", "-b", "k", "--on-equal", "reduce:" + reductions});
  };
  CHECK(reduced("sum(x)") == "k,x,y\na,3\nb\n");
  CHECK(reduced("max(y)") == "k,x,y\na,,7\nb\n");
  CHECK(reduced("last(y)") == "k,x,y\na,,7\nb\n");
  CHECK(reduced("count(x)") == "k,x,y\na,3\nb,1\n");
  CHECK(reduced("count()") == "k,x,y,count\na,,,3\nb,,,1\n");
}

TEST_CASE("sums take exponents", "[text]") {
  const Strings options{"--csv", "-b", "1", "--on-equal", "reduce:sum(2)"};
  CHECK(TextFolder({"a,1e2\na,5\n"}).merged(options) == "a,105\n");
  CHECK(TextFolder({"a,1.25e1\na,5E-3\na,0e99999\na,-2.5e+2\n"}).merged(options) == "a,-237.495\n");
  for (const char* const large : {"a,1e99\na,1\n", "a,1\na,1e-2000\n"})
    TextFolder({large}).check_refusal(options, 2, {"38 digits"});
  TextFolder({"a,1\na,1e+\n"}).check_refusal(options, 2, {"not a value of type decimal"});
}

TEST_CASE("having chooses after equal keys are resolved", "[text]") {
  const TextFolder test({"k,op\n1,I\n2,I\n3,I\n", "k,op\n1,D\n3,U\n4,D\n"});
  const auto merged = [&](const Strings& options) {
    Strings all{"--csv", "--header", "-b", "k", "--stats", test.folder / "stats"};
    all.insert(all.end(), options.begin(), options.end());
    return test.merged(all);
  };
  const Strings having{"--having", "op != 'D'"};
  const std::string upsert = "k,op\n2,I\n3,U\n";
  CHECK(merged({"--on-equal", "last", "--having", "op != 'D'"}) == upsert);
  auto stats = nlohmann::json::parse(text_of(test.folder / "stats"));
  CHECK(stats["records"] == 6);
  CHECK(stats["records_written"] == 2);
  CHECK(stats["records_replaced"] == 2);
  CHECK(stats["records_deleted"] == 2);
  CHECK(merged({"--on-equal", "last", "--tombstone", "op=D"}) == upsert);
  stats = nlohmann::json::parse(text_of(test.folder / "stats"));
  CHECK(stats["records_replaced"] == 2);
  CHECK(stats["records_deleted"] == 2);
  // --where is applied first, and keeps the older record.
  CHECK(merged({"--on-equal", "last", "--where", "op != 'D'"}) == "k,op\n1,I\n2,I\n3,U\n");
  CHECK(merged({"--on-equal", "last", "--tombstone", "op=D", "--having", "k > '2'"}) ==
        "k,op\n3,U\n");
  CHECK(merged({"--on-equal", "last", "--having", "op != 'D'", "--select", "op", "--limit", "1"}) ==
        "op\nI\n");
  CHECK(merged(having) == "k,op\n1,I\n2,I\n3,I\n3,U\n");
  const Result united = run({"union", "--csv", "--header", "-b", "k", "--having", "op != 'D'", "-o",
                             "-", test.runs[0], test.runs[1]});
  CHECK(united.out == "k,op\n1,I\n2,I\n3,I\n");
  test.check_refusal({"--csv", "--header", "-b", "k", "--having", "opp == 'D'"}, 2,
                     {"--having", "\"opp\"", "did you mean op?"});
  test.check_refusal({"--csv", "--header", "-b", "k", "--having", "op = 'D'"}, 2,
                     {"--having", "== "});
  test.check_refusal({"--csv", "--having", "1 == 'D'", "--copy-only"}, 2, {"--copy-only"});
  std::string help = run({"merge", "--help"}).out;
  std::ranges::replace(help, '\n', ' ');
  CHECK(holds(help, "--where, --on-equal, --tombstone and --having"));
}

TEST_CASE("a condition is no tombstone", "[text]") {
  const TextFolder test({"k,op\n1,D\n2,=D\n"});
  for (const std::string condition : {"op==D", "op == 'D'", "op!=D", "op<=D", "op>D"})
    test.check_refusal(
        {"--csv", "--header", "-b", "k", "--on-equal", "last", "--tombstone", condition}, 2,
        {"--tombstone", "column=value"});
  const auto merged = [&](const char* tombstone) {
    return test.merged(
        {"--csv", "--header", "-b", "k", "--on-equal", "last", "--tombstone", tombstone});
  };
  CHECK(merged("op='D'") == "k,op\n2,=D\n");
  CHECK(merged("op='=D'") == "k,op\n1,D\n");
  const Result fixed = run(
      {"merge", "-r", "k:u8,v:u8", "--on-equal", "last", "--tombstone", "v==1", "-o", "-", "-"});
  CHECK(fixed.code == 2);
  CHECK(holds(fixed.err, "column=value"));
}

TEST_CASE("an option that is given as empty is not one that is left out", "[text]") {
  const TextFolder test({"a\nc\n", "b\n"});
  CHECK(test.merged({"--lines", "--from=", "--to=b"}) == "a\n");
  CHECK(test.merged({"--lines", "--from=b", "--to="}).empty());
  CHECK(test.merged({"--lines", "--from", "", "--to", ""}).empty());
  for (const std::string option :
       {"--by", "--where", "--select", "--tombstone", "--on-equal", "--compress"}) {
    test.check_refusal({"--lines", option + "=", "--quiet"}, 2, {option, "empty"});
    test.check_refusal({"--lines", option, ""}, 2, {option, "empty"});
  }
  test.check_refusal({"--lines", "--limit="}, 2, {"--limit"});
  test.check_refusal({"--lines", "--memory", "-1"}, 2, {"--memory", "-1", "is not a size"});
}

TEST_CASE("a value may hold and end with equals signs", "[text]") {
  const TextFolder test({"<\nQUE=\nQUF\n", "=\n>\nA=B\n"});
  CHECK(test.merged({"--lines", "--to=="}) == "<\n");
  CHECK(test.merged({"--lines", "--to=A=B"}) == "<\n=\n>\n");
  CHECK(test.merged({"--lines", "--from=QUE="}) == "QUE=\nQUF\n");
  CHECK(test.merged({"--lines", "--from", "--x="}).starts_with("<\n"));
  CHECK(test.merged({"--lines", "--to", "--"}).empty());
  const TextFolder columns({"b=1\na=2\n"});
  for (const Strings& delimiter : {Strings{"--delimiter=="}, Strings{"--delimiter", "="},
                                   Strings{"-t="}, Strings{"-t", "="}}) {
    Strings options = delimiter;
    options.insert(options.end(), {"--lines", "-b", "2:u64"});
    CHECK(columns.merged(options) == "b=1\na=2\n");
  }
  const std::string output = test.folder / "x=";
  CHECK(run({"merge", "--lines", "--output=" + output, "--", test.runs[0]}).code == 0);
  CHECK(text_of(output) == "<\nQUE=\nQUF\n");
}

TEST_CASE("every option takes any value as its own argument and after an equals sign") {
  std::set<std::string> options;  // several commands may have one of them
  for (const char* command :
       {"merge", "sort", "union", "intersect", "subtract", "check", "gen", "info", "bench"}) {
    std::istringstream help(run({command, "--help"}).out);
    for (std::string line; std::getline(help, line);) {
      std::smatch found;
      if (!std::regex_search(line, found, std::regex("^  (?:-.,)?(--[a-z0-9-]+) [A-Z=]+ ")))
        continue;
      if (!options.insert(found[1]).second) continue;
      const Strings values{"=", "x=", "==", "=x", "[x]", "--x=", "-=", "[x=]"};
      for (std::size_t i = options.size() % std::min<std::size_t>(exhaustive_step, values.size());
           i < values.size(); i += exhaustive_step) {
        const std::string& value = values[i];
        // The unknown option makes the command fail before it does anything.
        const std::string name = found[1];
        const std::string joined_name = name + '=' + value;
        INFO(command << ' ' << joined_name);
        const Result apart = run({command, name, value, "--nonsense"});
        const Result joined = run({command, joined_name, "--nonsense"});
        CHECK(apart.code == 2);
        CHECK(joined.code == apart.code);
        CHECK(joined.err == apart.err);
      }
    }
  }
  CHECK(options.size() > 40);
}

TEST_CASE("bad input: options of text that contradict one another", "[text]") {
  const TextFolder test({"a,b\n"});
  test.check_refusal({}, 2, {"--record", "--lines", "--csv", "--kv"});
  test.check_refusal({"--lines", "--csv"}, 2, {"one of"});
  test.check_refusal({"-r", "a:u8", "--lines"}, 2, {"one of"});
  test.check_refusal({"-r", "a:u8", "-t", ","}, 2, {"--delimiter"});
  test.check_refusal({"--kv", "--header"}, 2, {"--header"});
  test.check_refusal({"--csv", "-z"}, 2, {"--zero-terminated"});
  test.check_refusal({"--lines", "-b", "2"}, 2, {"--delimiter"});
  test.check_refusal({"--lines", "-t", ",", "-b", "name"}, 2, {"--header"});
  test.check_refusal({"--lines", "-t", "::", "-b", "1"}, 2, {"one byte"});
  test.check_refusal({"--csv", "-b", "1:u65"}, 2, {"character 3", "u64 i64 f64"});
  test.check_refusal({"--kv", "-b", "1"}, 2, {"pairs"});
  CHECK(TextFolder({"a\tb\n"}).merged({"--lines", "-t", "\\t", "-b", "2"}) == "a\tb\n");
}
