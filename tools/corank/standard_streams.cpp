#include "standard_streams.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "corank/error.hpp"
#include "io/file.hpp"
#include "setting_flags.hpp"

namespace corank {
namespace {

using Fields = nlohmann::ordered_json;

bool as_json = false;

// Returns the message on one line, even if a file name contains control characters.
std::string one_line(std::string_view message) {
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      line += fmt::format("\\x{:02x}", byte);
    else
      line += c;
  }
  return line;
}

// Prints a message; `fields` describe it in JSON.
void tell(const std::string& message, Fields fields) {
  if (!as_json) return say(fmt::format("corank: {}\n", one_line(message)));
  fields["message"] = message;
  say(fields.dump(-1, ' ', false, Fields::error_handler_t::replace) + '\n');
}

Fields flags_of(const std::vector<Setting>& settings) {
  Fields flags = Fields::array();
  for (const Setting setting : settings) flags.push_back(flag_of(setting));
  return flags;
}

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::options:
      return "options";
    case ErrorCode::input:
      return "input";
    case ErrorCode::out_of_order:
      return "out_of_order";
    case ErrorCode::duplicate_key:
      return "duplicate_key";
    case ErrorCode::exists:
      return "exists";
    case ErrorCode::memory:
      return "memory";
    case ErrorCode::system:
      return "system";
    case ErrorCode::device:
      return "device";
    case ErrorCode::corrupted:
      return "corrupted";
    case ErrorCode::interrupted:
      return "interrupted";
  }
  return "";
}

int report(const Error& error, const std::string& message, int code) {
  Fields fields{{"level", "error"},
                {"code", name_of(error.code())},
                {"exit_code", code},
                {"options", flags_of(error.settings())}};
  if (const auto* const disorder = dynamic_cast<const OutOfOrder*>(&error)) {
    fields["file"] = disorder->file().string();
    fields["record"] = disorder->record();
    fields["byte"] = disorder->byte();
  }
  tell(message, std::move(fields));
  return code;
}

}  // namespace

void log_as_json() {
  as_json = true;
}

bool logs_as_json() {
  return as_json;
}

void fill_closed_streams() {
  // Reading and writing fail as on a closed stream, also by /dev/stdin and /dev/stdout.
  for (int stream = 0; stream < 3; ++stream)
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/", O_PATH) != stream) ::_exit(2);
}

void say(const std::string& text) {
  // A reader of standard error that has gone does not end the merge.
  sigset_t broken_pipe, old;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, &old);
  std::fputs(text.c_str(), stderr);
  constexpr timespec at_once{};
  while (::sigtimedwait(&broken_pipe, nullptr, &at_once) == SIGPIPE) continue;
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void say_warning(const Message& warning) {
  tell(warning.worded(flag_of), {{"level", "warning"}, {"options", flags_of(warning.settings())}});
}

void hint_at_standard_input(const std::string& command) {
  if (::isatty(STDIN_FILENO) != 0)
    say(fmt::format(
        "corank: reads standard input, since no files are named; see corank {} --help\n", command));
}

int report(std::string_view message, int code) {
  tell(std::string(message), {{"level", "error"}, {"code", "system"}, {"exit_code", code}});
  return code;
}

int report(const Error& error, int code) {
  return report(error, error.worded(flag_of), code);
}

int report(const Error& error) {
  if (error.code() != ErrorCode::out_of_order) return report(error, 2);
  return report(error, error.worded(flag_of) + " (corank sort sorts files)", 1);
}

void finish_printing() {
  if (std::fflush(stdout) != 0) throw_file_error("standard output", "write");
  if (std::ferror(stdout)) throw Error("standard output: not all of it could be written");
}

}  // namespace corank
