// Cuts whole runs where slices, groups and limits of the merge end, by probing them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "run/run.hpp"

namespace corank {

// A contiguous part of the whole output, by its ranks.
struct Partition {
  std::uint64_t begin;
  std::uint64_t end;
};

std::uint64_t records_of(std::span<const Run> runs);

class RunCuts {
 public:
  // How many records of each run stand before a cut.
  using Positions = std::vector<std::uint64_t>;

  // `encoding` must outlive it. With `copies` the runs go out one after another.
  RunCuts(const KeyEncoding& encoding, bool copies) : encoding_(encoding), copies_(copies) {}

  // Behind the first `rank` records; of text, behind the lines that hold about so many bytes.
  Positions at(std::uint64_t rank, std::span<const Run> runs) const;

  // The same, after a cut at `from`. Throws OutOfOrder for what the slices on its two sides can't
  // see: the records at the edge.
  Positions checked(std::uint64_t rank, std::span<const Run> runs, const Positions& from) const;

  // The cut after the last group that begins before `cut`.
  Positions behind_group(Positions cut, std::span<const Run> runs) const;

  // The greatest record before the cut; empty if none is.
  std::vector<std::byte> last_before(const Positions& cut, std::span<const Run> runs) const;

  // Of the cut behind the group that such a record is of.
  std::uint64_t rank_behind(const std::vector<std::byte>& last, std::span<const Run> runs) const;

  // Leaves of the runs what the first `count` records come from.
  void keep_first(std::uint64_t count, std::span<Run> runs) const;

  // The stretches of the runs that make up each slice; these ascend. Throws what checked() does.
  std::vector<std::vector<Run>> stretches(std::span<const Run> runs,
                                          std::span<const Partition> partitions) const;

 private:
  bool in_order_at(const Run& run, std::uint64_t record) const;

  const KeyEncoding& encoding_;
  bool copies_;
};

}  // namespace corank
