#include "jobs/run_cuts.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "jobs/diagnostics.hpp"
#include "run/key_search.hpp"
#include "run/run_search.hpp"

namespace corank {

std::uint64_t records_of(std::span<const Run> runs) {
  std::uint64_t records = 0;
  for (const Run& run : runs) records += run.records();
  return records;
}

RunCuts::Positions RunCuts::at(std::uint64_t rank, std::span<const Run> runs) const {
  assert(rank <= records_of(runs));
  if (rank != records_of(runs) && !copies_) return cut_at(rank, runs, format_);
  Positions position;
  for (const Run& run : runs) {
    position.push_back(std::min(rank, run.records()));
    rank -= position.back();
    if (position.back() != run.records())
      position.back() = end_of_record(run, format_, position.back());
  }
  return position;
}

RunCuts::Positions RunCuts::checked(std::uint64_t rank, std::span<const Run> runs,
                                    const Positions& from) const {
  assert(from.size() == runs.size());
  Positions to = at(rank, runs);
  // A cut lies before `from` only if that run is not sorted.
  for (std::size_t run = 0; run < runs.size(); ++run)
    if (to[run] < from[run] ||
        (to[run] > 0 && to[run] < runs[run].records() && !copies_ &&
         format_.traits().has_fixed_size && !in_order_at(runs[run], to[run])))
      throw_first_out_of_order(runs[run], RunOutOfOrder(static_cast<std::uint32_t>(run), to[run]),
                               format_);
  return to;
}

RunCuts::Positions RunCuts::behind_group(Positions cut, std::span<const Run> runs) const {
  assert(cut.size() == runs.size());
  const std::vector<std::byte> last = last_before(cut, runs);
  for (std::size_t run = 0; run < runs.size() && !last.empty(); ++run)
    cut[run] = std::max(cut[run], upper_bound(runs[run], layout(), last.data()));
  return cut;
}

std::vector<std::byte> RunCuts::last_before(const Positions& cut, std::span<const Run> runs) const {
  std::vector<std::byte> last, record;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    if (cut[run] == 0) continue;
    assert(cut[run] <= runs[run].records());
    record.resize(runs[run].record_bytes());
    runs[run].read(cut[run] - 1, 1, record);
    if (last.empty() || record_less(layout(), last.data(), record.data())) last = record;
  }
  return last;
}

std::uint64_t RunCuts::rank_behind(const std::vector<std::byte>& last,
                                   std::span<const Run> runs) const {
  std::uint64_t rank = 0;
  for (const Run& run : runs)
    if (!last.empty()) rank += upper_bound(run, layout(), last.data());
  return rank;
}

void RunCuts::keep_first(std::uint64_t count, std::span<Run> runs) const {
  if (!copies_)
    for (Run& run : runs) run = run.subspan(0, std::min(count, run.records()));
  if (count >= records_of(runs)) return;
  const Positions end = at(count, runs);
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i] = runs[i].subspan(0, end[i]);
}

std::vector<std::vector<Run>> RunCuts::runs_of(std::span<const Run> runs,
                                               std::span<const Partition> partitions) const {
  std::vector<std::vector<Run>> partitioned;
  std::uint64_t rank = 0;
  [[maybe_unused]] std::uint64_t end = 0;  // of the partition before
  Positions to(runs.size());
  const auto advance = [&](std::uint64_t next) {
    if (next <= rank) return;
    to = checked(next, runs, to);
    rank = std::reduce(to.begin(), to.end());
  };
  for (const Partition& partition : partitions) {
    assert(end <= partition.begin && partition.begin <= partition.end);
    end = partition.end;
    advance(partition.begin);
    const Positions from = to;
    advance(partition.end);
    auto& parts = partitioned.emplace_back();
    for (std::size_t run = 0; run < runs.size(); ++run)
      parts.push_back(runs[run].subspan(from[run], to[run] - from[run]));
  }
  return partitioned;
}

bool RunCuts::in_order_at(const Run& run, std::uint64_t record) const {
  assert(0 < record && record < run.records());
  std::vector<std::byte> pair(2 * run.record_bytes());
  run.read(record - 1, 2, pair);
  return !record_less(layout(), pair.data() + run.record_bytes(), pair.data());
}

}  // namespace corank
