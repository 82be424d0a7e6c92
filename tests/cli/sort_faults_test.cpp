// `corank sort` when something fails in one of its passes: it tells, keeps an old output, and
// leaves no temporary file.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "support/ignored_signal.hpp"
#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

constexpr std::size_t bytes_a_record = 16;
// Records of a memory load, at least, and of what a sort reads ahead of it, at most.
constexpr std::size_t load_bytes = 5 << 20;

// A sort within a small budget whose input is a pipe. The test feeds it, and so knows how far it
// is: a load is sorted and written to a temporary file once much of the next one is read.
class FedSort {
 public:
  FedSort() {
    std::filesystem::create_directory(temp());
    REQUIRE(::mkfifo(input().c_str(), 0600) == 0);
    write_file(output(), bytes_of_text(old_content));
  }

  std::filesystem::path temp() const { return folder_ / "temp"; }
  std::filesystem::path output() const { return folder_ / "output"; }

  // Runs the sort with `loads` whole loads as its input, but calls change(child) after `before` of
  // them.
  Result run(std::size_t loads, std::size_t before, const std::function<void(pid_t)>& change,
             Environment setting = {}) {
    setting.while_running = [&](pid_t child) {
      const IgnoredSignal ignored(SIGPIPE);  // the program may end before it has read everything
      const int pipe = ::open(input().c_str(), O_WRONLY | O_CLOEXEC);
      for (std::size_t load = 0; load < loads; ++load) {
        if (load == before) change(child);
        feed(pipe);
      }
      ::close(pipe);
      if (before == loads) change(child);
    };
    return test::run({"sort", "-q", "-f", "-r", "key:u64,value:u64", "-m", "4M", "-T", "2",
                      "--temp", temp(), "-o", output(), input()},
                     setting);
  }

  void check_untouched() const {
    CHECK(text_of(output()) == old_content);
    const bool has_temp = std::filesystem::exists(temp());
    CHECK(folder_.names() ==
          (has_temp ? Strings{"input", "output", "temp"} : Strings{"input", "output"}));
    CHECK((!has_temp || std::filesystem::is_empty(temp())));
  }
  // Checks that the output is the old or the new one, and that no temporary run has a name.
  void check_whole(std::size_t loads) const {
    const std::string content = text_of(output());
    if (content != old_content) {
      const auto size = content.size();
      CHECK(size == loads * load_bytes);
      std::uint64_t before = 0;
      bool ascends = true;
      for (std::size_t at = 0; at < size; at += bytes_a_record) {
        std::uint64_t key = 0;
        std::memcpy(&key, &content[at], sizeof key);
        ascends = ascends && before <= key;
        before = key;
      }
      CHECK(ascends);
    }
    CHECK(std::filesystem::is_empty(temp()));
  }

 private:
  static constexpr const char* old_content = "the old output";

  std::filesystem::path input() const { return folder_ / "input"; }

  void feed(int pipe) {
    Bytes load(load_bytes);
    for (std::size_t at = 0; at < load.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t number = random_();
      std::memcpy(&load[at], &number, sizeof number);
    }
    for (std::size_t at = 0; at < load.size();) {
      const ssize_t written = ::write(pipe, &load[at], load.size() - at);
      if (written < 0) return;
      at += static_cast<std::size_t>(written);
    }
  }

  TemporaryFolder folder_;
  Random random_{1};
};

// Flips a bit of each temporary run that the process has open.
std::size_t damage_temporaries(pid_t process, off_t at) {
  std::size_t damaged = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(entry.path(), gone);
    if (!holds(name, "/temp/")) continue;
    const int file = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    char byte = 0;
    if (::pread(file, &byte, 1, at) == 1) {
      byte ^= 1;
      damaged += ::pwrite(file, &byte, 1, at) == 1;
    }
    ::close(file);
  }
  return damaged;
}

// Lets files grow to 1 MiB, as a disk that fills does.
Environment small_files() {
  Environment setting;
  setting.before_exec = [] {
    const struct rlimit small { 1 << 20, 1 << 20 };
    ::setrlimit(RLIMIT_FSIZE, &small);
  };
  return setting;
}

}  // namespace

TEST_CASE("a sort notices a temporary file that does not hold what was written", "[sort]") {
  for (const off_t byte_of_record : {7, 8}) {  // of the key's high byte, and of the value
    FedSort sort;
    std::size_t damaged = 0;
    const Result result = sort.run(5, 3, [&](pid_t child) {
      damaged = damage_temporaries(child, 1000 * bytes_a_record + byte_of_record);
    });
    CHECK(damaged != 0);
    CHECK(result.code == 2);
    CHECK(holds(result.err, "a temporary file here did not hold what was written to it"));
    sort.check_untouched();
  }
}

TEST_CASE("a sort whose folder for temporary files vanishes fails", "[sort]") {
  FedSort sort;
  const Result result = sort.run(5, 2, [&](pid_t) { std::filesystem::remove_all(sort.temp()); });
  CHECK(result.code == 2);
  CHECK(holds(result.err, sort.temp()));
  sort.check_untouched();
}

TEST_CASE("a sort whose disk fills all the same fails", "[sort]") {
  FedSort sort;
  const Result result = sort.run(
      3, 0, [](pid_t) {}, small_files());
  CHECK(result.code == 2);
  CHECK(holds(result.err, sort.temp()));
  sort.check_untouched();
}

TEST_CASE("a sort that is stopped leaves no temporary file, and the old output", "[sort]") {
  for (const std::size_t before : {1, 3}) {  // in the first load, and after some were spilled
    FedSort sort;
    CHECK(sort.run(5, before, [](pid_t child) { ::kill(child, SIGTERM); }).code == 128 + SIGTERM);
    sort.check_untouched();
  }
}

TEST_CASE("a sort that is killed leaves no temporary file, and a whole output", "[sort]") {
  for (const std::size_t before : {1, 3}) {
    FedSort sort;
    CHECK(sort.run(5, before, [](pid_t child) { ::kill(child, SIGKILL); }).code == 128 + SIGKILL);
    sort.check_whole(5);
  }
  FedSort sort;
  Environment setting;
  setting.before_exec = give_way;
  sort.run(
      5, 5,
      [&](pid_t child) {
        const std::filesystem::path partial = sort.output().parent_path() / ".output.corank";
        wait_until([&] {
          std::error_code error;
          const auto bytes = std::filesystem::file_size(partial, error);
          return (!error && bytes != 0) || has_ended(child);
        });
        ::kill(child, SIGKILL);
      },
      setting);
  sort.check_whole(5);
  CHECK(sort.run(2, 2, [](pid_t) {}).code == 0);
  CHECK(std::filesystem::file_size(sort.output()) == 2 * load_bytes);
}

TEST_CASE("a sort ends if the load that it writes meanwhile fails", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = folder / "file";
  Random random(1);
  std::vector<std::uint64_t> numbers(3 << 20);
  std::ranges::generate(numbers, random);
  const auto bytes = std::as_bytes(std::span(numbers));
  write_file(file, Bytes(bytes.begin(), bytes.end()));
  const std::string temp = folder / "temp";
  std::filesystem::create_directory(temp);
  const Result result = run({"sort", "-q", "-r", "key:u64,value:u64", "-m", "16M", "-T", "2",
                             "--temp", temp, "-o", folder / "output", file},
                            small_files());
  CHECK(result.code == 2);
  CHECK(holds(result.err, temp));
  CHECK(folder.names() == Strings{"file", "temp"});
}

TEST_CASE("a sort ends at a bad record while it writes the load before", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = folder / "file";
  std::string some, lines;
  for (int i = 100'000; i < 200'000; ++i) some += std::to_string(i * 7919 % 1'000'003) + '\n';
  for (int i = 0; i < 120; ++i) lines += some;
  write_file(file, bytes_of_text(lines + "no number\n"));
  const Result result = run({"sort", "-q", "--lines", "-b", "line:u64", "-m", "64M", "-T", "2",
                             "-o", folder / "output", file});
  CHECK(result.code == 2);
  CHECK(holds(result.err, file + ": line 12000001 "));
  CHECK(folder.names() == Strings{"file"});
}

TEST_CASE("a sort names the first bad record, whichever thread finds it", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = folder / "file";
  std::string lines;
  for (int i = 0; i < 1'000'000; ++i)
    lines += (i > 300'000 && i % 1000 == 7 ? "bad" : std::to_string(i * 79 % 1'000'003)) + '\n';
  write_file(file, bytes_of_text(lines));
  for (int round = 0; round < 5; ++round) {
    const Result result =
        run({"sort", "-q", "--lines", "-b", "line:u64", "-T", "8", "-o", folder / "output", file});
    CHECK(result.code == 2);
    CHECK(holds(result.err, file + ": line 300008 "));
  }
  CHECK(folder.names() == Strings{"file"});
}

TEST_CASE("a sort that lacks room says so before it reads", "[sort]") {
  const TemporaryFolder folder;
  const std::string bad = folder / "bad";
  write_file(bad, bytes_of_text("no number\n" + std::string(24 << 20, '1')));
  const Result result = run({"sort", "--lines", "-b", "line:u64", "-m", "6M", "--temp", "/proc",
                             "-o", folder / "output", bad});
  CHECK(result.code == 2);
  CHECK(holds(result.err, "/proc: has room for 0 bytes, and the sort needs "));
  CHECK(folder.names() == Strings{"bad"});
}

TEST_CASE("a sort names a file with a record that is longer than its memory", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = folder / "file";
  write_file(file, bytes_of_text("b\n" + std::string(24 << 20, 'x') + "\na\n"));
  const Result result = run({"sort", "--lines", "-m", "6M", "-o", folder / "output", file});
  CHECK(result.code == 2);
  CHECK(holds(result.err, file + ": "));
  CHECK(holds(result.err, "--memory"));
  CHECK(folder.names() == Strings{"file"});
}
