#include "write_behind.hpp"

#include <utility>

namespace corank {

WriteBehind::WriteBehind(Write write, TraceRow row)
    : write_(std::move(write)), thread_([this, row] { serve(row); }) {}

WriteBehind::~WriteBehind() {
  abandon();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
}

void WriteBehind::add(std::span<const std::byte> bytes, Owner owner) {
  const std::lock_guard lock(mutex_);
  check();
  jobs_.push_back({bytes, std::move(owner)});
  changed_.notify_all();
}

void WriteBehind::finish() {
  Stopwatch waiting(wait_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty(); });
  check();
}

void WriteBehind::abandon() noexcept {
  std::unique_lock lock(mutex_);
  if (jobs_.size() > 1) jobs_.erase(jobs_.begin() + 1, jobs_.end());
  changed_.wait(lock, [this] { return jobs_.empty(); });
}

void WriteBehind::check() const {
  if (failure_) std::rethrow_exception(failure_);
}

void WriteBehind::serve(TraceRow row) {
  std::unique_lock lock(mutex_);
  for (std::uint64_t number = 0;; ++number) {
    changed_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::span<const std::byte> bytes = jobs_.front().bytes;
    lock.unlock();
    std::exception_ptr failure;
    try {
      Stopwatch writing(busy_, row, number);
      write_(bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
      jobs_.clear();
    } else {
      jobs_.pop_front();
    }
    changed_.notify_all();
  }
}

}  // namespace corank
