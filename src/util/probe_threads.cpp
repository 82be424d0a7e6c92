#include "util/probe_threads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>

#include "util/stopwatch.hpp"

namespace corank {
namespace {

// A read that takes longer waits for storage; reads of cached files are faster than a thread wakes.
constexpr std::chrono::microseconds min_wait(100);

}  // namespace

void ProbeThreads::start(std::size_t count) {
  auto wanted = static_cast<unsigned>(std::min<std::size_t>(max_threads_, count));
  while (wanted > std::max(num_threads_, 1u)) {
    queue_.reset();
    num_threads_ = 0;
    try {
      queue_ = std::make_unique<Queue>(wanted, [](auto& job, unsigned) { job(); });
      num_threads_ = wanted;
    } catch (const std::system_error&) {
      max_threads_ = wanted /= 2;  // the system has no more threads: fewer will do
    }
  }
}

void ProbeThreads::for_each(std::size_t count,
                            const std::function<std::uint64_t(std::size_t)>& probe) {
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> longest = 0;
  const auto probe_next = [&] {
    const std::size_t i = next++;
    if (i >= count) return false;
    const std::uint64_t reads = probe(i);
    for (std::uint64_t before = longest;
         before < reads && !longest.compare_exchange_weak(before, reads);) {
    }
    return true;
  };
  while (!waits_) {
    const auto begin = TraceClock::now();
    if (!probe_next()) break;
    waits_ = TraceClock::now() - begin > min_wait;
  }
  const std::size_t left = count - std::min<std::size_t>(next, count);
  start(left);
  if (!queue_ || left <= 1) {
    while (probe_next()) {
    }
  } else {
    try {
      for (std::size_t i = 0; i < std::min<std::size_t>(left, num_threads_); ++i)
        queue_->submit([&] {
          while (probe_next()) {
          }
        });
      queue_->finish();
    } catch (...) {
      queue_->abandon();  // jobs at work use the arguments
      throw;
    }
  }
  rounds_ += longest;
}

}  // namespace corank
