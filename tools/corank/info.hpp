// `corank info`: what this machine offers, and the rates that bind a merge on it; of files, what
// they hold.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "record_arguments.hpp"

namespace corank {

// What a reader of figures must know of the machine that they are from.
nlohmann::ordered_json describe_machine();

class InfoCommand {
 public:
  explicit InfoCommand(CLI::App& app);
  bool chosen() const { return command_->parsed(); }
  // What is wrong with one file is handed to `report`, whose result is the exit code then, and does
  // not keep the others from being shown.
  int run(const std::function<int(const Error&)>& report) const;

 private:
  void show_machine() const;
  int show_files(const std::function<int(const Error&)>& report) const;

  CLI::App* command_;
  RecordArguments record_;
  std::vector<std::string> files_;
  bool decompress_ = true;
  std::string folder_ = ".";
  bool json_ = false;
};

}  // namespace corank
