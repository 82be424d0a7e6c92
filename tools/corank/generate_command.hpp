// `corank gen`: generates sorted runs.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "generate.hpp"
#include "record_arguments.hpp"

namespace corank {

class GenerateCommand {
 public:
  explicit GenerateCommand(CLI::App& app);
  bool chosen() const { return command_->parsed(); }
  int run();

 private:
  CLI::App* command_;
  RecordArguments record_;
  GenerateOptions options_;
  std::string folder_;
};

}  // namespace corank
