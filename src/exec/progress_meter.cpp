#include "exec/progress_meter.hpp"

#include <chrono>

namespace corank {

void ProgressMeter::add(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  progress_.bytes_done += bytes;
  const auto now = TraceClock::now();
  const bool is_due = now - reported_ >= std::chrono::milliseconds(100);
  const bool is_last = progress_.bytes_done == progress_.bytes_total;
  if (!options_.progress || (!is_due && !is_last)) return;
  reported_ = now;
  Progress progress = progress_;
  if (!total_is_known_) progress.bytes_total = 0;
  options_.progress(progress);
}

}  // namespace corank
