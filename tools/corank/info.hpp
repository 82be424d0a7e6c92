// `corank info`: describes this machine and its limits for merges, or the content of files.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "record_arguments.hpp"

namespace corank {

// Describes the machine, as the context of benchmark results.
nlohmann::ordered_json describe_machine();

class InfoCommand {
 public:
  explicit InfoCommand(CLI::App& app);
  bool chosen() const { return command_->parsed(); }
  // Shows the files. An error in one file is passed to `report`, whose result becomes the exit
  // code; the other files are still shown.
  int run(const std::function<int(const Error&)>& report) const;

 private:
  void show_machine() const;
  int show_files(const std::function<int(const Error&)>& report) const;

  CLI::App* command_;
  RecordArguments record_;
  std::vector<std::string> files_;
  bool decompress_ = true;
  std::uint64_t memory_bytes_ = 0;
  std::string folder_ = ".";
  bool json_ = false;
};

}  // namespace corank
