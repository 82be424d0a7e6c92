// Tests of the words that users read: causes in errors, help, and the names of mistyped options.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Checks that the help of a command fits 80 columns.
void check_width(const std::string& command, const std::string& help) {
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    INFO(command << ": " << line);
    CHECK(std::ranges::count_if(line, [](char byte) { return (byte & 0xc0) != 0x80; }) <= 80);
  }
}

// Checks that the text is out of order, and that the error, one line, has all of `parts`.
void check_disorder(const std::string& text, const Strings& options, const Strings& parts) {
  const TemporaryFolder folder;
  const std::string file = folder / "file";
  write_file(file, bytes_of_text(text));
  for (const char* const command : {"merge", "check"}) {
    Strings arguments{command};
    arguments.insert(arguments.end(), options.begin(), options.end());
    if (arguments[0] == "merge") arguments.insert(arguments.end(), {"-o", folder / "out"});
    arguments.push_back(file);
    const Result result = run(arguments);
    INFO(result.err);
    CHECK(result.code == 1);
    CHECK(std::ranges::count(result.err, '\n') == 1);
    for (const std::string& part : parts) {
      INFO("lacks " << part);
      CHECK(holds(result.err, part));
    }
    CHECK(holds(result.err, "corank sort"));
  }
}

const Strings commands{"merge", "sort", "union", "intersect", "subtract",
                       "check", "gen",  "info",  "bench"};

}  // namespace

TEST_CASE("an order error shows both keys, the line, the column and the likely cause") {
  const Strings csv{"--csv", "-b"}, headed{"--csv", "--header", "-b"};
  const auto by = [](Strings options, const std::string& keys) {
    options.push_back(keys);
    return options;
  };
  SECTION("numbers as text") {
    check_disorder("a,9\nb,10\nc,11\n", by(csv, "2"),
                   {"line 2 (byte 4)", "column 2=10 after column 2=9", "2:u64 in --by"});
    check_disorder("n\n-3\n-2\n", by(headed, "n"), {"line 3", "n=-2 after n=-3", " n:i64 in"});
    check_disorder("2019\n9\n10\n", by(headed, "\"2019\""), {" \"2019\":u64 in"});
    check_disorder("{\"a\":2}\n{\"a\":10}\n", {"--jsonl", "-b", "a"}, {"a=10", " a:u64 in --by"});
    check_disorder("chr2\nchr10\n", {"--lines"}, {"line=chr10 after line=chr2", "line:natural"});
    check_disorder("x10\nx9\n", {"--lines", "-b", "line:desc"}, {" line:natural:desc in"});
    check_disorder("9K\n1M\n", {"--lines"}, {"line:human"});
    check_disorder("10\n9\n", by({"--lines", "-b"}, "line:u64"), {"as text", "line:bytes"});
  }
  SECTION("another locale") {
    check_disorder("apple\nBanana\ncherry\n", {"--lines"}, {"line 2", "line:nocase", "LC_ALL=C"});
    check_disorder("a b\nac\na d\n", {"--lines"}, {"line 3", "another locale", "LC_ALL=C"});
    check_disorder("z\u00e9bra\nzoo\n", {"--lines"}, {"another locale"});
  }
  SECTION("descending records") {
    check_disorder("c\nb\na\n", {"--lines"}, {"line 2", "reverse order", "asc and desc in --by"});
    check_disorder("AAAABBBB", {"-r", "k:bytes2", "-b", "k:desc"},
                   {"record 2 (byte 4)", "k='BB'", "reverse order"});
  }
  SECTION("a header") {
    check_disorder("name\nalice\nbob\n", {"--lines"}, {"line 2", "say --header"});
    check_disorder("n\n9\n10\n", {"--lines"}, {"say --header", "line:u64"});
  }
  SECTION("quoted newlines") {
    check_disorder("a,b\n\"x\ny\",1\n\"x\n\",1\n", by(headed, "a"), {"line 4 (byte 12)", "a=\"x"});
  }
  SECTION("no order at all") {
    const TemporaryFolder folder;
    write_file(folder / "file", bytes_of_text("b\nd\na\nc\n"));
    const Result result = run({"check", "--lines", folder / "file"});
    CHECK(result.err == "corank: " + std::string(folder / "file") +
                            ": line 3 (byte 4) is out of order: line=a after line=d; sort this run "
                            "by the same keys, or correct --by (corank sort sorts files)\n");
  }
}

TEST_CASE("the line of a bad record is counted as an editor does") {
  const TemporaryFolder folder;
  const std::string file = folder / "file";
  write_file(file, bytes_of_text("n,t\n1,\"a\nb\nc\"\n2,\"d\"e\n"));
  const Result stray = run({"check", "--csv", "--header", file});
  CHECK(holds(stray.err, "line 5 (byte 14): column 2 has text after its closing quote"));
  write_file(file, bytes_of_text("n,t\n1,\"a\nb\"\nx,c\n"));
  CHECK(holds(run({"check", "--csv", "--header", "-b", "n:u64", file}).err, "line 4 (byte 12)"));
  write_file(file, bytes_of_text("1\n2\n3\nx\n5\n"));
  const Result ranged = run({"merge", "--lines", "-b", "line:u64", "--from", "3", file});
  CHECK(holds(ranged.err, "line 4 (byte 6)"));
}

TEST_CASE("unknown names are told before missing ones, with what was meant") {
  struct Case {
    Strings arguments, parts;
  };
  for (const Case& wrong : std::vector<Case>{
           {{"mrege"}, {"no command \"mrege\"", "did you mean merge?", "corank --help"}},
           {{"--quiet"}, {"--quiet", "name the command first"}},
           {{"merge", "--outptu", "x"},
            {"corank merge has no option --outptu", "--output? (corank merge --help lists all)"}},
           {{"merge", "--nonsense"}, {"has no option --nonsense (corank merge --help lists all)"}},
           {{"gen", "-x"}, {"corank gen has no option -x"}},
           {{"merge", "-qy"}, {"has no option -y"}},
           {{"sort", "-k2,2n"}, {"sort has no option -k; say --by COLUMN (corank sort --help"}},
           {{"sort", "-s"}, {"sort has no option -s; leave it out: records with equal keys keep"}},
           {{"merge", "--mem", "1G"}, {"has no option --mem; did you mean --memory?"}},
           {{"merge", "--head"}, {"did you mean --header?"}},
           {{"merge", "--sorted"}, {"has no option --sorted (corank merge --help lists all)"}},
           {{"merge", "--csv", "--lines", "a"}, {"more than one format is given; say just one of"}},
           {{"merge", "a"}, {"say what the files hold by one of"}},
           {{"merge", "--csv", "--header", "first"}, {"first: "}},
           {{"check", "--unique"}, {"has no option --unique; say --on-equal first (corank check"}},
           {{"union", "--plan", "p.json"}, {"has no option --plan; say corank merge --plan"}},
           {{"finish", "--key"}, {"has no option --key (corank finish --help lists all)"}},
           {{"gen", "-r", "a:u8", "--runs", "1"}, {"--records", "see corank gen --help"}},
           {{"merge", "-o", "a", "--output=b"}, {"--output is given 2 times; give it once"}},
           {{"sort", "--lines", "-b", "1", "-b", "2"}, {"--by is given 2 times", "commas"}},
           {{"sort", "--lines", "--where", "1 == 'a'", "--where", "1 == 'b'"}, {"\"and\" between"}},
           {{"sort", "--csv", "-b", "1:u64:descending"}, {"\"descending\": no such type or order"}},
           {{"merge", "--lines", "-T"}, {"--threads lacks its value; see corank merge --help"}},
           {{"plan", "merge"}, {"--output is required; see corank plan merge --help"}},
           {{"plan"}, {"see corank plan --help"}},
           {{"merge", "--lines", "--parts-by-key", "a"}, {"--parts-by-key requires --parts; see"}},
           {{"plan", "sort", "--lines", "--partitions", "2", "-o", "p"}, {"no files are named"}},
           {{"help", "marge"}, {"did you mean merge?"}}}) {
    const Result result = run(wrong.arguments);
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK(std::ranges::count(result.err, '\n') == 1);
    for (const std::string& part : wrong.parts) CHECK(holds(result.err, part));
  }
}

TEST_CASE("help of a command is had in two ways, and examples without one") {
  CHECK(run({"help"}).out == run({"--help"}).out);
  const Result bare = run({});
  CHECK(bare.code == 2);
  CHECK(std::ranges::count(bare.err, '\n') == 7);
  std::size_t num_examples = 0, at = 0;
  while ((at = bare.err.find("\n  corank ", at)) != std::string::npos) ++num_examples, ++at;
  CHECK(num_examples == 5);
  for (const std::string& command : commands) {
    const Result help = run({command, "--help"});
    CHECK(help.code == 0);
    CHECK(run({"help", command}).out == help.out);
    CHECK(!holds(help.out, "{"));
    CHECK(!holds(help.out, "without it,"));
    check_width(command, help.out);
  }
  check_width("", run({"--help"}).out);
}
