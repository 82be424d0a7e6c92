// Tests of the program with closed or full standard streams and with a limit on file size.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

struct Lines {
  TemporaryFolder folder;
  std::string first = folder / "first", second = folder / "second", output = folder / "output";

  Lines() {
    write_file(first, bytes_of_text("a\nc\n"));
    write_file(second, bytes_of_text("b\n"));
    write_file(output, bytes_of_text("old"));
  }

  Strings merge(const Strings& more = {}) const {
    Strings arguments{"merge", "--lines", "-f", "-o", output, first, second};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
};

Environment without(const std::vector<int>& streams) {
  Environment setting;
  setting.before_exec = [streams] {
    for (const int stream : streams) ::close(stream);
  };
  return setting;
}

Environment full(int stream) {
  Environment setting;
  setting.before_exec = [stream] { ::dup2(::open("/dev/full", O_WRONLY), stream); };
  return setting;
}

}  // namespace

TEST_CASE("a merge is right whichever standard streams are closed") {
  for (const std::vector<int>& closed :
       {std::vector{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}) {
    const Lines lines;
    CHECK(run(lines.merge({"--progress"}), without(closed)).code == 0);
    CHECK(text_of(lines.output) == "a\nb\nc\n");
  }
}

TEST_CASE("what cannot be said is no failure, and a failure is one though it cannot be said") {
  const Lines lines;
  for (const Environment& setting : {without({2}), full(2), without_reader(false, 2)}) {
    CHECK(run(lines.merge({"--progress"}), setting).code == 0);
    CHECK(run({"check", "--lines", lines.folder / "none"}, setting).code == 2);
    write_file(lines.folder / "disordered", bytes_of_text("b\na\n"));
    CHECK(run({"check", "--lines", lines.folder / "disordered"}, setting).code == 1);
    CHECK(run({"mrege"}, setting).code == 2);
  }
  CHECK(run(lines.merge({"--progress", "--quiet"})).err.empty());
}

TEST_CASE("bad input: a standard input that is closed") {
  const Lines lines;
  for (const Strings& arguments : {lines.merge({"-"}), Strings{"check", "--lines", "-"}}) {
    const Result result = run(arguments, without({0}));
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK(holds(result.err, "standard input: cannot"));
    CHECK(text_of(lines.output) == "old");
  }
}

TEST_CASE("bad input: a standard stream that is closed, by any name") {
  const Lines lines;
  for (const Strings& arguments : {Strings{"merge", "--lines", lines.first},
                                   {"sort", "--lines", lines.first},
                                   {"merge", "--lines", "-o", "/dev/stdout", lines.first}})
    CHECK(run(arguments, without({1})).code == 2);
  CHECK(run({"sort", "--lines", "-f", "-o", lines.output, "/dev/stdin"}, without({0})).code == 2);
  CHECK(text_of(lines.output) == "old");
}

TEST_CASE("a merge whose standard output is a stalled socket ends at the first signal") {
  const TemporaryFolder folder;
  write_file(folder / "run", Bytes(std::size_t{4} << 20, std::byte{'\n'}));
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  Environment setting;
  setting.before_exec = [&] { ::dup2(ends[1], STDOUT_FILENO); };
  setting.while_running = [&](pid_t child) {
    struct pollfd begun {
      ends[0], POLLIN, 0
    };
    CHECK(::poll(&begun, 1, -1) == 1);
    ::kill(child, SIGINT);
  };
  CHECK(run({"merge", "--lines", folder / "run"}, setting).code == 130);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("bad input: a standard output that is a run") {
  const Lines lines;
  Environment setting;
  setting.before_exec = [&] {
    ::dup2(::open(lines.first.c_str(), O_WRONLY | O_APPEND), STDOUT_FILENO);
  };
  const Result result = run({"merge", "--lines", "-o", "-", lines.first, lines.second}, setting);
  CHECK(result.code == 2);
  CHECK(holds(result.err, "standard output: is a run, too"));
  CHECK(text_of(lines.first) == "a\nc\n");
}

TEST_CASE("bad input: no room for what is printed") {
  const Lines lines;
  for (const Strings& arguments : {Strings{"check", "--lines", "--checksum", lines.first},
                                   {"info"},
                                   {"merge", "--help"},
                                   {"bench", "--size", "1K", "-k", "2", "--in", lines.folder.path(),
                                    "--repeat", "1", "--peers", "none", "-r", "k:u64"}})
    for (const Environment& setting : {full(1), without({1})}) {
      const Result result = run(arguments, setting);
      INFO(arguments[0] << ": " << result.err);
      CHECK(result.code == 2);
      CHECK(holds(result.err, "standard output: "));
    }
  const Result result = run(lines.merge({"--stats", "-"}), full(1));
  CHECK(result.code == 2);
  CHECK(holds(result.err, "standard output: cannot write the statistics; the merge itself is"));
  CHECK(text_of(lines.output) == "a\nb\nc\n");
  CHECK(lines.folder.names() == Strings{"first", "output", "second"});
}

TEST_CASE("bad input: a limit on the size of files") {
  const Lines lines;
  write_file(lines.first, Bytes(100'000, std::byte{'\n'}));
  Environment setting;
  setting.before_exec = [] {
    const struct rlimit limit { 8192, 8192 };
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  const Result result = run(lines.merge(), setting);
  CHECK(result.code == 2);
  CHECK(holds(result.err, "raise the limit on the size of files"));
  CHECK(text_of(lines.output) == "old");
  CHECK(lines.folder.names() == Strings{"first", "output", "second"});
}
