#include "run/header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "corank/error.hpp"
#include "format/framing.hpp"

namespace corank {
namespace {

// Max size of a header; a longer first line means that the file holds something else.
constexpr std::uint64_t longest_header_bytes = std::uint64_t{1} << 20;

std::vector<std::byte> first_bytes(Run& run, std::uint64_t bytes, std::stop_token stop) {
  if (run.is_stream()) return run.begin(bytes, std::move(stop));
  std::vector<std::byte> begin(std::min(bytes, run.bytes()));
  run.read(0, begin.size(), begin);
  return begin;
}

// Returns the header of a run, without terminator if the run ends there; empty for an empty run.
std::string header_of(Run& run, const TextLayout& layout, const std::stop_token& stop) {
  for (std::uint64_t bytes = 4096; bytes <= longest_header_bytes; bytes *= 4) {
    const std::vector<std::byte> begin = first_bytes(run, bytes, stop);
    const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
    const std::size_t mark_bytes = byte_order_mark_bytes(layout.kind, text);
    const std::uint64_t found = first_record_bytes(layout, std::span(begin).subspan(mark_bytes));
    if (found == 0 && begin.size() == bytes) continue;
    return std::string(text.substr(0, found != 0 ? mark_bytes + found : text.size()));
  }
  throw Error(fmt::format("{}: no header ends in its first {} bytes; check --header",
                          run.path().string(), longest_header_bytes));
}

}  // namespace

std::string take_header(std::vector<Run>& runs, const TextFormat& format, std::stop_token stop) {
  TextFormat nameless = format;
  nameless.keys.clear();
  const TextEncoding encoding(nameless);
  std::string header;
  const Run* first = nullptr;
  for (Run& run : runs) {
    std::string found = header_of(run, encoding.layout(), stop);
    if (found.empty()) continue;
    const std::uint64_t bytes = found.size();
    if (!found.ends_with(format.terminator)) found += format.terminator;
    if (!first) {
      first = &run;
      header = std::move(found);
    } else if (found != header) {
      throw Error(
          fmt::format("{}: its header differs from that of {}; all runs must have the same columns",
                      run.path().string(), first->path().string()));
    }
    run = run.behind(bytes);
  }
  return header;
}

}  // namespace corank
