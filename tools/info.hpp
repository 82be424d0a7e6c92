// `corank info`: what this machine offers, and the rates that bind a merge on it.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace corank {

// What a reader of figures must know of the machine that they are from.
nlohmann::ordered_json describe_machine();

class InfoCommand {
 public:
  explicit InfoCommand(CLI::App& app);
  bool chosen() const { return command_->parsed(); }
  int run() const;

 private:
  CLI::App* command_;
  std::string folder_ = ".";
  bool json_ = false;
};

}  // namespace corank
