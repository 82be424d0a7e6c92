#include "plan_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "corank/error.hpp"

namespace corank {

PlanCommand::PlanCommand(CLI::App& app)
    : command_(app.add_subcommand("plan", "Cut a merge into partitions for a cluster")) {
  command_->require_subcommand(1);
  const auto add = [&](const char* name, OnEqual on_equal) {
    merges_.push_back(std::make_unique<MergeCommand>(*command_, name,
                                                     fmt::format("Plan corank {}", name).c_str(),
                                                     on_equal, MergeCommand::Verb::plan));
  };
  add("merge", OnEqual::keep);
  add("union", OnEqual::unite);
  add("intersect", OnEqual::intersect);
  add("subtract", OnEqual::subtract);
  sort_ = command_->add_subcommand("sort", "Says how files are sorted on a cluster");
  sort_->allow_extras();
  show_ = command_->add_subcommand("show", "Print a plan for people");
  show_->add_option("PLAN", shown_, "File of the plan")->required()->type_name("");
  command_->footer(
      "Examples:\n  corank plan merge --lines --partitions 8 -o plan.json runs/*.txt\n"
      "  corank plan show plan.json\n  corank merge --plan plan.json --partition 3\n"
      "  corank finish plan.json --concatenate all.txt");
}

MergeCommand& PlanCommand::planned() const {
  const auto chosen = std::ranges::find_if(merges_, &MergeCommand::chosen);
  if (chosen == merges_.end()) throw Error("the plan is of no merge; plan again");
  return **chosen;
}

int PlanCommand::run(const std::vector<std::string>& arguments) const {
  if (sort_->parsed())
    throw Error(
        "plan sort: unsorted files have no ranks to cut at; sort the files of each node first, by "
        "corank sort, and then plan the merge of the sorted files by corank plan merge");
  if (show_->parsed()) {
    show();
    return 0;
  }
  const MergeCommand& merge = planned();
  const std::vector<std::string> names = merge.names_of_runs();
  const std::vector<std::filesystem::path> runs(names.begin(), names.end());
  const Options options = merge.options();
  write_plan({arguments, plan_partitions(runs, merge.num_partitions(), options)}, merge.output(),
             options.overwrite);
  return 0;
}

void PlanCommand::show() const {
  const PlanFile plan = read_plan(shown_);
  const PartitionPlan& partitions = plan.partitions;
  const char* const unit = partitions.counts_bytes ? "bytes" : "records";
  std::uint64_t bytes = 0;
  for (const PartitionPlan::Input& run : partitions.runs) bytes += run.bytes;
  fmt::print("command     corank {}\n", fmt::join(plan.command, " "));
  fmt::print("runs        {}, {} bytes\n", partitions.runs.size(), bytes);
  fmt::print("partitions  {}\n", partitions.size());
  fmt::print("digest      {}\n", plan.digest);
  for (std::size_t i = 0; i < partitions.size(); ++i) {
    const PartitionPlan::Cut &from = partitions.cuts[i], &to = partitions.cuts[i + 1];
    std::size_t num_runs = 0;
    for (std::size_t run = 0; run < from.size(); ++run) num_runs += from[run] != to[run];
    fmt::print("part-{:05}  {} {} of {} runs\n", i, partitions.length(i), unit, num_runs);
  }
}

Options options_of(const PlanFile& plan) {
  CLI::App app;
  PlanCommand command(app);
  try {
    app.parse(std::vector<std::string>(plan.command.rbegin(), plan.command.rend()));
  } catch (const CLI::ParseError& error) {
    throw Error(
        fmt::format("the command of the plan cannot be read: {}; plan again", error.what()));
  }
  return command.options();
}

}  // namespace corank
