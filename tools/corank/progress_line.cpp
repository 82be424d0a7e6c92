#include "progress_line.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "standard_streams.hpp"

namespace corank {
namespace {

// Shows as many of the parts, the most important first, as the terminal has columns for. A line
// that wraps could not be overwritten.
void show_what_fits(const std::vector<std::string>& parts) {
  constexpr std::size_t default_columns = 80;
  struct winsize window {};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col != 0;
  const std::size_t columns = is_known ? window.ws_col : default_columns;
  std::string line;
  for (const std::string& part : parts) {
    if (line.size() + part.size() >= columns) break;
    line += part;
  }
  say("\r" + line + "\x1b[K");
}

}  // namespace

void ProgressLine::show(const Progress& progress) {
  if (logs_as_json()) {
    const nlohmann::ordered_json line{{"level", "progress"},
                                      {"bytes_done", progress.bytes_done},
                                      {"bytes_total", progress.bytes_total}};
    return say(line.dump() + '\n');
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const auto done = static_cast<double>(progress.bytes_done);
  const auto total = static_cast<double>(progress.bytes_total);
  const double rate = done / seconds;
  shown_ = true;
  const std::string speed = fmt::format("  {:.0f} MB/s", rate * 1e-6);
  if (progress.bytes_total == 0) {
    show_what_fits({fmt::format("{:.0f} MB", done * 1e-6), speed});
    return;
  }
  const auto left = static_cast<unsigned>((total - done) / rate + 0.5);
  show_what_fits({fmt::format("{:5.1f}%", 100 * done / total),
                  fmt::format("  {}:{:02} left", left / 60, left % 60), speed,
                  fmt::format("  {:.0f} of {:.0f} MB", done * 1e-6, total * 1e-6)});
}

ProgressLine::~ProgressLine() {
  if (shown_) say("\r\x1b[K");
}

}  // namespace corank
