#include "statistics.hpp"

#include <sys/resource.h>

#include <utility>

#include "stopwatch.hpp"

namespace corank {

Stats::Busy busy_of(const PassTotals& totals) {
  return {seconds(totals.read),  seconds(totals.cut),      seconds(totals.merge),
          seconds(totals.write), seconds(totals.compress), seconds(totals.verify)};
}

Stats::Waits waits_of(const PassTotals& totals) {
  return {seconds(totals.read_for_cut),      seconds(totals.cut_for_read),
          seconds(totals.cut_for_merge),     seconds(totals.merge_for_cut),
          seconds(totals.merge_for_write),   seconds(totals.write_for_merge),
          seconds(totals.write_for_compress)};
}

Stats::Bound find_bound(const Stats& stats, double wall_seconds, std::string writing) {
  if (wall_seconds == 0) return {};
  const auto bound = [&](std::string what, double at_work) {
    const auto bytes = static_cast<double>(stats.bytes_written);
    const double slices = wall_seconds / stats.seconds;
    return Stats::Bound{std::move(what), bytes / stats.seconds, bytes * slices / at_work};
  };
  if (stats.waits.write_for_compress > wall_seconds / 2)
    return bound("compressing", stats.waits.write_for_compress);
  if (stats.busy.write > wall_seconds / 2) return bound(std::move(writing), stats.busy.write);
  if (stats.waits.merge_for_cut < wall_seconds / 2)
    return bound("merging", wall_seconds - stats.waits.merge_for_cut);
  if (stats.waits.cut_for_read < stats.busy.cut) return bound("cutting", stats.busy.cut);
  return bound("reading", stats.waits.cut_for_read);
}

std::uint64_t peak_memory_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace corank
