// Tests of the program under limits of the system: disk space, memory, and processes killed midway.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

#ifdef CORANK_SANITIZED
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// Holds runs that merge into about `bytes` bytes, and the expected output.
struct Sized {
  Sized(Strings kind, std::uint64_t bytes) : format(std::move(kind)) {
    const bool lines = format.front() == "--lines";
    const std::string runs = folder / "runs";
    REQUIRE(run(joined({"gen", "--records", std::to_string(bytes / 16), "--runs", "4", "-o", runs},
                       lines ? Strings{"--lines", "16"} : format))
                .code == 0);
    for (const auto& entry : std::filesystem::directory_iterator(runs))
      paths.push_back(entry.path());
    std::ranges::sort(paths);
    REQUIRE(run(merge_to(folder / "right")).code == 0);
    right = text_of(folder / "right");
    REQUIRE(right.size() == bytes);
  }

  Strings merge_to(const std::string& output, const Strings& options = {}) const {
    Strings all = joined({"merge", "--backend", "cpu", "-o", output}, format);
    return joined(joined(all, options), paths);
  }

  TemporaryFolder folder;
  Strings format;
  Strings paths;
  std::string right;
};

const Strings formats[] = {{"-r", "key:u64,value:u64"}, {"--lines"}};

// Runs `body` in a child process that has a tmpfs of `bytes` bytes mounted at `folder`. `what` is
// the result of `body`; if `done` is false, it is the reason why the mount failed.
struct Told {
  bool done;
  std::string what;
};
Told with_small_disk(const std::filesystem::path& folder, const std::string& bytes,
                     const std::function<std::string()>& body) {
  int answer[2];
  REQUIRE(::pipe(answer) == 0);
  const uid_t user = ::geteuid();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto write_to = [](const char* path, const std::string& text) {
      const int file = ::open(path, O_WRONLY);
      const bool written = ::write(file, text.data(), text.size()) == std::ssize(text);
      ::close(file);
      return written;
    };
    const bool mounted =
        (::unshare(CLONE_NEWNS) == 0 ||
         (::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
          write_to("/proc/self/uid_map", "0 " + std::to_string(user) + " 1"))) &&
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        ::mount("none", folder.c_str(), "tmpfs", 0, ("size=" + bytes).c_str()) == 0;
    std::string told = mounted ? "" : "no file system can be mounted here";
    if (mounted) try {
        told = body();
      } catch (const std::exception& error) {
        told = error.what();
      } catch (...) {  // a check that failed, which has no text
        told = "a check failed in the small file system";
      }
    const bool sent = ::write(answer[1], told.data(), told.size()) == std::ssize(told);
    ::_exit(!sent ? 2 : mounted ? 0 : 1);
  }
  ::close(answer[1]);
  Told told;
  char block[4096];
  for (ssize_t got; (got = ::read(answer[0], block, sizeof block)) > 0;)
    told.what.append(block, static_cast<std::size_t>(got));
  ::close(answer[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) != 2));
  told.done = WEXITSTATUS(status) == 0;
  return told;
}

}  // namespace

TEST_CASE("an output on a full file system leaves the old one and goes on when there is room") {
  for (const Strings& format : formats) {
    const Sized data(format, 4'000'000);
    const auto disk = data.folder / "disk";
    std::filesystem::create_directory(disk);
    const auto full = [&]() -> std::string {
      write_file(disk / "output", Bytes(5));
      const Strings merge = data.merge_to(disk / "output", {"-f", "-m", "2M"});
      const auto is_refused = [](const Result& result) {
        return result.code == 2 && holds(result.err, "No space left") &&
               holds(result.err, "free some space");
      };
      for (const char* io : {"auto", "buffered", "direct", "mapped"}) {
        const Result plain = run(joined(merge, {"--io", io}));
        if (!is_refused(plain)) return "without room: " + plain.err;
        if (std::ranges::distance(std::filesystem::directory_iterator(disk)) != 1)
          return "something was left";
      }
      const Result zipped =
          run(data.merge_to(disk / "output", {"-f", "-m", "32M", "--compress", "gzip:1"}));
      if (!is_refused(zipped)) return "compressed: " + zipped.err;
      const Result parts = run(data.merge_to(disk / "parts", {"--parts", "2", "-m", "8M"}));
      if (!is_refused(parts)) return "parts: " + parts.err;
      const Result stopped = run(joined(merge, {"--resume"}));
      if (!is_refused(stopped) || !holds(stopped.err, "is kept"))
        return "with --resume: " + stopped.err;
      if (text_of(disk / "output") != std::string(5, '\0')) return "the old output is lost";
      if (::mount("none", disk.c_str(), "tmpfs", MS_REMOUNT, "size=16M") != 0)
        return "cannot be made larger";
      const Result rest = run(joined(merge, {"--resume", "--stats", "-"}));
      if (rest.code != 0) return "with room: " + rest.err;
      if (nlohmann::json::parse(rest.out)["resumed_bytes"] < 500'000) return "it began anew";
      if (text_of(disk / "output") != data.right) return "wrong bytes";
      if (std::ranges::distance(std::filesystem::directory_iterator(disk)) != 1)
        return "something was left in the end";
      return "";
    };
    const Told told = with_small_disk(disk, "1M", full);
    if (told.done)
      CHECK(told.what == "");
    else
      WARN("not checked: " + told.what);
  }
}

namespace {

Environment with_addresses(std::uint64_t bytes) {
  Environment setting;
  setting.before_exec = [bytes] {
    const struct rlimit limit { bytes, bytes };
    ::setrlimit(RLIMIT_AS, &limit);
  };
  return setting;
}

}  // namespace

TEST_CASE("whatever memory a process may have parts are whole or none is left") {
  if (sanitized) {
    WARN("not checked: sanitizers need more addresses than any limit leaves");
    return;
  }
  const TemporaryFolder folder;
  const std::string parts = folder / "parts";
  Strings files;
  for (const int step : {2, 3, 7}) {
    std::string lines;
    for (int i = 100'000; i < 120'000; i += step) lines += std::to_string(i) + '\n';
    files.push_back(folder / std::to_string(step));
    write_file(files.back(), bytes_of_text(lines));
  }
  const Strings merge{"merge", "--lines", "--backend", "cpu", "-T", "8",  "-m",
                      "16M",   "--parts", "16",        "-f",  "-o", parts};
  for (std::uint64_t mebibytes = 112; mebibytes < 192; mebibytes += 4) {
    const Result result = run(merge + files, with_addresses(mebibytes << 20));
    CAPTURE(mebibytes, result.err);
    CHECK((result.code == 0 || result.code == 2));
    const bool has_parts = std::filesystem::exists(parts) && !std::filesystem::is_empty(parts);
    CHECK(has_parts == (result.code == 0));
    std::filesystem::remove_all(parts);
  }
}

TEST_CASE("whatever memory a process may have a merge is right or refused") {
  if (sanitized) {
    WARN("not checked: sanitizers need more addresses than any limit leaves");
    return;
  }
  for (const Strings& format : formats) {
    const Sized data(format, 8'000'000);
    const std::string output = data.folder / "output";
    for (const char* threads : {"2", "16"}) {
      unsigned done = 0, refused = 0;
      for (std::uint64_t mebibytes = 16; mebibytes <= 4096; mebibytes += mebibytes / 4) {
        const Environment little = with_addresses(mebibytes << 20);
        if (run({"--version"}, little).code != 0) continue;
        write_file(output, Bytes(5));
        const Result result =
            run(data.merge_to(output, {"-f", "-m", "64M", "--threads", threads}), little);
        CAPTURE(threads, mebibytes, result.err);
        CHECK((result.code == 0 || result.code == 2));
        CHECK((text_of(output) == (result.code == 0 ? data.right : std::string(5, '\0'))));
        CHECK(data.folder.names() == Strings{"output", "right", "runs"});
        if (result.code == 2) CHECK(holds(result.err, "memory"));
        (result.code == 0 ? done : refused) += 1;
      }
      CHECK(done > 0);
      CHECK(refused > 0);
    }
  }
}

TEST_CASE("a limit of the address space limits the buffers") {
  if (sanitized) {
    WARN("not checked: sanitizers need more addresses than the limit leaves");
    return;
  }
  const Environment little = with_addresses(std::uint64_t{2} << 30);
  const TemporaryFolder folder;
  write_file(folder / "lines", bytes_of_text("b\na\n"));
  const Result plan = run({"sort", "--lines", "--explain", folder / "lines"}, little);
  CHECK(plan.code == 0);
  CHECK(holds(plan.out, "512.0 MiB for buffers (limit of the address space (ulimit -v))"));
}

TEST_CASE("a killed merge goes on") {
  for (const Strings& format : formats) {
    const Sized data(format, 40'000'000);
    const auto output = data.folder / "output";
    const auto left = data.folder / ".output.corank";
    const Strings merge = data.merge_to(output, {"-m", "2M", "--resume", "--stats", "-"});
    std::uint64_t kills = 0;
    for (std::uint64_t bytes = 5'000'000; bytes < 40'000'000; bytes += 9'000'000) {
      Environment setting;
      setting.before_exec = give_way;
      setting.while_running = [&](pid_t child) {
        wait_until([&] {
          std::error_code none;
          return std::filesystem::file_size(left, none) + 1 > bytes || has_ended(child);
        });
        ::kill(child, SIGKILL);
      };
      kills += run(merge, setting).code == 128 + SIGKILL;
      if (std::filesystem::exists(output)) break;
    }
    const Result rest = run(merge);
    INFO(rest.err);
    if (rest.code == 0) {
      const std::uint64_t resumed = nlohmann::json::parse(rest.out)["resumed_bytes"];
      CHECK(resumed > 1'000'000);
    }
    CHECK(kills > 0);
    CHECK((text_of(output) == data.right));
    CHECK(data.folder.names() == Strings{"output", "right", "runs"});
  }
}

TEST_CASE("bad input: a run of lines or of compressed records that shrinks while it is read") {
  for (const char* io : {"buffered", "mapped"})
    for (const bool compressed : {false, true}) {
      const Sized data(formats[!compressed], compressed ? 64'000'000 : 16'000'000);
      std::string last = data.paths.back();
      if (compressed) {
        last += ".zst";
        REQUIRE(run({"merge", "-r", "key:u64,value:u64", "-o", last, data.paths.back()}).code == 0);
      }
      const std::string pipe = data.folder / "pipe";
      REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
      Strings arguments = data.merge_to(pipe, {"-m", compressed ? "20M" : "2M", "--io", io});
      arguments.back() = last;
      Environment setting;
      setting.while_running = [&](pid_t) {
        const int reader = ::open(pipe.c_str(), O_RDONLY);
        char block[4096];
        CHECK(::read(reader, block, sizeof block) > 0);
        std::filesystem::resize_file(last, 8'000);
        while (::read(reader, block, sizeof block) > 0) continue;
        ::close(reader);
      };
      const Result result = run(arguments, setting);
      INFO(io << ": " << result.err);
      CHECK(result.code == 2);
      CHECK(holds(result.err, last));
    }
}
