#include "io/sidecar.hpp"

#include <fmt/format.h>

#include <cassert>
#include <charconv>
#include <fstream>

#include "util/digest.hpp"

namespace corank {
namespace {

constexpr std::string_view title = "corank-resume-1";

}  // namespace

std::string sidecar_text(const Sidecar& sidecar) {
  std::string text = fmt::format("{} {:016x} {:016x} {:016x} {:016x}", title, sidecar.content,
                                 sidecar.inode, sidecar.boot, sidecar.durable_bytes);
  text += fmt::format(" {:016x}\n", digest(text));
  assert(text.size() <= 256);  // readers read no more
  return text;
}

std::optional<Sidecar> parse_sidecar(std::string_view text) {
  if (!text.starts_with(title)) return std::nullopt;
  const char* at = text.data() + title.size();
  const char* const end = text.data() + text.size();
  Sidecar sidecar;
  for (std::uint64_t* number :
       {&sidecar.content, &sidecar.inode, &sidecar.boot, &sidecar.durable_bytes}) {
    if (at == end) return std::nullopt;
    const auto [after, error] = std::from_chars(at + 1, end, *number, 16);
    if (error != std::errc()) return std::nullopt;
    at = after;
  }
  if (text != sidecar_text(sidecar)) return std::nullopt;
  return sidecar;
}

std::uint64_t this_boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(file, id) && !id.empty() ? digest(id) : 0;
}

}  // namespace corank
