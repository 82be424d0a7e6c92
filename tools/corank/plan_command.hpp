// `corank plan`: cuts a merge into partitions, and shows a plan.
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
  // Returns the options of the planned merge.
  Options options() const { return planned().options(); }

 private:
  MergeCommand& planned() const;
  void show() const;

  CLI::App* command_;
  std::vector<std::unique_ptr<MergeCommand>> merges_;
  CLI::App* sort_;
  CLI::App* show_;
  std::string shown_;
};

// Returns the options of a plan's merge, which say nothing about its resources.
Options options_of(const PlanFile& plan);

}  // namespace corank
