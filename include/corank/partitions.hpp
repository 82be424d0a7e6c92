// Partitions of a merge, which processes on any machines write on their own: cut the runs once,
// merge each partition anywhere and in any order, and prove that the parts are the whole. Files
// that are not sorted are cut, too, and each partition of them is sorted into a run of such a
// merge.
//
// The plan is plain data. All functions block and may run concurrently; the options must be those
// that the runs were cut with, except for the resources. The runs must be plain files. Failures are
// thrown as Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "corank/options.hpp"
#include "corank/stats.hpp"

namespace corank {

struct PartitionPlan {
  // Identifies the content of a run: partitions of a run that has changed do not fit together.
  struct Input {
    std::filesystem::path path;
    std::uint64_t bytes;
    std::int64_t modified_ns;  // since 1970
  };
  // A position in each run, in records or, if records vary in length, in bytes after the header.
  using Cut = std::vector<std::uint64_t>;

  std::vector<Input> runs;
  std::vector<Cut> cuts;       // where each partition begins, and where the last one ends
  bool counts_bytes = false;   // positions are in bytes
  bool keeps_records = false;  // every record of the partitions is emitted as it is
  bool sorts = false;          // the runs are not sorted, and each partition is sorted on its own

  // Returns the number of partitions.
  std::size_t size() const { return cuts.empty() ? 0 : cuts.size() - 1; }
  // Returns the length of a partition's input, in records or bytes.
  std::uint64_t length(std::size_t partition) const;
};

// Cuts the merge of `runs` into `count` partitions of nearly equal length. Only records that are
// merged one by one are cut between equal keys; see Options::parts_by_key. Reads runs
// of CSV and pairs whole, and throws OutOfOrder if one is not sorted. Throws Error also if some run
// is a pipe or compressed, or if a limit is an operator.
PartitionPlan plan_partitions(std::span<const std::filesystem::path> runs, std::size_t count,
                              const Options& options);

// Cuts the concatenation of `files` into `count` partitions of nearly equal length, each to be
// sorted. Stably merged in their order, these are the sort of the files. Options::query is
// checked, and is for that merge. Throws Error also if some file is a pipe or compressed.
PartitionPlan plan_sort(std::span<const std::filesystem::path> files, std::size_t count,
                        const Options& options);

// Merges or sorts one partition into `output`, as merge() and sort() do. The first one of a merge
// has the header, and each one of a sort. Calls `before_publish` before the output gets its name,
// with all statistics but its size. Throws Error also if a run has changed since the plan.
Stats write_partition(const PartitionPlan& plan, std::size_t partition,
                      const std::filesystem::path& output, const Options& options,
                      const std::function<void(const Stats&)>& before_publish = {});

// Content of a part.
struct PartContent {
  std::uint64_t records = 0;
  std::uint64_t checksum = 0;       // see CheckResult::checksum
  std::string first_key, last_key;  // human-readable; empty if there are no records
  std::uint64_t header_bytes = 0;   // size of the header
};

// Returns the size and the time of a file.
PartitionPlan::Input identify(const std::filesystem::path& file);

// Returns the keys at the ends of a part and the size of its header, without the records and the
// checksum; no keys if the part is compressed or cannot be searched.
PartContent read_part_keys(const PartitionPlan& plan, std::size_t partition,
                           const std::filesystem::path& part, const Options& options);

// Reads all parts, several at a time, and returns their contents. Throws OutOfOrder if a part is
// not sorted, and Error if a part of a merge begins before the end of the one before it.
std::vector<PartContent> check_parts(const PartitionPlan& plan,
                                     std::span<const std::filesystem::path> parts,
                                     const Options& options);

// Reads the planned ranges of all runs, and returns the records and the checksum of all together.
PartContent check_planned_runs(const PartitionPlan& plan, const Options& options);

// Throws Error if the name of an output promises a compression that the parts do not have, or its
// folder does not exist.
void check_concatenated(const std::filesystem::path& output, const Options& options);
// Writes the parts one after another into `output`, which appears when it is whole and durable.
// Throws Error as check_concatenated() does, and if a part has changed since identify(). The kernel
// copies, so that a file system that can share blocks does.
void concatenate(std::span<const PartitionPlan::Input> parts, const std::filesystem::path& output,
                 const Options& options);

}  // namespace corank
