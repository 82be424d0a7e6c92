#include "finish_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>
#include <system_error>

#include "command_line.hpp"
#include "corank/error.hpp"
#include "plan_command.hpp"
#include "standard_streams.hpp"
#include "statistics.hpp"
#include "stop_on_signal.hpp"

namespace corank {
namespace {

Codec codec_of(const Options& options) {
  return options.compression.value_or(Compression{}).codec;
}

// Returns whether a folder of an attempt, or what it left of a record, may have this name.
bool is_attempt_name(const std::string& name) {
  static const std::regex attempt(R"(\.part-\d{5,}(\.json)?\.(resume|.+\.\d+\.[0-9a-f]+))");
  return std::regex_match(name, attempt);
}

// Removes the folders of attempts that were killed, and what they left of records.
void remove_attempts(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (is_attempt_name(entry.path().filename().string()))
      std::filesystem::remove_all(entry.path(), ignored);
}

// Throws Error if the output would be taken for a part, or be removed with what attempts left.
void refuse_name_of_part(const std::filesystem::path& output, const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  const fs::path name =
      fs::weakly_canonical(fs::absolute(output)).lexically_relative(fs::weakly_canonical(folder));
  if (name.empty()) return;
  const std::string first = name.begin()->string();
  if (is_part_name(first) || is_attempt_name(first))
    throw Error(output.string() + ": has the name of a part; choose another");
}

}  // namespace

FinishCommand::FinishCommand(CLI::App& app)
    : command_(app.add_subcommand("finish", "Prove that the parts of a plan are its merge")) {
  command_->add_option("PLAN", plan_, "File of the plan")->required()->type_name("");
  command_
      ->add_option("--output-folder", folder_, "Folder of the parts [PLAN.parts beside the plan]")
      ->type_name("DIR");
  command_
      ->add_option("--concatenate", concatenated_,
                   "Then write the parts one after another into FILE")
      ->type_name("FILE");
  command_->add_flag("-f,--force", options_.overwrite, "Replace a FILE that exists");
  command_->add_flag("--read-runs", reads_runs_,
                     "Read the runs again, too, and compare their records and checksum");
  add_threads_to(*command_, options_.threads, "Parts read at a time");
  add_memory_to(*command_, options_.memory_bytes);
  command_->footer(
      "Prints records, checksum and name of each part, and of all together, as corank check does.\n"
      "Example:\n  corank finish plan.json --concatenate all.bin");
}

void FinishCommand::check_runs(const PlanFile& plan, const PartContent& runs,
                               const PartRecord& total) const {
  if (runs.records != total.records_read)
    throw Error(ErrorCode::corrupted,
                fmt::format("{}: the runs have {} records, and the parts were made of {}; write "
                            "them again",
                            plan_, runs.records, total.records_read));
  if (plan.partitions.keeps_records && runs.checksum != total.content.checksum)
    throw Error(
        ErrorCode::corrupted,
        fmt::format("{}: the checksum of the runs is {}, and that of the parts {}; write "
                    "them again",
                    plan_, hexadecimal(runs.checksum), hexadecimal(total.content.checksum)));
}

std::vector<PartContent> FinishCommand::read_parts(const PlanFile& plan,
                                                   const std::vector<std::filesystem::path>& parts,
                                                   const std::filesystem::path& folder) const try {
  return check_parts(plan.partitions, parts, options_);
} catch (const OutOfOrder& error) {
  const auto part = std::ranges::find(parts, error.file());
  if (part == parts.end()) throw;
  throw Error(
      ErrorCode::corrupted,
      fmt::format("{}: is out of order at byte {}, so it has changed since it was written; {}",
                  part->string(), error.byte(),
                  again(plan, plan_, folder, static_cast<std::size_t>(part - parts.begin()))));
}

int FinishCommand::run() {
  const StopOnSignal signals;
  const PlanFile plan = read_plan(plan_);
  const Options resources = options_;
  options_ = options_of(plan);
  options_.stop = signals.token();
  options_.overwrite = resources.overwrite;
  options_.threads = resources.threads;
  options_.memory_bytes = resources.memory_bytes;
  if (plan.partitions.sorts && !concatenated_.empty())
    throw Error(
        fmt::format("--concatenate: the parts of {0} are runs of their own; merge them by corank "
                    "plan merge --runs-of {0}",
                    plan_));
  if (concatenated_ == "-")
    throw Error(ErrorCode::options,
                "--concatenate: - is not a file, and standard output has the checksums; name one");
  const std::filesystem::path folder = folder_of_parts(plan_, folder_);
  const std::vector<PartRecord> records = read_records(plan, plan_, folder, codec_of(options_));
  std::vector<std::filesystem::path> parts, sources{plan_};
  for (std::size_t i = 0; i < records.size(); ++i) {
    const PartNames names = part_names(folder, i, codec_of(options_));
    parts.push_back(names.part);
    sources.push_back(names.record);
  }
  if (!concatenated_.empty()) {
    check_is_none_of(concatenated_, sources);
    refuse_name_of_part(concatenated_, folder);
    check_concatenated(concatenated_, options_);
  }
  if (!options_.overwrite && !concatenated_.empty() && std::filesystem::exists(concatenated_))
    throw Error(ErrorCode::exists, concatenated_ + ": exists already; use --force to replace it");
  std::vector<PartitionPlan::Input> files;
  for (const std::filesystem::path& part : parts) files.push_back(identify(part));
  const std::vector<PartContent> contents = read_parts(plan, parts, folder);
  PartRecord total;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const PartContent &found = contents[i], &written = records[i].content;
    if (found.records != written.records || found.checksum != written.checksum)
      throw Error(ErrorCode::corrupted,
                  fmt::format("{}: holds {} records with checksum {}, and held {} with {} when it "
                              "was written; {}",
                              parts[i].string(), found.records, hexadecimal(found.checksum),
                              written.records, hexadecimal(written.checksum),
                              again(plan, plan_, folder, i)));
    total.records_read += records[i].records_read;
    total.content.records += found.records;
    total.content.checksum += found.checksum;
    fmt::print("{} {} {}\n", found.records, hexadecimal(found.checksum), parts[i].string());
  }
  if (plan.content) check_runs(plan, *plan.content, total);
  if (reads_runs_) {
    const PartContent runs = check_planned_runs(plan.partitions, options_);
    check_runs(plan, runs, total);
    if (plan.content && runs.checksum != plan.content->checksum)
      throw Error(ErrorCode::corrupted,
                  plan_ + ": the runs have changed since they were written; write them again");
  }
  fmt::print("{} {} total\n", total.content.records, hexadecimal(total.content.checksum));
  finish_printing();  // nothing is replaced if it fails
  if (!concatenated_.empty()) concatenate(files, concatenated_, options_);
  remove_attempts(folder);
  return 0;
}

}  // namespace corank
