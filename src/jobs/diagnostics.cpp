#include "jobs/diagnostics.hpp"

#include <fmt/format.h>

#include <cassert>
#include <optional>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "format/rows.hpp"
#include "jobs/disorder.hpp"
#include "jobs/scan.hpp"
#include "run/block_reader.hpp"
#include "run/framing_producer.hpp"
#include "run/key_search.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Returns the part of the run that holds all its records with the key of `row`: all of it unless
// they can be found by search.
Run range_of(const Run& run, const RecordFormat& format, const std::byte* row) {
  if (run.record_bytes() != format.record_bytes()) return run;
  const KeyLayout layout = format.keys().layout();
  BlockReader reader(run);
  const std::uint64_t first = lower_bound(reader, layout, row);
  return run.subspan(first, upper_bound(reader, layout, row) - first);
}

// Returns the places of the first records, at most `max_places`, that have the key of `row` and
// pass the filter.
std::vector<std::string> places_of_equals(const Run& run, const RecordFormat& format,
                                          const std::optional<RowFilter>& filter,
                                          const std::byte* row, std::size_t max_places) {
  const KeyLayout layout = format.keys().layout();
  std::vector<RowFilter::Mask> scratch;
  std::vector<std::string> places;
  scan_blocks(range_of(run, format, row), format, [&](const ScannedBlock& block) {
    for (std::uint64_t i = 0; i < block.rows.count && places.size() < max_places; ++i) {
      const std::byte* const other = block.rows.data + i * format.row_bytes();
      if (record_less(layout, other, row) || record_less(layout, row, other) ||
          (filter && filter->test({other, 1}, scratch)[0] == 0))
        continue;
      places.push_back(fmt::format(
          "{}: {}", run.path().string(),
          place_text(place_of(run, format, block.first + i, offset_of(format, block, i)))));
    }
  });
  return places;
}

}  // namespace

void throw_temporary_corrupted(const Run& run) {
  throw Corrupted(run.path().string() +
                  ": a temporary file here did not hold what was written to it");
}

void throw_first_out_of_order(const Run& run, const RunOutOfOrder& found,
                              const RecordFormat& format) {
  if (run.is_temporary()) throw_temporary_corrupted(run);
  assert(found.rows || !run.input().is_stream);
  if (run.input().is_stream)
    throw_disorder(
        run, format,
        {found.rows->before.row(), {found.rows->record.row(), 1}, found.record, found.rows->byte},
        0);
  scan(run.whole(), format, false);
  throw Corrupted(fmt::format("{}: record {} was out of order in memory, but is not in the run",
                              run.path().string(), found.record));
}

void throw_equal(std::span<const Run> runs, const RecordFormat& format, const Query& query,
                 std::span<const std::byte> record) {
  RowCopy copy;
  copy.assign_record(format.keys().layout(), record);
  const std::byte* const row = copy.row();
  const std::optional<RowFilter> filter = format.filter(query);
  std::vector<std::string> places;
  for (const Run& run : runs) {
    if (run.input().is_stream) continue;  // a pipe cannot be read again
    for (std::string& place : places_of_equals(run, format, filter, row, 2 - places.size()))
      places.push_back(std::move(place));
  }
  throw_error(
      ErrorCode::duplicate_key, "{}{}have the same key, {}; choose another {} to merge them",
      places.empty() ? "two records" : fmt::format("{}", fmt::join(places, " and ")),
      places.size() == 1 ? " and one of a pipe " : " ", format.key_text(row), Setting::on_equal);
}

}  // namespace corank
