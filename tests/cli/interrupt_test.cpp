// SIGHUP, SIGINT and SIGTERM wherever the program may be when they come: it ends.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Starts the program, and sends it a signal half a second after it has started. It must end
// long before it would by itself, and `folder` must hold nothing more afterwards.
void check_ends(const TemporaryFolder& folder, const Strings& arguments, Environment setting = {}) {
  for (const int number : {SIGINT, SIGTERM}) {
    const Strings before = folder.names();
    std::chrono::steady_clock::time_point signalled;
    setting.while_running = [&](pid_t child) {
      wait_until([=] { return has_started(child); });
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      signalled = std::chrono::steady_clock::now();
      ::kill(child, number);
    };
    const Result result = run(arguments, setting);
    const auto waited = std::chrono::steady_clock::now() - signalled;
    INFO(result.err);
    CHECK(result.code == 128 + number);
    // It takes tenths of a second, but others may be using the machine.
    CHECK(waited < std::chrono::seconds(60));
    // A large partial output is kept to be resumed.
    for (const char* name : {"output", ".output.corank", ".output.corank-resume"})
      if (std::ranges::count(before, name) == 0) std::filesystem::remove_all(folder / name);
    CHECK(folder.names() == before);
  }
}

bool has_open(pid_t process, const std::filesystem::path& file) {
  const std::filesystem::path named = std::filesystem::canonical(file);
  std::error_code gone;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", gone))
    if (std::filesystem::read_symlink(entry.path(), gone) == named) return true;
  return false;
}

// Records of zeros that take no room, many more than are read within a second.
std::string make_zeros(const TemporaryFolder& folder, std::uint64_t bytes) {
  const std::string path = folder / "zeros";
  write_file(path, {});
  REQUIRE(::truncate(path.c_str(), static_cast<off_t>(bytes)) == 0);
  return path;
}

Strings times(std::size_t count, const std::string& run) {
  return Strings(count, run);
}

Strings merge_to(const TemporaryFolder& folder, const Strings& options) {
  return joined({"merge", "--backend", "cpu", "--io", "buffered", "-o", folder / "output"},
                options);
}

constexpr std::uint64_t many_bytes = std::uint64_t{1} << 38;

}  // namespace

TEST_CASE("a program that is killed before it has begun has said nothing") {
  Environment setting;
  setting.before_exec = [] { ::pause(); };
  setting.while_running = [](pid_t child) { ::kill(child, SIGKILL); };
  for (int i = 0; i < 20; ++i) {
    const Result result = run({"--help"}, setting);
    CHECK(result.code == 128 + SIGKILL);
    CHECK(result.out.empty());
    CHECK(result.err.empty());
  }
}

TEST_CASE("a merge of fixed records is interrupted in each of its phases") {
  const TemporaryFolder folder;
  const std::string zeros = make_zeros(folder, many_bytes);
  const Strings record{"-r", "a:u64"};
  SECTION("while it merges") {
    check_ends(folder, joined(merge_to(folder, record), {zeros, zeros}));
  }
  SECTION("while it copies") {
    check_ends(folder, joined(merge_to(folder, record), {"--copy-only", zeros, zeros}));
  }
  SECTION("while it drops equal keys, so that nothing is written") {
    check_ends(folder, joined(merge_to(folder, record), {"--on-equal", "first", zeros, zeros}));
  }
  SECTION("in a pass before the last") {
    check_ends(folder,
               joined(merge_to(folder, joined(record, {"-q", "-m", "700K"})), times(300, zeros)));
  }
  SECTION("in one of several parts") {
    check_ends(folder, joined(merge_to(folder, record), {"--parts", "3", zeros, zeros}));
  }
  SECTION("while it looks for the first record out of order") {
    // The boundary between the parts shows that the run is out of order; only the record is
    // unknown.
    const int file = ::open(zeros.c_str(), O_WRONLY);
    CHECK(::pwrite(file, "x", 1, many_bytes / 2 - 8) == 1);
    ::close(file);
    check_ends(folder, joined(merge_to(folder, record), {"--parts", "2", zeros}));
  }
}

TEST_CASE("a merge of many runs is interrupted while it is planned") {
  // All runs are one file, which each probe opens again.
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  Bytes keys(std::size_t{8} << 20);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::byte>(i >> 15);
  write_file(run, keys);
  std::string names;
  for (int i = 0; i < 60'000; ++i) names += run + '\0';
  Environment setting;
  setting.in = names;
  for (const char* parts : {"1", "9"})
    check_ends(folder,
               merge_to(folder, {"-r", "a:u8", "-m", "8G", "--parts", parts, "--files0-from", "-"}),
               setting);
}

TEST_CASE("what checks a file is interrupted") {
  const TemporaryFolder folder;
  const std::string zeros = make_zeros(folder, many_bytes);
  check_ends(folder, {"check", "-r", "a:u64", zeros});
  check_ends(folder, {"check", "--lines", "-z", zeros});
}

TEST_CASE("merges of text and of compressed runs are interrupted") {
  const TemporaryFolder folder;
  const std::string zeros = make_zeros(folder, many_bytes);
  SECTION("empty lines") {
    check_ends(folder, merge_to(folder, {"--lines", "-z", zeros, zeros}));
  }
  SECTION("empty lines in parts") {
    check_ends(folder, merge_to(folder, {"--lines", "-z", "--parts", "3", zeros, zeros}));
  }
  SECTION("pairs without keys and values") {
    check_ends(folder, merge_to(folder, {"--kv", zeros, zeros}));
  }
  SECTION("a compressed output") {
    check_ends(folder, merge_to(folder, {"-r", "a:u64", "--compress", "gzip:9", zeros, zeros}));
  }
  SECTION("compressed runs") {
    const std::string some = folder / "some";
    std::filesystem::resize_file(zeros, std::uint64_t{1} << 30);
    REQUIRE(run({"merge", "--copy-only", "-r", "a:u64", "--compress", "zstd", "-o", some, zeros})
                .code == 0);
    check_ends(folder, joined(merge_to(folder, {"-r", "a:u64"}), times(30, some)));
    check_ends(folder, joined(merge_to(folder, {"--lines", "-z"}), times(30, some)));
  }
}

TEST_CASE("a merge whose terminal goes is interrupted, unless it was told to ignore that") {
  for (const bool ignores : {false, true}) {
    const TemporaryFolder folder;
    const std::string pipe = folder / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    const int writer = ::open(pipe.c_str(), O_RDWR);
    Environment setting;
    setting.before_exec = [&] {
      ::close(writer);
      ::signal(SIGHUP, ignores ? SIG_IGN : SIG_DFL);
    };
    setting.while_running = [&](pid_t child) {
      wait_until([=] { return has_started(child); });
      ::kill(child, SIGHUP);
      if (ignores) wait_until([&] { return has_open(child, pipe) || has_ended(child); });
      if (ignores) CHECK(::write(writer, "a\n", 2) == 2);
      if (ignores) ::close(writer);
    };
    CHECK(run(merge_to(folder, {"--lines", pipe}), setting).code == (ignores ? 0 : 128 + SIGHUP));
    CHECK(folder.names() == (ignores ? Strings{"output", "pipe"} : Strings{"pipe"}));
    if (!ignores) ::close(writer);
  }
}

TEST_CASE("a merge of pipes that give nothing is interrupted") {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int writer = ::open(pipe.c_str(), O_RDWR);
  for (const Strings& format : {Strings{"-r", "a:u64"}, Strings{"--lines"}, Strings{"--kv"}})
    check_ends(folder, merge_to(folder, joined(format, {pipe})));
  check_ends(folder, merge_to(folder, {"--csv", "--header", "-b", "a", "--explain", pipe}));
  // Half a record, and no end of input.
  CHECK(::write(writer, "abc", 3) == 3);
  check_ends(folder, merge_to(folder, {"-r", "a:u64", pipe}));
  ::close(writer);
}
