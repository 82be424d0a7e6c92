// Counts merged bytes and reports them to Options::progress, at most about ten times a second.
#pragma once

#include <cstdint>
#include <mutex>

#include "corank/options.hpp"
#include "util/trace.hpp"

namespace corank {

class ProgressMeter {
 public:
  // `options` must outlive the meter. If the total is not known in advance, as with pipes and
  // compressed runs, a total of 0 is reported.
  ProgressMeter(const Options& options, bool total_is_known)
      : options_(options), total_is_known_(total_is_known) {}

  // Sets how many bytes all passes will merge, those already counted included.
  void set_total(std::uint64_t bytes) { progress_.bytes_total = bytes; }
  // Thread-safe.
  void add_to_total(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    progress_.bytes_total += bytes;
  }
  std::uint64_t bytes_done() const { return progress_.bytes_done; }

  // Counts `bytes` merged bytes. Thread-safe; calls Options::progress from one thread at a time.
  void add(std::uint64_t bytes);

 private:
  const Options& options_;
  bool total_is_known_;
  std::mutex mutex_;
  Progress progress_;
  TraceClock::time_point reported_ = TraceClock::now();
};

}  // namespace corank
