#include "jobs/diagnostics.hpp"

#include <fmt/format.h>

#include <vector>

#include "corank/error.hpp"
#include "format/framing.hpp"
#include "jobs/scan.hpp"
#include "ops/filter.hpp"
#include "ops/text_operators.hpp"
#include "run/key_search.hpp"
#include "util/setting_format.hpp"

namespace corank {

void throw_temporary_corrupted(const Run& run) {
  throw Corrupted(run.path().string() +
                  ": a temporary file here did not hold what was written to it");
}

void throw_first_out_of_order(const Run& run, std::uint64_t found, const KeyEncoding& encoding) {
  if (run.is_temporary()) throw_temporary_corrupted(run);
  const TextLayout* const text = encoding.layout().text;
  if (run.input().is_stream)
    throw OutOfOrder(run.path(), found, 0,
                     text ? place_of(*text, run.header_lines(), found, std::nullopt)
                          : fmt::format("record {}", found),
                     text ? advice_on_disorder(*text, found) : "");
  scan(run.whole(), encoding, false);
  throw Corrupted(fmt::format("{}: record {} was out of order in memory, but is not in the run",
                              run.path().string(), found));
}

void throw_equal(std::span<const Run> runs, const Schema& schema, const KeyEncoding& encoding,
                 const Condition& where, const std::byte* record, const std::string& key_text) {
  const KeyLayout layout = encoding.layout();
  const Filter filter(schema, where);
  std::vector<Filter::Mask> scratch;
  std::vector<std::byte> other(schema.record_bytes);
  std::string places;
  unsigned found = 0;
  for (const Run& run : runs) {
    const std::uint64_t end = upper_bound(run, layout, record);
    for (std::uint64_t i = lower_bound(run, layout, record); i < end && found < 2; ++i) {
      run.read(i, 1, other);
      if (!where.steps.empty() && filter.test(other.data(), 1, scratch)[0] == 0) continue;
      const std::uint64_t number = run.first() + i;
      places +=
          fmt::format("{}{}: record {} (byte {})", found++ == 0 ? "" : " and ", run.path().string(),
                      number, run.header_bytes() + number * schema.record_bytes);
    }
  }
  throw Error(ErrorCode::duplicate_key,
              fmt::format("{} have the same key, {}; choose another {} to merge them", places,
                          key_text, Setting::on_equal));
}

void throw_equal_text(std::span<const Run> runs, const KeyEncoding& encoding,
                      const TextFilter* filter, std::span<const std::byte> record) {
  std::string places;
  unsigned found = 0;
  for (const Run& run : runs) {
    if (run.input().is_stream) continue;  // a pipe cannot be read again
    for (const FoundRecord& equal : find_equals(run, encoding, filter, record, 2 - found))
      places += fmt::format(
          "{}{}: {}", found++ == 0 ? "" : " and ", run.path().string(),
          place_of(*encoding.layout().text, run.header_lines(), equal.record, equal.byte));
  }
  throw Error(
      ErrorCode::duplicate_key,
      fmt::format("{}{}have the same key, {}; choose another {} to merge them",
                  places.empty() ? "two records" : places, found == 1 ? " and one of a pipe " : " ",
                  text_key_text(*encoding.layout().text, record), Setting::on_equal));
}

}  // namespace corank
