// Threads that wait for storage: they keep many reads of a search in flight, however slow each is.
//
// One thread uses an object. Probes that do not depend on each other are a round; its time is that
// of a few reads, even if it has hundreds. The threads start once a read has waited for storage, as
// many as the round has probes; a larger round starts more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "util/worker_queue.hpp"

namespace corank {

class ProbeThreads {
 public:
  // Reads in flight: enough to hide the latency of a network's file system.
  static constexpr unsigned max_threads = 128;

  explicit ProbeThreads(unsigned threads = max_threads) : max_threads_(threads) {}

  // Calls probe(i) for all i below `count`, many at a time. A probe returns the number of reads
  // that it made one after another. Rethrows what a probe throws.
  void for_each(std::size_t count, const std::function<std::uint64_t(std::size_t)>& probe);

  // Returns how many reads have been waited for one after another.
  std::uint64_t rounds() const { return rounds_; }

 private:
  using Queue = WorkerQueue<std::function<void()>>;

  // Makes the queue have a thread for each of `count` probes, as far as the limits allow.
  void start(std::size_t count);

  unsigned max_threads_;
  unsigned num_threads_ = 0;  // of the queue
  bool waits_ = false;        // whether a read has waited for storage
  std::uint64_t rounds_ = 0;
  std::unique_ptr<Queue> queue_;
};

}  // namespace corank
