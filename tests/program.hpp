// Runs the program as its user does.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support.hpp"

namespace corank::test {

using Strings = std::vector<std::string>;

// The program stands beside the tests.
inline std::filesystem::path program() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "corank";
}

struct Result {
  int code;  // 128 + n where signal n ended it
  std::string out;
  std::string err;
};

struct Setting {
  std::string in;                             // standard input
  std::function<void()> before_exec = [] {};  // in the new process
  std::function<void(pid_t)> while_running = [](pid_t) {};
};

inline Result run(const Strings& arguments, const Setting& setting = {}) {
  const TemporaryFolder folder;
  write_file(folder / "in", bytes_of_text(setting.in));
  const std::string path = program();
  std::vector<char*> argv{const_cast<char*>("corank")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string in = folder / "in", out = folder / "out", err = folder / "err";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(in.c_str(), O_RDONLY), 0);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT, 0600), 1);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT, 0600), 2);
    setting.before_exec();
    ::execv(path.c_str(), argv.data());
    ::_exit(127);
  }
  setting.while_running(child);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), text_of(out),
          text_of(err)};
}

inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace corank::test
