// Tests of cutting units, within their bounds and those of the chunk buffers.
#include "run/unit_cutter.hpp"

#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/variable_format.hpp"
#include "plan/pass_planner.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "util/buffer_pool.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Returns the lines of `unit`, sorted.
std::vector<std::string> sorted_lines_of(const WorkUnit& unit, const KeyLayout& layout) {
  std::vector<std::string> lines;
  for (const Segment& segment : unit.segments) {
    const auto bytes = bytes_of(layout, *segment.chunk, segment.first, segment.count);
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    while (!text.empty()) {
      const std::size_t size = text.find('\n') + 1;
      lines.emplace_back(text.substr(0, size));
      text.remove_prefix(size);
    }
  }
  std::ranges::sort(lines);
  return lines;
}

// Cuts runs of lines in memory, as a pass with `memory_bytes` does that has all its units in flight
// and ready. Returns how many units there were.
std::size_t cut_all(const std::vector<std::vector<std::string>>& runs, std::uint64_t memory_bytes,
                    std::uint64_t at_once) {
  std::vector<std::string> texts(runs.size()), expected;
  std::vector<Run> inputs;
  std::uint64_t merged_bytes = 0;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (const std::string& line : runs[run]) texts[run] += line;
    expected.insert(expected.end(), runs[run].begin(), runs[run].end());
    merged_bytes += texts[run].size();
    const std::size_t bytes = texts[run].size();
    texts[run].resize(bytes + stream_margin_bytes);
    inputs.emplace_back(std::as_bytes(std::span(texts[run])).first(bytes), "a run", 1);
  }
  std::ranges::sort(expected);

  const auto format = make_variable_format({}, {});
  const auto plan =
      plan_pass_in_memory(runs.size(), memory_bytes, merged_bytes, max_text_unit_bytes);
  REQUIRE(plan);
  BufferPool pool(plan->chunk_records * format->ref_bytes(), plan->chunks, {});
  const Reading reading{.format = *format, .plan = *plan, .order = ReadOrder::forecast};
  ChunkReader reader(make_producers(inputs, true, reading, {}), reading, pool, 2, {}, {});
  UnitCutter cutter(reader, format->keys(), *plan, at_once);
  std::deque<WorkUnit> in_flight;
  std::uint64_t records = 0, bytes = 0;
  while (const auto unit = cutter.next()) {
    CHECK((unit->rank == records && unit->offset == bytes));
    CHECK(unit->records <= plan->unit_records);
    CHECK((unit->bytes <= plan->unit_bytes || unit->records == 1));
    const auto lines = sorted_lines_of(*unit, format->keys().layout());
    REQUIRE(lines.size() == unit->records);
    REQUIRE(records + lines.size() <= expected.size());
    CHECK(std::ranges::equal(lines, std::span(expected).subspan(records, lines.size())));
    records += unit->records;
    bytes += unit->bytes;
    in_flight.push_back(*unit);
    if (in_flight.size() > plan->tokens + max_units_ready) in_flight.pop_front();
  }
  CHECK((records == expected.size() && bytes == merged_bytes));
  return in_flight.empty() ? 0 : in_flight.back().sequence + 1;
}

}  // namespace

TEST_CASE("units of lines in memory stay within their bounds, however many are cut at once",
          "[text]") {
  constexpr std::uint64_t memory_bytes = 2 << 20;
  Random random(61);
  for (const std::size_t num_runs : {1, 3, 12})
    // Lines may grow along the merge, so that a unit has more bytes than the ones before it.
    for (const bool grow : {false, true})
      for (const std::size_t max_line_bytes : {40, 200, 9000}) {
        std::vector<std::vector<std::string>> runs(num_runs);
        for (std::size_t bytes = 0; bytes < 1'200'000;) {
          const auto key = static_cast<char>('a' + below(random, 26));
          const std::size_t longest =
              grow ? max_line_bytes * static_cast<std::size_t>(key - 'a' + 1) / 26 : max_line_bytes;
          std::string line(1 + below(random, std::max<std::size_t>(longest, 1)), key);
          for (std::size_t i = 1; i < line.size() && i < 4; ++i)
            line[i] = static_cast<char>('a' + below(random, 26));
          bytes += line.size() + 1;
          runs[below(random, num_runs)].push_back(line + '\n');
        }
        for (auto& run : runs) std::ranges::sort(run);
        INFO(num_runs << " runs, lines of " << max_line_bytes << (grow ? ", growing" : ""));
        const std::size_t alone = cut_all(runs, memory_bytes, 1);
        const std::size_t at_once = cut_all(runs, memory_bytes, units_cut_at_once);
        CHECK(alone >= 10);
        CHECK(at_once <= alone + alone / 4);
      }
}
