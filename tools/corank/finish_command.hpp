// `corank finish`: proves that the parts of a plan are its merge, and makes them one file.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "corank/options.hpp"
#include "plan_file.hpp"

namespace corank {

class FinishCommand {
 public:
  explicit FinishCommand(CLI::App& app);
  bool chosen() const { return command_->parsed(); }
  // Throws Error for the first proof that fails.
  int run();

 private:
  // Returns the contents of the parts.
  std::vector<PartContent> read_parts(const PlanFile& plan,
                                      const std::vector<std::filesystem::path>& parts,
                                      const std::filesystem::path& folder) const;
  // Throws Error unless the parts hold the records of the runs.
  void check_runs(const PlanFile& plan, const PartContent& runs, const PartRecord& total) const;

  CLI::App* command_;
  std::string plan_, folder_, concatenated_;
  bool reads_runs_ = false;
  Options options_;  // of the plan, with the resources of this command
};

}  // namespace corank
