#include "standard_streams.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "corank/error.hpp"
#include "io/file.hpp"
#include "setting_flags.hpp"

namespace corank {

void fill_closed_streams() {
  // Opened in the wrong mode, so that reading and writing fail as on a closed stream.
  const int flags[] = {O_WRONLY, O_RDONLY, O_RDONLY};
  for (int stream = 0; stream < 3; ++stream)
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", flags[stream]) != stream) ::_exit(2);
}

void say(const std::string& text) {
  std::fputs(text.c_str(), stderr);
}

void say_warning(const Message& warning) {
  say(fmt::format("corank: {}\n", warning.worded(flag_of)));
}

void hint_at_standard_input(const std::string& command) {
  if (::isatty(STDIN_FILENO) != 0)
    say(fmt::format(
        "corank: reads standard input, since no files are named; see corank {} --help\n", command));
}

int report(std::string_view message, int code) {
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      line += fmt::format("\\x{:02x}", byte);
    else
      line += c;
  }
  say(fmt::format("corank: {}\n", line));
  return code;
}

int report(const Error& error, int code) {
  return report(error.worded(flag_of), code);
}

int report(const Error& error) {
  if (error.code() != ErrorCode::out_of_order) return report(error, 2);
  return report(error.worded(flag_of) + " (corank sort sorts files)", 1);
}

void finish_printing() {
  if (std::fflush(stdout) != 0) throw_file_error("standard output", "write");
  if (std::ferror(stdout)) throw Error("standard output: not all of it could be written");
}

}  // namespace corank
