// Runs the program in a child process, as a user would.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "io/file.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

namespace corank::test {

using Strings = std::vector<std::string>;

inline Strings operator+(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Returns the path of the program, which is in the folder of the tests.
inline std::filesystem::path program() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "corank";
}

struct Result {
  int code;  // exit code, or 128 + n if signal n ended the program
  std::string out;
  std::string err;
};

struct Environment {
  std::string in;                             // standard input
  std::function<void()> before_exec = [] {};  // called in the child process
  std::function<void(pid_t)> while_running = [](pid_t) {};
};

// Makes the stream a pipe that nobody reads. The program inherits SIGPIPE, maybe ignored.
inline Environment without_reader(bool is_ignored, int stream = STDOUT_FILENO) {
  Environment setting;
  setting.before_exec = [is_ignored, stream] {
    int pipe[2];
    if (::pipe(pipe) != 0) ::_exit(126);
    ::dup2(pipe[1], stream);
    for (const int end : pipe) ::close(end);
    if (is_ignored) ::signal(SIGPIPE, SIG_IGN);
  };
  return setting;
}

// Waits until `condition` is true; fails the test after some minutes.
inline void wait_until(const std::function<bool()>& condition) {
  const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (!condition() && std::chrono::steady_clock::now() < latest)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(condition());
}

// Lowers the priority of the program, so that the test, which stops it in the middle, runs first
// even on a busy machine.
inline void give_way() {
  ::setpriority(PRIO_PROCESS, 0, 19);
}

// Returns whether the process has ended; it can still be waited for.
inline bool has_ended(pid_t process) {
  siginfo_t ended{};
  return ::waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         ended.si_pid != 0;
}

// Returns whether the process runs the program already, or has ended.
inline bool has_started(pid_t process) {
  std::error_code gone;
  return std::filesystem::equivalent("/proc/" + std::to_string(process) + "/exe", program(),
                                     gone) ||
         has_ended(process);
}

// Runs the program to its end. Opens the files before the process starts, because it may be killed
// at any time.
inline Result run(const Strings& arguments, const Environment& setting = {}) {
  const TemporaryFolder folder;
  write_file(folder / "in", bytes_of_text(setting.in));
  const std::string path = program();
  std::vector<char*> argv{const_cast<char*>("corank")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string in = folder / "in", out = folder / "out", err = folder / "err";
  constexpr int written = O_WRONLY | O_CREAT | O_CLOEXEC;
  const FileDescriptor streams[] = {FileDescriptor(::open(in.c_str(), O_RDONLY | O_CLOEXEC)),
                                    FileDescriptor(::open(out.c_str(), written, 0600)),
                                    FileDescriptor(::open(err.c_str(), written, 0600))};
  for (const FileDescriptor& stream : streams) REQUIRE(stream.get() > STDERR_FILENO);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (int number = 0; number < 3; ++number)
      if (::dup2(streams[number].get(), number) != number) ::_exit(126);
    setting.before_exec();
    ::execv(path.c_str(), argv.data());
    ::_exit(127);
  }
  setting.while_running(child);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), text_of(out),
          text_of(err)};
}

inline Strings joined(Strings first, const Strings& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

// Returns the standard output of a command; fails the test if the command failed.
inline std::string output_of(const Result& result) {
  INFO(result.err);
  CHECK(result.code == 0);
  return result.out;
}

// Runs of text in a folder of their own.
struct RunFolder {
  explicit RunFolder(const Strings& texts = {}) {
    for (const std::string& text : texts) add(text);
  }
  std::string add(const std::string& text) {
    return add("run" + std::to_string(runs.size()), text);
  }
  std::string add(const std::string& name, const std::string& text) {
    runs.push_back(folder / name);
    write_file(runs.back(), bytes_of_text(text));
    return runs.back();
  }
  // Runs a command on the runs.
  Result run_with(Strings command, const Environment& setting = {}) const {
    command.insert(command.end(), runs.begin(), runs.end());
    return run(command, setting);
  }

  TemporaryFolder folder;
  Strings runs;
};

}  // namespace corank::test
