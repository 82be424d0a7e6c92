// `corank bench`: measures merges against copies of the same bytes and against other programs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace corank {

struct BenchOptions {
  std::uint64_t bytes = std::uint64_t{1} << 30;  // total size of the runs of a row
  std::string folder = ".";
  std::vector<std::string> records{"key:u64,value:u64", "key:bytes10,value:bytes90"};
  std::string keys;
  std::vector<std::uint32_t> runs{2, 16, 256};
  std::vector<std::string> distributions{"uniform", "equal", "disjoint", "lopsided"};
  std::vector<std::string> peers{"cat", "sort"};
  unsigned repetitions = 5;
  unsigned parts = 0;  // that a merge and a copy are written to as well; 0: only one file is
  bool cold = false;
  std::vector<std::string> merge_arguments;  // passed to all of corank's contenders
  std::string json;
  std::string commit;
};

class BenchCommand {
 public:
  explicit BenchCommand(CLI::App& app);
  bool chosen() const { return command_->parsed(); }
  int run();

 private:
  CLI::App* command_;
  BenchOptions options_;
  std::string backend_, device_, threads_, memory_, io_;
};

}  // namespace corank
