#include "header.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "corank/error.hpp"
#include "framing.hpp"

namespace corank {
namespace {

// What a header has more of than this is no header, but a file that holds something else.
constexpr std::uint64_t longest_header_bytes = std::uint64_t{1} << 20;

// Returns how many bytes there were.
std::uint64_t read_begin(const Run& run, std::span<std::byte> into) {
  if (run.is_stream()) return run.source({})->read(into);
  const std::uint64_t bytes = std::min<std::uint64_t>(into.size(), run.bytes());
  run.read(0, bytes, into.first(bytes));
  return bytes;
}

// Without a terminator if the run ends with it.
std::string header_of(const Run& run, const TextLayout& layout) {
  if (run.input().is_stream)
    throw Error(
        fmt::format("{}: is a pipe, from which no header is taken; write it to a file first",
                    run.path().string()));
  std::string begin;
  for (std::uint64_t bytes = 4096; bytes <= longest_header_bytes; bytes *= 4) {
    begin.resize(bytes);
    begin.resize(read_begin(run, std::as_writable_bytes(std::span(begin))));
    const std::uint64_t found = first_record_bytes(layout, std::as_bytes(std::span(begin)));
    if (found != 0) return begin.substr(0, found);
    if (begin.size() < bytes) return begin;
  }
  throw Error(fmt::format("{}: no header ends in its first {} bytes; check --header",
                          run.path().string(), longest_header_bytes));
}

}  // namespace

std::string take_header(std::vector<Run>& runs, const TextFormat& format) {
  TextFormat nameless = format;
  nameless.keys.clear();
  const TextEncoding encoding(nameless);
  std::string header;
  const Run* first = nullptr;
  for (Run& run : runs) {
    if (run.bytes() == 0 && !run.is_stream()) continue;
    std::string found = header_of(run, encoding.layout());
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
