// Reads files side by side, and gives what was found in the order of the files.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "corank/options.hpp"
#include "jobs/scan.hpp"

namespace corank {

template <class Result>
class EachFile {
 public:
  // Reads a file within `share`; `before` are the files before it.
  using Read = Result (*)(const ScanShare& share, const std::filesystem::path& file,
                          const Options& options, std::span<const std::filesystem::path> before);

  // Begins to read. Each pipe gets a thread of its own, since one program may feed several of them
  // in turn. Of other files, as many are read at a time as threads and memory allow.
  EachFile(std::span<const std::string> files, const Options& options, Read read)
      : paths_(files.begin(), files.end()), options_(options) {
    bool shares_pipe = false;
    std::size_t num_files = 0;
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      std::error_code unknown;
      const bool is_pipe = paths_[i] == "-" || std::filesystem::is_fifo(paths_[i], unknown);
      const bool is_own_pipe = is_pipe && std::ranges::count(paths_, paths_[i]) == 1;
      shares_pipe |= is_pipe && !is_own_pipe;
      num_files += !is_own_pipe;
      tasks_.emplace_back([this, read, i] {
        return read(share_, paths_[i], options_, std::span(paths_).first(i));
      });
      results_.push_back(tasks_[i].get_future());
      are_pipes_.push_back(is_own_pipe);
    }
    const ScansAtOnce scans = scans_at_once(shares_pipe ? 1 : num_files, options);
    share_ = scans.share;
    options_.threads = share_.threads;  // also of decompression
    for (std::size_t i = 0; i < paths_.size(); ++i)
      if (are_pipes_[i]) threads_.emplace_back([this, i] { tasks_[i](); });
    for (std::uint64_t i = 0; i < scans.files; ++i) threads_.emplace_back([this] { read_files(); });
  }
  ~EachFile() { next_ = paths_.size(); }
  EachFile(const EachFile&) = delete;
  EachFile& operator=(const EachFile&) = delete;

  // Returns what reading file number `i` returned, or throws what it threw. To be called once for
  // each file.
  Result result(std::size_t i) { return results_[i].get(); }

 private:
  void read_files() {
    for (std::size_t i; (i = next_++) < paths_.size();)
      if (!are_pipes_[i]) tasks_[i]();
  }

  std::vector<std::filesystem::path> paths_;
  Options options_;
  ScanShare share_;
  std::vector<std::packaged_task<Result()>> tasks_;
  std::vector<std::future<Result>> results_;
  std::vector<bool> are_pipes_;
  std::atomic<std::size_t> next_ = 0;  // file to be read
  std::vector<std::jthread> threads_;
};

}  // namespace corank
