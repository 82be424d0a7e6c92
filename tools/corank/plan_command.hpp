// `corank plan`: cuts a merge or sort into partitions, and shows a plan.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "merge_command.hpp"
#include "plan_file.hpp"

namespace corank {

class PlanCommand {
 public:
  explicit PlanCommand(CLI::App& app);
  bool chosen() const { return command_->parsed(); }
  // `arguments` are those of the program, which the plan keeps. Throws Error.
  int run(const std::vector<std::string>& arguments) const;
  // Returns the planned command, which can only tell its options.
  const MergeCommand& planned() const;

 private:
  void show() const;

  CLI::App* command_;
  std::vector<std::unique_ptr<MergeCommand>> commands_;
  CLI::App* show_;
  std::string shown_;
};

// Returns the options of a plan's partitions, which say nothing about its resources.
Options options_of(const PlanFile& plan);

}  // namespace corank
