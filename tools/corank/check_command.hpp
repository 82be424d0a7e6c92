// `corank check`, and `corank sort --check`, which does the same.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "corank/options.hpp"
#include "record_arguments.hpp"

namespace corank {

// Calls `read(file, options, files before it)` for each file once its result is asked for. Pipes
// are read side by side, since one program may feed several of them in turn.
template <class Result>
std::vector<std::future<Result>> read_each(std::span<const std::string> files,
                                           const Options& options,
                                           Result (*read)(const std::filesystem::path&,
                                                          const Options&,
                                                          std::span<const std::filesystem::path>)) {
  const auto paths =
      std::make_shared<const std::vector<std::filesystem::path>>(files.begin(), files.end());
  std::vector<std::future<Result>> results;
  for (std::size_t i = 0; i < paths->size(); ++i) {
    const std::filesystem::path& path = (*paths)[i];
    std::error_code unknown;
    const bool is_pipe = path == "-" || std::filesystem::is_fifo(path, unknown);
    const bool is_own_pipe = is_pipe && std::ranges::count(*paths, path) == 1;
    results.push_back(std::async(is_own_pipe ? std::launch::async : std::launch::deferred, [=] {
      return read((*paths)[i], options, std::span(*paths).first(i));
    }));
  }
  return results;
}

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
  unsigned threads_ = 0;
};

}  // namespace corank
