#include "run/line_search.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "format/framing.hpp"

namespace corank {
namespace {

constexpr std::uint64_t block_bytes = 4096;
// Fraction of the total that is precise enough: parts of an output need not be equal to the byte.
constexpr std::uint64_t enough_precision = 1024;

// Returns the byte that ends lines.
std::byte end_of_line(const RecordFormat& format) {
  assert(format.end_of_record().size() == 1);
  return static_cast<std::byte>(format.end_of_record().front());
}

// Returns the first line with a sort position that begins in [at, to); nothing if there is none.
// Sets `at` to its start, or to the end of the search.
std::vector<std::byte> ordered_line(const Run& run, const RecordFormat& format, std::uint64_t& at,
                                    std::uint64_t to) {
  while (at < to) {
    std::vector<std::byte> line = line_at(run, format, at);
    if (format.has_order(line)) return line;
    at += line.size();
  }
  return {};
}

// Returns a line with a sort position near `middle`, between the lines at `low` and `high`; nothing
// if there is none.
std::vector<std::byte> line_between(const Run& run, const RecordFormat& format, std::uint64_t low,
                                    std::uint64_t middle, std::uint64_t high) {
  assert(low <= middle && middle < high);
  std::uint64_t at = next_line(run, format, middle);
  std::vector<std::byte> line = ordered_line(run, format, at, high);
  for (at = high; line.empty() && at > low;) {
    at = line_before(run, format, at);
    std::uint64_t begin = at;
    line = ordered_line(run, format, begin, at + 1);
  }
  return line;
}

}  // namespace

std::uint64_t next_line(const Run& run, const RecordFormat& format, std::uint64_t at) {
  assert(run.record_bytes() == 1 && !run.is_stream());
  std::vector<std::byte> block;
  for (std::uint64_t size = block_bytes; at < run.records(); at += block.size(), size *= 2) {
    block.resize(std::min(size, run.records() - at));
    run.read(at, block.size(), block);
    const auto found = std::ranges::find(block, end_of_line(format));
    if (found != block.end()) return at + static_cast<std::uint64_t>(found - block.begin()) + 1;
  }
  return run.records();
}

std::vector<std::byte> line_at(const Run& run, const RecordFormat& format, std::uint64_t at) {
  assert(at < run.records());
  std::vector<std::byte> line(next_line(run, format, at) - at);
  run.read(at, line.size(), line);
  const auto terminator = end_of_line(format);
  if (line.back() != terminator) line.push_back(terminator);
  return line;
}

std::uint64_t line_before(const Run& run, const RecordFormat& format, std::uint64_t at) {
  assert(at != 0 && at <= run.records() + 1);
  std::vector<std::byte> block;
  std::uint64_t end = at - 1;  // excludes the terminator of the line before
  for (std::uint64_t size = block_bytes; end != 0; end -= block.size(), size *= 2) {
    block.resize(std::min(size, end));
    run.read(end - block.size(), block.size(), block);
    const auto found = std::find(block.rbegin(), block.rend(), end_of_line(format));
    if (found != block.rend()) return end - static_cast<std::uint64_t>(found - block.rbegin());
  }
  return 0;
}

std::uint64_t find_line(const Run& run, const RecordFormat& format, const RowBound& key,
                        Bound bound, std::uint64_t from, std::uint64_t to) {
  assert(from <= to && to <= run.records());
  // Invariant: all lines before `from` are before the bound; none that begins at or after `to` is.
  while (from < to) {
    const std::uint64_t middle = from + (to - from) / 2;
    std::uint64_t begin = middle == from ? from : next_line(run, format, middle - 1);
    const std::vector<std::byte> line = ordered_line(run, format, begin, to);
    if (line.empty())
      to = middle;
    else if (key.compare_record(line) < (bound == Bound::lower ? 0 : 1))
      from = std::min(begin + line.size(), run.records());
    else
      to = begin;
  }
  return from;
}

std::vector<std::uint64_t> cut_lines(std::uint64_t bytes, std::span<const Run> runs,
                                     const RecordFormat& format) {
  std::vector<std::uint64_t> low(runs.size()), high;
  for (const Run& run : runs) high.push_back(run.records());
  const auto sum = [](const std::vector<std::uint64_t>& positions) {
    return std::accumulate(positions.begin(), positions.end(), std::uint64_t{0});
  };
  std::uint64_t low_sum = 0, high_sum = sum(high);
  const std::uint64_t enough = high_sum / enough_precision;
  assert(bytes <= high_sum);
  while (bytes - low_sum > enough && high_sum - bytes > enough) {
    // The middle line of the run with the widest undecided range narrows all runs.
    std::size_t widest = 0;
    for (std::size_t run = 1; run < runs.size(); ++run)
      if (high[run] - low[run] > high[widest] - low[widest]) widest = run;
    const std::uint64_t width = high[widest] - low[widest];
    const std::vector<std::byte> key =
        line_between(runs[widest], format, low[widest], low[widest] + width / 2, high[widest]);
    if (key.empty()) {
      low[widest] = high[widest];
      low_sum += width;
      if (low_sum >= bytes) return low;
      continue;
    }
    const RowBound by = format.key_of(key);
    const auto find = [&](Bound bound) {
      std::vector<std::uint64_t> positions;
      for (std::size_t run = 0; run < runs.size(); ++run)
        positions.push_back(find_line(runs[run], format, by, bound, low[run], high[run]));
      return positions;
    };
    std::vector<std::uint64_t> positions = find(Bound::lower);
    if (sum(positions) == low_sum) positions = find(Bound::upper);
    const std::uint64_t position_sum = sum(positions);
    if (position_sum == high_sum) break;  // all lines in between are equal
    if (position_sum <= bytes) {
      low = std::move(positions);
      low_sum = position_sum;
    } else {
      high = std::move(positions);
      high_sum = position_sum;
    }
  }
  assert(low_sum <= bytes && bytes <= high_sum);
  return bytes - low_sum < high_sum - bytes ? low : high;
}

}  // namespace corank
