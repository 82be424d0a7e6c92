// Measures how long the pipeline's stages work: totals, and trace events if a trace is requested.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "util/trace.hpp"

namespace corank {

using StageClock = std::atomic<std::int64_t>;  // nanoseconds

inline double seconds(const StageClock& clock) {
  return static_cast<double>(clock.load()) * 1e-9;
}

// Adds the time of a scope to a stage's total, from any number of threads.
class Stopwatch {
 public:
  explicit Stopwatch(StageClock& clock, TraceRow row = {}, std::uint64_t number = 0)
      : clock_(clock), row_(row), number_(number) {}
  ~Stopwatch() {
    const auto end = TraceClock::now();
    clock_ += (end - start_).count();
    if (row_.trace) row_.trace->add(row_, number_, start_, end);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  StageClock& clock_;
  TraceRow row_;
  std::uint64_t number_;
  TraceClock::time_point start_ = TraceClock::now();
};

}  // namespace corank
