// Tests of good input that is easily refused: headers that differ in form, unusual numbers, lists
// of files, and standard streams.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

struct ToleranceFolder : RunFolder {
  using RunFolder::RunFolder;

  Result merge(const Strings& options, const Environment& setting = {}) const {
    Strings all{"merge"};
    all.insert(all.end(), options.begin(), options.end());
    return run_with(std::move(all), setting);
  }
  // Returns the merged text; fails the test if the merge fails.
  std::string merged(const Strings& options) const { return output_of(merge(options)); }
};

}  // namespace

TEST_CASE("headers that differ in line ends, quotes or a byte order mark are the same") {
  const ToleranceFolder csv({"a,b\n1,x\n", "\"a\",b\r\n2,y\r\n",
                             "\xef\xbb\xbf"
                             "a,\"b\"\n3,z\n"});
  CHECK(csv.merged({"--csv", "--header", "-b", "a:u64"}) == "a,b\n1,x\n2,y\r\n3,z\n");
  const ToleranceFolder lines({"a\tb\r\n1\tx\n",
                               "\xef\xbb\xbf"
                               "a\tb\n2\ty\n"});
  CHECK(lines.merged({"--lines", "-t", "\\t", "--header", "-b", "b"}) == "a\tb\r\n1\tx\n2\ty\n");
  const Result other = ToleranceFolder({"a,b\n", "b,a\n"}).merge({"--csv", "--header"});
  CHECK(other.code == 2);
  CHECK(holds(other.err, "its header differs"));
}

TEST_CASE("a byte order mark before records is kept once") {
  const std::string mark = "\xef\xbb\xbf";
  const std::vector<std::pair<Strings, Strings>> formats{
      {{"--csv", "-b", "1:u64"}, {"1,x\n", "0,y\n"}},
      {{"--lines"}, {"b\n", "a\n"}},
      {{"--lines", "--comment", "#"}, {"b\n", "a\n"}}};
  for (const auto& [options, texts] : formats) {
    const ToleranceFolder both({mark + texts[0], mark + texts[1]});
    CHECK(both.merged(options) == mark + texts[1] + texts[0]);
    CHECK(ToleranceFolder({texts[0], mark + texts[1]}).merged(options) == texts[1] + texts[0]);
    CHECK(run(Strings{"check"} + options + both.runs).code == 0);
    CHECK(run(Strings{"sort"} + options + both.runs).out == mark + texts[1] + texts[0]);
    Environment piped;
    piped.in = mark + texts[0];
    CHECK(run(Strings{"sort"} + options + Strings{"-", both.runs[1]}, piped)
              .out.ends_with(texts[1] + texts[0]));
  }
  CHECK(run({"merge", "--lines", "-o", ToleranceFolder({mark}).folder / "out", "/dev/null"}).code ==
        0);
}

TEST_CASE("a byte order mark is no part of the lines that files share, or of a record") {
  const std::string mark = "\xef\xbb\xbf";
  const Strings lines{"--lines", "--comment", "#", "--header-lines", "1"};
  const ToleranceFolder both({mark + "#c\nH\na\n", mark + "#c\nH\nb\n"});
  CHECK(both.merged(lines) == mark + "#c\nH\na\nb\n");
  const ToleranceFolder one({"#c\nH\na\n", mark + "#c\nH\nb\n"});
  CHECK(one.merged(lines) == "#c\nH\na\nb\n");
  CHECK(one.merge(lines).err.empty());
  const ToleranceFolder pieces({"n\nada\n", mark + "bob\ncyd\n"});
  CHECK(pieces.merged({"--csv", "--header=first", "-b", "n"}) == "n\nada\nbob\ncyd\n");
  const ToleranceFolder empty({mark, "n\nada\n"});
  CHECK(empty.merged({"--csv", "--header=first", "-b", "n"}) == mark + "n\nada\n");
  const std::string packed = pieces.folder / "packed.gz";
  REQUIRE(run({"merge", "--lines", "-o", packed, pieces.runs[1]}).code == 0);
  CHECK(run({"merge", "--csv", "--header=first", "-b", "n", pieces.runs[0], packed}).out ==
        "n\nada\nbob\ncyd\n");
}

TEST_CASE("columns are those of the records that follow comments", "[text]") {
  const ToleranceFolder test({"#CHROM\n1\t5\n", "#CHROM\n1\t4\n"});
  CHECK(test.merged({"--lines", "-t", "\\t", "--comment", "#", "-b", "2:u64"}) ==
        "#CHROM\n1\t4\n1\t5\n");
}

TEST_CASE("the null device is an empty file") {
  const ToleranceFolder test({"b\n"});
  CHECK(run({"sort", "--lines", "/dev/null", test.runs[0], "/dev/null"}).out == "b\n");
  CHECK(run({"merge", "-r", "a:u64", "/dev/null"}).out.empty());
}

TEST_CASE("only the first file may have the header, as pieces of a split file do") {
  const ToleranceFolder pieces({"name,n\na,1\nd,4\n", "b,2\n", "c,3\n"});
  const std::string whole = "name,n\na,1\nb,2\nc,3\nd,4\n";
  CHECK(pieces.merged({"--csv", "--header=first", "-b", "n:u64"}) == whole);
  Strings check{"check", "--csv", "--header=first", "-b", "1"};
  check.insert(check.end(), pieces.runs.begin(), pieces.runs.end());
  CHECK(run(check).code == 0);
  // Its columns have the names for all files, whose first records are no headers.
  for (const std::string command : {"check", "info"}) {
    const Result found =
        run(Strings{command, "--csv", "--header=first", "-b", "name"} + pieces.runs);
    INFO(found.err);
    CHECK(found.code == 0);
    CHECK((command == "check" || holds(found.out, "first key:  name=b")));
    Environment piped;
    piped.in = "name,n\n";
    const Result pipe =
        run(Strings{command, "--csv", "--header=first", "-b", "1", "-"} + Strings{pieces.runs[1]},
            piped);
    CHECK(holds(pipe.err, "standard input: is a pipe"));
    CHECK(pipe.code == 2);
    // Only the first file is needed for the header: others may be pipes, or lack.
    const Result others = run(Strings{command, "--csv", "--header=first", "-b", "n:u64"} +
                                  Strings{pieces.runs[0], "-", "nothing", pieces.runs[1]},
                              {.in = "e,2\nf,1\n"});
    INFO(others.err);
    CHECK(others.code == 2);
    CHECK(holds(others.err, "nothing: cannot open"));
    CHECK(!holds(others.err, "is a pipe"));
    CHECK(holds(others.err + others.out,
                command == "check" ? "standard input: record 1" : "sorts before its predecessor"));
    CHECK((command == "check" || holds(others.out, "first key:  n=2")));
  }
  // Comments and header lines are in other files, too.
  const ToleranceFolder more({"#v1\nname\nb\n", "#v2\na\n", "c\n"});
  CHECK(more.merged({"--csv", "--header=first", "--comment", "#", "-b", "name"}) ==
        "#v1\nname\na\nb\nc\n");
  const Strings with_lines{"--csv", "--header=first", "--header-lines", "1", "-b", "name"};
  CHECK(ToleranceFolder({"v1\nname\nb\n", "v1\na\n"}).merged(with_lines) == "v1\nname\na\nb\n");
  const ToleranceFolder others({"", "v1\nname\nb\n", "v2\na\n"});
  CHECK(holds(others.merge(with_lines).err, "its header lines differ"));
  CHECK(run(Strings{"check"} + with_lines + others.runs).code == 0);
  const Result wrong = pieces.merge({"--csv", "--header=second"});
  CHECK(wrong.code == 2);
  CHECK(holds(wrong.err, "--header=first"));
}

TEST_CASE("numbers with a plus sign and tiny numbers are understood") {
  const ToleranceFolder numbers({"-1\n+1.5E-03\n2\n", "-1e-400\n1e-400\n+7e0\n"});
  CHECK(numbers.merged({"--lines", "-b", "line:f64"}) ==
        "-1\n-1e-400\n1e-400\n+1.5E-03\n2\n+7e0\n");
  CHECK(ToleranceFolder({"-5\n+3\n", "2\n"}).merged({"--lines", "-b", "line:i64"}) ==
        "-5\n2\n+3\n");
  CHECK(ToleranceFolder({"+3\n", "2\n"}).merged({"--lines", "-b", "line:u64"}) == "2\n+3\n");
  for (const char* const bad : {"++1\n", "+-1\n", "+\n", "1e400\n"}) {
    CHECK(ToleranceFolder({bad}).merge({"--lines", "-b", "line:f64"}).code == 2);
    CHECK(ToleranceFolder({"1\n", bad}).merged({"--lines", "-b", "line:f64", "--bad", "last"}) ==
          std::string("1\n") + bad);
  }
}

TEST_CASE("bad values come first on request, ascending and descending") {
  for (const char* const type : {"u64", "i64", "f64", "decimal", "human"}) {
    INFO(type);
    const std::string key = std::string("1:") + type;
    const Strings options{"--csv", "--bad", "first", "-b"};
    const auto by = [&](const std::string& keys) {
      Strings all = options;
      all.push_back(keys);
      return all;
    };
    CHECK(ToleranceFolder({",a\n0,b\n7,c\n", "?,d\n0,e\n"}).merged(by(key)) ==
          ",a\n?,d\n0,b\n0,e\n7,c\n");
    CHECK(ToleranceFolder({"?,a\n7,b\n0,c\n", ",d\n7,e\n"}).merged(by(key + ":desc")) ==
          "?,a\n,d\n7,b\n7,e\n0,c\n");
    CHECK(ToleranceFolder({"x,\nx,1\ny,0\n", "x,?\nx,0\n"}).merged(by("1,2" + key.substr(1))) ==
          "x,\nx,?\nx,0\nx,1\ny,0\n");
  }
  CHECK(ToleranceFolder({"0\n18446744073709551615\n", "x\n"})
            .merged({"--lines", "-b", "line:u64", "--bad", "first"}) ==
        "x\n0\n18446744073709551615\n");
  CHECK(ToleranceFolder({"9\n0\n", "x\n18446744073709551615\n"})
            .merged({"--lines", "-b", "line:u64:desc", "--bad", "first"}) ==
        "x\n18446744073709551615\n9\n0\n");
}

TEST_CASE("places are told as they are in the file, however many records are skipped") {
  constexpr int lines = 3001, bad_line = 2000;  // the last line is skipped, too
  std::string text, good;
  std::size_t byte = 0;
  for (int i = 0; i < lines; ++i) {
    const bool is_skipped = i % 3 == 0 || i == 7 || i == 8;
    const std::string line = (is_skipped ? "bad" : "") + std::to_string(i) + '\n';
    if (i == bad_line) byte = text.size();
    text += line;
    if (!is_skipped) good += line;
  }
  const Strings options{"-t", ",", "-b", "1:u64", "--bad", "skip"};
  CHECK(ToleranceFolder({text}).merged(Strings{"--lines"} + options) == good);
  for (const char* io : {"buffered", "mapped"})
    CHECK(ToleranceFolder({text, text})
              .merged(Strings{"--lines", "--io", io, "--on-equal", "first"} + options) == good);

  text.replace(byte, 4, "0005");
  const std::string place = "line " + std::to_string(bad_line + 1) + " (byte " +
                            std::to_string(byte) + ") is out of order";
  for (const char* io : {"buffered", "mapped"}) {
    const Result found = ToleranceFolder({text}).merge(Strings{"--lines", "--io", io} + options);
    CHECK((found.code == 1 && holds(found.err, place)));
  }
  const Result piped = run(Strings{"merge", "--lines"} + options + Strings{"-"}, {.in = text});
  CHECK((piped.code == 1 && holds(piped.err, place)));
  const Result checked = run(Strings{"check", "--lines"} + options + Strings{"-"}, {.in = text});
  CHECK((checked.code == 1 && holds(checked.err, place)));
}

TEST_CASE("names of files come as lines, and a list of the other kind is told") {
  const ToleranceFolder test({"b\n", "a\n"});
  const std::string lines = test.folder / "lines", zeros = test.folder / "zeros";
  write_file(lines, bytes_of_text(test.runs[0] + "\n" + test.runs[1] + "\n"));
  write_file(zeros, bytes_of_text(test.runs[0] + '\0' + test.runs[1] + '\0'));
  CHECK(run({"merge", "--lines", "--files-from", lines}).out == "a\nb\n");
  CHECK(run({"merge", "--lines", "--files0-from", zeros}).out == "a\nb\n");
  const std::string returns = test.folder / "returns";
  write_file(returns, bytes_of_text(test.runs[0] + "\r\n" + test.runs[1] + "\r\n"));
  CHECK(run({"merge", "--lines", "--files-from", returns}).out == "a\nb\n");
  CHECK(run({"sort", "--lines", "--files-from", lines}).out == "a\nb\n");
  Environment listed;
  listed.before_exec = [&] {
    ::dup2(::open(test.folder.path().c_str(), O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  };
  const Result unreadable = run({"merge", "--lines", "--files-from", "-", test.runs[0]}, listed);
  CHECK(unreadable.code == 2);
  CHECK(holds(unreadable.err, "-: cannot read"));
  listed.before_exec = [] {};
  listed.in = text_of(lines);
  CHECK(run({"merge", "--lines", "--files-from", "-"}, listed).out == "a\nb\n");
  std::string many;  // longer than a name may be
  for (int i = 0; i < 100000; ++i) many += test.runs[0] + "\n";
  const std::string long_list = test.folder / "long";
  write_file(long_list, bytes_of_text(many));
  for (const std::string& list : {lines, long_list}) {
    const Result newlines = run({"merge", "--lines", "--files0-from", list});
    CHECK(newlines.code == 2);
    CHECK(holds(newlines.err, "NUL bytes, --files-from takes lines"));
    CHECK(newlines.err.size() < 300);
  }
  const Result nuls = run({"merge", "--lines", "--files-from", zeros});
  CHECK(nuls.code == 2);
  CHECK(holds(nuls.err, "--files0-from"));
  CHECK(run({"merge", "--lines", "--files-from", lines, "--files0-from", zeros}).code == 2);
  write_file(lines, {});
  CHECK(holds(run({"merge", "--lines", "--files-from", lines}).err, "no runs are named"));
}

TEST_CASE("names that begin with a hyphen follow two hyphens") {
  const TemporaryFolder folder;
  write_file(folder / "-x", bytes_of_text("b\n"));
  write_file(folder / "y", bytes_of_text("a\n"));
  Environment inside;
  inside.before_exec = [&] {
    if (::chdir(folder.path().c_str()) != 0) ::_exit(126);
  };
  CHECK(run({"merge", "--lines", "--", "-x", "y"}, inside).out == "a\nb\n");
  CHECK(run({"merge", "--lines", "y", "--", "-x"}, inside).out == "a\nb\n");
  CHECK(run({"check", "--lines", "--", "-x"}, inside).code == 0);
}

TEST_CASE("files may follow an option that is given several times") {
  const ToleranceFolder test({"a\n"});
  CHECK(run({"merge", "--lines", "--temp", test.folder.path(), test.runs[0]}).out == "a\n");
  const char* const cpu = "--backend=cpu";
  CHECK(run({"merge", "--lines", cpu, "--device", "0", test.runs[0]}).out == "a\n");
}

TEST_CASE("bad input: a device that cannot be used") {
  const ToleranceFolder test({"a\n"});
  for (const char* const backend : {"--backend=auto", "--backend=cuda"}) {
    // No machine has so many devices.
    const Result named = run({"merge", "--lines", backend, "--device", "1000", test.runs[0]});
    CHECK(named.code == 2);
    CHECK(named.err.starts_with("corank: --backend cuda: "));
    CHECK(named.err.ends_with("; use --backend cpu or auto\n"));
  }
}

TEST_CASE("standard streams are used where no files are named") {
  Environment piped;
  piped.in = "a\nb\n";
  CHECK(run({"merge", "--lines"}, piped).out == "a\nb\n");
  CHECK(run({"check", "--lines"}, piped).code == 0);
  piped.in = "b\na\n";
  CHECK(run({"sort", "--lines"}, piped).out == "a\nb\n");
  CHECK(run({"check", "--lines"}, piped).code == 1);
  CHECK(run({"merge", "--lines"}, piped).err.find("reads standard input") == std::string::npos);
  const Result sets = run({"intersect", "--lines"}, piped);
  CHECK(sets.code == 2);
  CHECK(holds(sets.err, "no runs are named"));
}

TEST_CASE("a terminal is told that it is read") {
  for (const std::string command : {"sort", "merge", "check"}) {
    int terminal = -1, shell = -1;
    REQUIRE(::openpty(&terminal, &shell, nullptr, nullptr, nullptr) == 0);
    const FileDescriptor ends[] = {FileDescriptor(terminal), FileDescriptor(shell)};
    write_all(ends[0], bytes_of_text("a\nb\n\4"), "terminal");  // with Ctrl-D
    Environment typed;
    typed.before_exec = [&] { ::dup2(shell, STDIN_FILENO); };
    const Result result = run({command, "--lines"}, typed);
    CHECK(result.code == 0);
    CHECK(result.out == (command == "check" ? "" : "a\nb\n"));
    CHECK(holds(result.err, "reads standard input, since no files are named"));
    if (command == "check") continue;
    write_all(ends[0], bytes_of_text("a\n\4"), "terminal");
    CHECK(run({command, "--lines", "-q"}, typed).err.empty());
  }
}

TEST_CASE("a pseudo-terminal gets the output from either end") {
  const RunFolder test({"a\nb\n"});
  int master = -1, terminal = -1;
  struct termios raw {};
  ::cfmakeraw(&raw);
  REQUIRE(::openpty(&master, &terminal, nullptr, &raw, nullptr) == 0);
  const FileDescriptor ends[] = {FileDescriptor(master), FileDescriptor(terminal)};
  for (const int from : {0, 1}) {
    Environment setting;
    setting.before_exec = [&] { ::dup2(ends[from].get(), STDOUT_FILENO); };
    CHECK(run({"merge", "--lines", test.runs[0]}, setting).code == 0);
    struct pollfd arrived {
      ends[1 - from].get(), POLLIN, 0
    };
    REQUIRE(::poll(&arrived, 1, 60'000) == 1);
    std::array<char, 16> text{};
    CHECK(::read(ends[1 - from].get(), text.data(), text.size()) == 4);
    CHECK(std::string_view(text.data()) == "a\nb\n");
  }
}

TEST_CASE("a quiet check prints no warnings") {
  const RunFolder doubtful({"1\n2\n"});
  for (const Strings& command : {Strings{"sort", "--check"}, {"check"}}) {
    const Strings check = command + Strings{"--csv", "--header", "-b", "1:u64"};
    const Result loud = doubtful.run_with(check);
    INFO(loud.err);
    CHECK(loud.code == 0);
    CHECK(holds(loud.err, "leave out --header"));
    CHECK(doubtful.run_with(check + Strings{"-q"}).err.empty());
  }
}
