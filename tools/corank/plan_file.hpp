// Files of a merge in partitions, as JSON: the plan, and the record of each part.
//
// Both appear under their names when they are whole. Failures are thrown as Error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corank/partitions.hpp"

namespace corank {

struct PlanFile {
  std::vector<std::string> command;  // arguments of the program that made the plan, but --force
  PartitionPlan partitions;
  std::optional<PartContent> content = {};  // of all runs together, without keys, where it is known
  std::optional<std::uint64_t> header_bytes = {};  // of each run, if these are of a planned sort
  std::string digest = {};                         // of all else; set by read_plan()
};

// Throws Error if `file` exists and is one of `others`, which are read.
void check_is_none_of(const std::filesystem::path& file,
                      std::span<const std::filesystem::path> others);

// Gives a file another name, which may be that of a file.
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
// Waits until the name of a file is on the disk.
void make_name_durable(const std::filesystem::path& file);

// Writes the plan as merge() writes an output. Throws Error if the file exists, unless `overwrite`,
// and Interrupted if `stop` is requested while nobody reads a pipe.
void write_plan(const PlanFile& plan, const std::filesystem::path& file, bool overwrite,
                const std::stop_token& stop);
// Throws Error if the file is not a plan, is damaged, or was made by another version of the
// program.
PlanFile read_plan(const std::filesystem::path& file);

// Record of a written part.
struct PartRecord {
  std::string plan;  // digest of its plan
  std::size_t partition = 0;
  std::uint64_t records_read = 0;     // of the runs
  std::uint64_t records_skipped = 0;  // of these, not counted in `records_read`
  std::uint64_t bytes = 0;            // of the part
  PartContent content = {};
};

// Makes the record durable.
void write_record(const PartRecord& record, const std::filesystem::path& file);
PartRecord read_record(const std::filesystem::path& file);
// Returns the records of all parts in `folder`, whose plan is in `file`. Throws Error, which says
// what to do, for parts that are missing, of another plan, or not as large as their records say,
// and if there are other parts.
std::vector<PartRecord> read_records(const PlanFile& plan, const std::string& file,
                                     const std::filesystem::path& folder, Codec codec);
// Returns the words that say how to write a part again.
std::string again(const PlanFile& plan, const std::string& file,
                  const std::filesystem::path& folder, std::size_t partition);

// Files of one partition in the folder of the parts.
struct PartNames {
  std::filesystem::path part, record;
};
PartNames part_names(const std::filesystem::path& folder, std::size_t partition, Codec codec);
// Returns whether a part, or the record of one, may have this name.
bool is_part_name(std::string_view name);
// Returns `folder` or, if that is empty, the folder beside a plan: plan.parts for plan.json.
std::filesystem::path folder_of_parts(const std::filesystem::path& plan, const std::string& folder);

// Returns the words "HOST.PROCESS.ATTEMPT", the last a random number, so that no other process of a
// cluster has them in its names.
std::string attempt_name();

// Returns the number of the partition that `text` names, a number or "auto": then a scheduler's
// variable has it. Throws Error, which names the variable, if it is not in the plan.
std::size_t partition_number(const std::string& text, std::size_t count);

}  // namespace corank
