// Writes in order, by a thread of its own, so that nobody else waits for a device.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "stopwatch.hpp"

namespace corank {

class WriteBehind {
 public:
  // Given the next bytes, by that thread.
  using Write = std::function<void(std::span<const std::byte>)>;
  // Keeps bytes where they are.
  using Owner = std::shared_ptr<const void>;

  WriteBehind(Write write, TraceRow row);
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // Lets go of the owner when the bytes are written, or never will be. Throws what an earlier write
  // threw, after which nothing is written any more.
  void add(std::span<const std::byte> bytes, Owner owner);
  // Waits until all is written. Throws like add().
  void finish();
  // Lets go of every owner: what is not being written yet never is.
  void abandon() noexcept;

  const StageClock& busy() const { return busy_; }
  const StageClock& wait() const { return wait_; }  // of finish()

 private:
  struct Job {
    std::span<const std::byte> bytes;
    Owner owner;
  };

  void serve(TraceRow row);
  void check() const;

  Write write_;
  StageClock busy_ = 0;
  StageClock wait_ = 0;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the first of them is being written
  std::exception_ptr failure_;
  bool closing_ = false;
  std::jthread thread_;
};

}  // namespace corank
