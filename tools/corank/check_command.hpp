// `corank check`, and `corank sort --check`, which does the same.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "corank/options.hpp"
#include "record_arguments.hpp"

namespace corank {

// Checks the order of each file, and reports those that fail. With Options::checksum, prints the
// records, checksum and name of each file, and of all together. Returns the exit code.
int check_files(std::span<const std::string> files, const Options& options);

class CheckCommand {
 public:
  explicit CheckCommand(CLI::App& app);
  bool chosen() const { return command_->parsed(); }
  int run() const;

 private:
  CLI::App* command_;
  RecordArguments record_;
  std::vector<std::string> files_;
  bool decompress_ = true;
  bool checksum_ = false;
  bool quiet_ = false;
  unsigned threads_ = 0;
  std::uint64_t memory_bytes_ = 0;
};

}  // namespace corank
