#include "exec/statistics.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "util/stopwatch.hpp"

namespace corank {

void set_totals(const PassTotals& totals, Stats& stats) {
  stats.bytes_read = totals.bytes_read;
  stats.bytes_written = totals.bytes_written;
  stats.records_skipped = totals.records_skipped;
  stats.records_replaced = totals.records_replaced;
  stats.records_deleted = totals.records_deleted;
  stats.units = totals.units;
  stats.checksum = totals.checksum;
  stats.busy = {seconds(totals.read),  seconds(totals.cut),      seconds(totals.merge),
                seconds(totals.write), seconds(totals.compress), seconds(totals.verify)};
  stats.waits = {seconds(totals.read_for_cut),      seconds(totals.cut_for_read),
                 seconds(totals.cut_for_merge),     seconds(totals.merge_for_cut),
                 seconds(totals.merge_for_write),   seconds(totals.write_for_merge),
                 seconds(totals.write_for_compress)};
}

namespace {

// A stage that may be the bound, and for how long it was.
struct Candidate {
  std::string what;
  double seconds;
};

// The time that units in flight held up both the cutter and the writer, shared out among what the
// units did in it. A unit that waits to be written counts as well, but for no stage: where such
// units hold up the cutter, the writer or the compressor is at work for as long.
struct Held {
  double merging;
  double verifying;
};
Held held_up_by_units(const Stats& stats) {
  const double held = std::min(stats.waits.cut_for_merge, stats.waits.write_for_merge);
  const double in_flight = stats.busy.merge + stats.waits.merge_for_write + stats.busy.verify;
  if (in_flight == 0) return {0, 0};
  return {held * stats.busy.merge / in_flight, held * stats.busy.verify / in_flight};
}

}  // namespace

Stats::Bound find_bound(const Stats& stats, double wall_seconds, std::string writing) {
  if (wall_seconds == 0) return {};
  const Held held = held_up_by_units(stats);
  const Candidate candidates[] = {
      {"reading", stats.waits.cut_for_read},
      {"cutting", stats.busy.cut},
      {"merging", held.merging},
      {"verifying", held.verifying},
      {"compressing", stats.waits.write_for_compress},
      {std::move(writing), stats.busy.write},
  };
  const Candidate& bound = *std::ranges::max_element(candidates, {}, &Candidate::seconds);
  // Units are merged concurrently, so the sum of their times exceeds the time at work.
  const double at_work =
      bound.what == "merging" ? wall_seconds - stats.waits.merge_for_cut : bound.seconds;
  if (bound.seconds <= 0 || at_work <= 0) return {};
  const auto bytes = static_cast<double>(stats.bytes_written);
  const double partitions = wall_seconds / stats.seconds;
  return {bound.what, bytes / stats.seconds, bytes * partitions / at_work};
}

// Linux lets a process inherit the peak that getrusage() tells from the program that started it.
std::uint64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  std::uint64_t kibibytes = 0;
  for (std::string name; status >> name;)
    if (name == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace corank
