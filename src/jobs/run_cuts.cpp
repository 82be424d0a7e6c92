#include "jobs/run_cuts.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "jobs/diagnostics.hpp"
#include "run/block_reader.hpp"
#include "run/record_search.hpp"
#include "run/run_search.hpp"
#include "run/work_unit.hpp"
#include "util/math.hpp"

namespace corank {

std::uint64_t records_of(std::span<const Run> runs) {
  std::uint64_t records = 0;
  for (const Run& run : runs) records += run.records();
  return records;
}

RunCuts::Positions RunCuts::at_copies(std::uint64_t rank, std::span<const Run> runs) const {
  Positions position;
  for (const Run& run : runs) {
    position.push_back(std::min(rank, run.records()));
    rank -= position.back();
    if (position.back() == 0 || position.back() == run.records()) continue;
    BlockReader reader(run);
    position.back() = next_record(reader, format_, position.back() - 1);
  }
  return position;
}

std::vector<RunCuts::Positions> RunCuts::at_all(std::span<const std::uint64_t> ranks,
                                                std::span<const Run> runs,
                                                ProbeThreads& threads) const {
  const std::uint64_t end = records_of(runs);
  assert(std::ranges::is_sorted(ranks) && (ranks.empty() || ranks.back() <= end));
  // Runs that cannot be searched have no other cuts than their ends.
  if (copies_ || std::ranges::all_of(ranks, [&](auto rank) { return rank == 0 || rank == end; })) {
    std::vector<Positions> cuts;
    for (const std::uint64_t rank : ranks) cuts.push_back(at_copies(rank, runs));
    return cuts;
  }
  try {
    return cuts_at(ranks, runs, format_, threads);
  } catch (const RunOutOfOrder& wrong) {
    throw_first_out_of_order(runs[wrong.run], wrong, format_);
  }
}

RunCuts::Positions RunCuts::at(std::uint64_t rank, std::span<const Run> runs,
                               ProbeThreads& threads) const {
  return at_all({&rank, 1}, runs, threads).front();
}

void RunCuts::check(std::span<const Positions> cuts, std::span<const Run> runs,
                    ProbeThreads& threads) const {
  if (copies_ || !format_.traits().has_fixed_size) return;
  std::vector<RunOutOfOrder> places;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    std::uint64_t before = 0;
    for (const Positions& cut : cuts) {
      assert(before <= cut[run]);
      if (cut[run] != before && cut[run] != runs[run].records())
        places.emplace_back(static_cast<std::uint32_t>(run), cut[run]);
      before = cut[run];
    }
  }
  std::vector<std::uint8_t> is_in_order(places.size());
  threads.for_each(places.size(), [&](std::size_t i) -> std::uint64_t {
    is_in_order[i] = in_order_at(runs[places[i].run], places[i].record);
    return 1;
  });
  const auto wrong = std::ranges::find(is_in_order, 0);
  if (wrong == is_in_order.end()) return;
  const RunOutOfOrder& place = places[static_cast<std::size_t>(wrong - is_in_order.begin())];
  throw_first_out_of_order(runs[place.run], place, format_);
}

std::vector<RunCuts::Positions> RunCuts::checked(std::span<const std::uint64_t> ranks,
                                                 std::span<const Run> runs,
                                                 ProbeThreads& threads) const {
  std::vector<Positions> cuts = at_all(ranks, runs, threads);
  check(cuts, runs, threads);
  return cuts;
}

std::vector<Partition> RunCuts::partitions(std::size_t count, std::span<const Run> runs,
                                           bool keeps_keys) const {
  const std::uint64_t records = records_of(runs);
  std::vector<std::uint64_t> ends;
  for (std::size_t i = 1; i < count; ++i) ends.push_back(part_of(records, i, count));
  if (keeps_keys && !copies_ && format_.traits().has_fixed_size) {
    ProbeThreads threads;
    const std::vector<Positions> cuts = checked(ends, runs, threads);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      std::vector<Run> rests;
      for (std::size_t run = 0; run < runs.size(); ++run)
        rests.push_back(runs[run].subspan(cuts[i][run], runs[run].records() - cuts[i][run]));
      ends[i] += rank_after(last_before(cuts[i], runs, threads), rests, threads);
    }
  }
  ends.push_back(records);
  std::vector<Partition> partitions;
  std::uint64_t rank = 0;
  for (const std::uint64_t end : ends) partitions.push_back({std::exchange(rank, end), end});
  return partitions;
}

std::vector<RunCuts::Edges> RunCuts::edges(std::span<const Partition> partitions,
                                           std::span<const Run> runs) const {
  ProbeThreads threads;
  const auto last_of = [&](std::uint64_t rank) {
    return last_before(at(rank, runs, threads), runs, threads);
  };
  std::vector<Edges> edges;
  for (const Partition& partition : partitions)
    edges.push_back({last_of(partition.begin), last_of(partition.end)});
  return edges;
}

std::vector<Partition> RunCuts::between(std::span<const Edges> edges,
                                        std::span<const Run> runs) const {
  ProbeThreads threads;
  std::vector<Partition> partitions;
  for (const Edges& edge : edges)
    partitions.push_back(
        {rank_after(edge.before, runs, threads), rank_after(edge.last, runs, threads)});
  return partitions;
}

std::vector<std::byte> RunCuts::last_before(const Positions& cut, std::span<const Run> runs,
                                            ProbeThreads& threads) const {
  std::vector<std::vector<std::byte>> records(runs.size());
  threads.for_each(runs.size(), [&](std::size_t run) -> std::uint64_t {
    if (cut[run] == 0) return 0;
    assert(cut[run] <= runs[run].records());
    records[run].resize(runs[run].record_bytes());
    runs[run].read(cut[run] - 1, 1, records[run]);
    return 1;
  });
  std::vector<std::byte> last;
  for (std::vector<std::byte>& record : records)
    if (!record.empty() && (last.empty() || record_less(layout(), last.data(), record.data())))
      last = std::move(record);
  return last;
}

std::uint64_t RunCuts::rank_after(const std::vector<std::byte>& last, std::span<const Run> runs,
                                  ProbeThreads& threads) const {
  if (last.empty()) return 0;
  const RowBound key = format_.key_of(last);
  Positions bounds(runs.size());
  threads.for_each(runs.size(), [&](std::size_t run) {
    return BlockReader(runs[run]).reads_of(
        [&](BlockReader& reader) { bounds[run] = find_near_start(reader, format_, key); });
  });
  return std::reduce(bounds.begin(), bounds.end());
}

void RunCuts::keep_first(std::uint64_t count, std::span<Run> runs) const {
  if (!copies_)
    for (Run& run : runs) run = run.subspan(0, std::min(count, run.records()));
  if (count >= records_of(runs)) return;
  ProbeThreads threads;
  const Positions end = at(count, runs, threads);
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i] = runs[i].subspan(0, end[i]);
}

std::vector<std::vector<Run>> RunCuts::runs_of(std::span<const Run> runs,
                                               std::span<const Partition> partitions) const {
  std::vector<std::uint64_t> ranks;
  for (const Partition& partition : partitions) {
    assert(ranks.empty() || ranks.back() <= partition.begin);
    assert(partition.begin <= partition.end);
    ranks.push_back(partition.begin);
    ranks.push_back(partition.end);
  }
  ProbeThreads threads;
  std::vector<Positions> cuts = at_all(ranks, runs, threads);
  // A cut of lines may lie after the next rank: then it is that rank's cut, too.
  Positions none(runs.size());
  std::uint64_t rank = 0;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (ranks[i] <= rank) cuts[i] = i == 0 ? none : cuts[i - 1];
    rank = std::reduce(cuts[i].begin(), cuts[i].end());
  }
  check(cuts, runs, threads);
  std::vector<std::vector<Run>> partitioned;
  for (std::size_t i = 0; i < partitions.size(); ++i) {
    const Positions &from = cuts[2 * i], &to = cuts[2 * i + 1];
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
