// Writes in order, behind whoever makes what is written, so that nobody else waits for a device.
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

#include "util/stopwatch.hpp"

namespace corank {

// By two threads: one writes while the other looks at what was written.
class WriteBehind {
 public:
  // Given the next bytes.
  using Write = std::function<void(std::span<const std::byte>)>;
  using Look = std::function<void()>;
  // Keeps bytes as they are.
  using Owner = std::shared_ptr<const void>;

  WriteBehind(Write write, TraceRow row);
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // Lets go of the owner when the bytes are written, or never will be. Throws what an earlier write
  // or look threw, after which there is neither any more.
  void add(std::span<const std::byte> bytes, Owner owner);
  // Calls `look` after all that was added is written; in order, and lets go of it like of an owner.
  void then(Look look);
  // Waits until all is written and looked at. Throws like add().
  void finish();
  // Lets go of all but what is being written or looked at, which it waits for.
  void abandon() noexcept;

  const StageClock& busy() const { return busy_; }  // with writing

 private:
  struct Job {
    std::span<const std::byte> bytes;
    Owner owner;
    Look look;  // where there are no bytes
  };

  void close();
  void add(Job job);
  void write_jobs(TraceRow row);
  void verify_jobs();
  template <class Act>
  void serve(std::deque<Job>& from, Act act);
  bool idle() const { return jobs_.empty() && written_.empty() && at_work_ == 0; }

  Write write_;
  StageClock busy_ = 0;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_, written_;
  unsigned at_work_ = 0;  // threads
  std::exception_ptr failure_;
  bool closing_ = false;
  std::jthread writer_, verifier_thread_;
};

}  // namespace corank
