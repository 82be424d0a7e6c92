#include "jobs/diagnostics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "format/rows.hpp"
#include "jobs/scan.hpp"
#include "run/block_reader.hpp"
#include "run/framing_producer.hpp"
#include "run/record_search.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Records before and after the disorder that another order must explain, too.
constexpr std::uint64_t max_examined = 1000;

using Rows = std::vector<const std::byte*>;

Rows rows_around(const RecordFormat& format, const ScannedBlock& block, std::uint64_t index) {
  Rows rows;
  const std::uint64_t first = index - std::min(index, max_examined);
  if (first == 0 && block.before) rows.push_back(block.before);
  const std::uint64_t end = std::min(block.rows.count, index + max_examined);
  for (std::uint64_t i = first; i < end; ++i)
    rows.push_back(block.rows.data + i * format.row_bytes());
  return rows;
}

bool are_sorted(const KeyLayout& layout, std::span<const std::byte* const> rows) {
  return std::ranges::is_sorted(
      rows, [&](const std::byte* a, const std::byte* b) { return record_less(layout, a, b); });
}

bool are_reversed(const KeyLayout& layout, std::span<const std::byte* const> rows) {
  return rows.size() > 2 &&
         std::ranges::is_sorted(rows, [&](const std::byte* a, const std::byte* b) {
           return record_less(layout, b, a);
         });
}

// Returns the likely cause of the disorder, as a continuation of the error; may be empty. `row`
// sorts before `before`; both are among `rows`.
std::string cause_of(const RecordFormat& format, const Rows& rows, const std::byte* before,
                     const std::byte* row, bool is_second) {
  const KeyLayout layout = format.keys().layout();
  if (std::string order = format.other_order(rows, before, row); !order.empty()) return order;
  const auto rest = std::span(rows).subspan(1);
  const bool rest_is_sorted = are_sorted(layout, rest);
  const std::string order_of_rest =
      !is_second || rest_is_sorted ? std::string() : format.other_order(rest, before, row);
  if (order_of_rest.empty() && are_reversed(layout, rows))
    return fmt::format("; the records are in reverse order: swap asc and desc in {}",
                       Setting::keys);
  const bool may_lack_header =
      format.traits().has_text_columns && !(format.header() && format.header()->has_names());
  if (!may_lack_header || !is_second || (order_of_rest.empty() && !rest_is_sorted)) return {};
  return fmt::format("; if the file begins with a header, say {}{}", Setting::header,
                     order_of_rest);
}

// Returns the part of the run, which is sorted, that holds all its records with the key of
// `record`: all of it unless they can be found by search.
Run range_of(const Run& run, const RecordFormat& format, std::span<const std::byte> record) {
  if (run.record_bytes() != format.record_bytes()) return run;
  const RowBound key = format.key_of(record);
  BlockReader reader(run);
  const std::uint64_t end = run.records();
  const std::uint64_t first = find_record(reader, format, key, Bound::lower, 0, end);
  return run.subspan(first, find_record(reader, format, key, Bound::upper, first, end) - first);
}

// Returns the places of the first records, at most `max_places`, that have the key of `row` and
// pass the filter.
std::vector<std::string> places_of_equals(const Run& run, const RecordFormat& format,
                                          const std::optional<RowFilter>& filter,
                                          const std::byte* row, std::size_t max_places) {
  const KeyLayout layout = format.keys().layout();
  std::vector<RowFilter::Mask> scratch;
  std::vector<std::string> places;
  scan_blocks(run, format, [&](const ScannedBlock& block) {
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

void throw_disorder(const Run& run, const RecordFormat& format, const ScannedBlock& block,
                    std::uint64_t index) {
  const std::byte* const row = block.rows.data + index * format.row_bytes();
  const std::byte* const before = index == 0 ? block.before : row - format.row_bytes();
  const Rows rows = rows_around(format, block, index);
  const std::uint64_t record = block.first + index, byte = offset_of(format, block, index);
  throw OutOfOrder(run.shown_path(), record, byte, place_text(place_of(run, format, record, byte)),
                   fmt::format(": {} after {}{}", format.key_text(row), format.key_text(before),
                               cause_of(format, rows, before, row, record == 1)));
}

void throw_temporary_corrupted(const Run& run) {
  throw Corrupted(run.path().string() +
                  ": a temporary file here did not hold what was written to it");
}

void throw_first_out_of_order(const Run& run, const RunOutOfOrder& found,
                              const RecordFormat& format) {
  if (run.is_temporary()) throw_temporary_corrupted(run);
  assert(found.rows || !run.is_pipe());
  if (run.is_pipe())
    throw_disorder(
        run, format,
        {found.rows->before.row(), {found.rows->record.row(), 1}, found.record, found.rows->byte},
        0);
  scan(run.whole(), format, false);
  throw Corrupted(fmt::format("{}: record {} was out of order in memory, but is not in the run",
                              run.path().string(), found.record));
}

void throw_equal(std::span<const Run> runs, bool are_sorted, const RecordFormat& format,
                 const Query& query, std::span<const std::byte> record) {
  RowCopy copy;
  copy.assign_record(format.keys().layout(), record);
  const std::byte* const row = copy.row();
  const std::optional<RowFilter> filter = format.filter(query);
  std::vector<std::string> places;
  for (const Run& run : runs) {
    if (places.size() == 2) break;
    if (run.is_pipe()) continue;  // a pipe cannot be read again
    const Run searched = are_sorted ? range_of(run, format, record) : run;
    for (std::string& place : places_of_equals(searched, format, filter, row, 2 - places.size()))
      places.push_back(std::move(place));
  }
  throw_error(
      ErrorCode::duplicate_key, "{}{}have the same key, {}; choose another {} to merge them",
      places.empty() ? "two records" : fmt::format("{}", fmt::join(places, " and ")),
      places.size() == 1 ? " and one of a pipe " : " ", format.key_text(row), Setting::on_equal);
}

}  // namespace corank
