#include "run/run_search.hpp"

#include <algorithm>
#include <optional>

#include "run/key_search.hpp"
#include "run/line_search.hpp"
#include "run/slice.hpp"

namespace corank {

std::uint64_t find(const Run& run, const RecordFormat& format, const RowBound& bound,
                   std::uint64_t end) {
  if (format.traits().has_fixed_size)
    return lower_bound(run.subspan(0, end), bound.layout(), bound.record().data());
  return find_line(run, format, bound, Bound::lower, 0, end);
}

void keep_range(std::span<Run> runs, const RecordFormat& format, const Query& query) {
  const std::optional<RowBound> from = format.bound(query, Setting::from);
  const std::optional<RowBound> to = format.bound(query, Setting::to);
  for (Run& run : runs) {
    const std::uint64_t first = from ? find(run, format, *from, run.records()) : 0;
    const std::uint64_t end = to ? find(run, format, *to, run.records()) : run.records();
    run = run.subspan(first, std::max(first, end) - first);
  }
}

std::vector<std::uint64_t> cut_at(std::uint64_t rank, std::span<const Run> runs,
                                  const RecordFormat& format) {
  if (format.traits().has_fixed_size) return cut_runs(rank, runs, format.keys()).position;
  return cut_lines(rank, runs, format);
}

std::uint64_t begin_of_record(const Run& run, const RecordFormat& format, std::uint64_t position) {
  if (format.traits().has_fixed_size) return position;
  return line_before(run, format, position + 1);
}

std::uint64_t end_of_record(const Run& run, const RecordFormat& format, std::uint64_t position) {
  if (format.traits().has_fixed_size || position == 0) return position;
  return next_line(run, format, position - 1);
}

std::vector<std::byte> record_at(const Run& run, const RecordFormat& format,
                                 std::uint64_t position) {
  if (!format.traits().has_fixed_size) return line_at(run, format, position);
  std::vector<std::byte> record(format.record_bytes());
  run.read(position, 1, record);
  return record;
}

}  // namespace corank
