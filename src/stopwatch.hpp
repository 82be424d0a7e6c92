// Adds the time of a scope to a stage's total, from any number of threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace corank {

using StageClock = std::atomic<std::int64_t>;  // nanoseconds

inline double seconds(const StageClock& clock) {
  return static_cast<double>(clock.load()) * 1e-9;
}

class Stopwatch {
 public:
  explicit Stopwatch(StageClock& clock) : clock_(clock) {}
  ~Stopwatch() { clock_ += (std::chrono::steady_clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  StageClock& clock_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace corank
