// Finds partition boundaries, group ends and limits by search in the run files, which probes all
// runs at the same time.
//
// Borrows the format and reads the runs; const functions are thread-safe. Ranks and positions
// count records, or bytes if records vary in length. Throws Error if a file cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/record_format.hpp"
#include "run/run.hpp"
#include "util/probe_threads.hpp"

namespace corank {

// Contiguous part of the merged records, by rank: [begin, end).
struct Partition {
  std::uint64_t begin;
  std::uint64_t end;
};

// Returns the total length of the runs.
std::uint64_t records_of(std::span<const Run> runs);

class RunCuts {
 public:
  // Cut through all runs: the number of records of each run before it.
  using Positions = std::vector<std::uint64_t>;

  // `format` must outlive the object. With `copies` the runs are concatenated, not merged.
  RunCuts(const RecordFormat& format, bool copies) : format_(format), copies_(copies) {}

  // Last record before a partition, and last record in it; empty if there is none.
  struct Edges {
    std::vector<std::byte> before, last;
  };

  // Returns the co-ranks of ascending ranks; see at(). Throws OutOfOrder if a run is out of order
  // across a cut, since no partition sees the records on both sides.
  std::vector<Positions> checked(std::span<const std::uint64_t> ranks, std::span<const Run> runs,
                                 ProbeThreads& threads) const;

  // Returns `count` partitions with equally many records, except that with `keeps_keys` no key is
  // in two. Throws OutOfOrder as checked() does.
  std::vector<Partition> partitions(std::size_t count, std::span<const Run> runs,
                                    bool keeps_keys) const;

  // Return the edges of partitions, by which these are found again after the runs have lost some of
  // their records.
  std::vector<Edges> edges(std::span<const Partition> partitions, std::span<const Run> runs) const;
  std::vector<Partition> between(std::span<const Edges> edges, std::span<const Run> runs) const;

  // Shortens the runs to the records that are among the first `count` of the merge.
  void keep_first(std::uint64_t count, std::span<Run> runs) const;

  // Returns the parts of the runs that each partition has. Partitions must be in ascending order.
  // Throws OutOfOrder as checked() does.
  std::vector<std::vector<Run>> runs_of(std::span<const Run> runs,
                                        std::span<const Partition> partitions) const;

 private:
  // Returns the cut of concatenated runs.
  Positions at_copies(std::uint64_t rank, std::span<const Run> runs) const;
  // Returns the co-rank of `rank`: the cut after the first `rank` merged records. For lines, the
  // cut is near `rank` bytes, and equal keys are on one side.
  Positions at(std::uint64_t rank, std::span<const Run> runs, ProbeThreads& threads) const;
  // Returns at() for ascending ranks.
  std::vector<Positions> at_all(std::span<const std::uint64_t> ranks, std::span<const Run> runs,
                                ProbeThreads& threads) const;
  // Throws OutOfOrder if a run is out of order across one of the ascending cuts.
  void check(std::span<const Positions> cuts, std::span<const Run> runs,
             ProbeThreads& threads) const;
  // Returns the largest record before `cut`; empty if there is none.
  std::vector<std::byte> last_before(const Positions& cut, std::span<const Run> runs,
                                     ProbeThreads& threads) const;
  // Returns the rank after all records that sort before or with `last`; 0 if that is empty. Finds
  // small ranks fastest.
  std::uint64_t rank_after(const std::vector<std::byte>& last, std::span<const Run> runs,
                           ProbeThreads& threads) const;
  // Returns whether `record` and its predecessor in the run are in order.
  bool in_order_at(const Run& run, std::uint64_t record) const;

  KeyLayout layout() const { return format_.keys().layout(); }

  const RecordFormat& format_;
  bool copies_;
};

}  // namespace corank
