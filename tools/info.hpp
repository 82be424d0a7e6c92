// `corank info`: what this machine offers, and the rates that bind a merge on it; of files, what
// they hold.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "record_arguments.hpp"

namespace corank {

// What a reader of figures must know of the machine that they are from.
nlohmann::ordered_json describe_machine();

class InfoCommand {
 public:
  explicit InfoCommand(CLI::App& app);
  bool chosen() const { return command_->parsed(); }
  int run() const;

 private:
  void show_machine() const;
  void show_files() const;

  CLI::App* command_;
  RecordArguments record_;
  std::vector<std::string> files_;
  bool decompress_ = true;
  std::string folder_ = ".";
  bool json_ = false;
};

}  // namespace corank
