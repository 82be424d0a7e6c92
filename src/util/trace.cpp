#include "util/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "corank/error.hpp"

namespace corank {
namespace {

// Returns the place of a stage in the order in which records pass the stages.
std::size_t place_of(std::string_view stage) {
  constexpr std::string_view stages[] = {"read",     "cut",   "sort",  "merge",
                                         "compress", "write", "verify"};
  const auto* const found = std::ranges::find(stages, stage);
  assert(found != std::end(stages));
  return static_cast<std::size_t>(found - stages);
}

}  // namespace

void Trace::add(const TraceRow& row, std::uint64_t number, TraceClock::time_point begin,
                TraceClock::time_point end) {
  const std::lock_guard lock(mutex_);
  events_.push_back({row, number, begin, end});
}

void Trace::write(const std::filesystem::path& file) const {
  const auto microseconds = [](TraceClock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  };
  // The trace's processes are partitions, and its threads are tracks, in the order of the stages.
  const auto key = [](const TraceRow& row) {
    return std::tuple(row.partition, place_of(row.stage), row.number);
  };
  std::map<decltype(key({})), std::size_t> ids;
  for (const Event& event : events_) ids.try_emplace(key(event.row));
  std::string text = "[\n";
  const auto out = std::back_inserter(text);
  std::size_t next = 0;
  for (auto& [row, id] : ids) id = ++next;
  for (const Event& event : events_)
    fmt::format_to(out,
                   R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                   R"("args":{{"number":{}}}}},)"
                   "\n",
                   event.row.stage, event.row.partition, ids.at(key(event.row)),
                   microseconds(event.begin - start_), microseconds(event.end - event.begin),
                   event.number);
  fmt::format_to(out, R"({{"name":"process_name","ph":"M","pid":0,"args":{{"name":"corank"}}}})"
                      "\n]\n");
  std::ofstream opened(file);
  if (!(opened << text).flush())
    throw Error(file.string() + ": cannot write the trace; the merge itself is done");
}

}  // namespace corank
