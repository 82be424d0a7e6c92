// Background writer: writes queued buffers in order, so that the merge never waits for a device.
//
// One thread writes; another verifies written bytes. An owner keeps each queued buffer alive. The
// error of either thread is thrown by the next call, and everything queued is then dropped.
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

class WriteBehind {
 public:
  // Writes the next bytes.
  using Write = std::function<void(std::span<const std::byte>)>;
  // Verifies written bytes.
  using Look = std::function<void()>;
  // Keeps queued bytes alive and unchanged.
  using Owner = std::shared_ptr<const void>;

  WriteBehind(Write write, TraceRow row);
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // Queues `bytes`, and releases `owner` once they are written or dropped. Throws the error of an
  // earlier write or verification, after which nothing more is written.
  void add(std::span<const std::byte> bytes, Owner owner);
  // Queues `look`, to be called once everything queued before it is written. Calls are in order;
  // `look` is released after its call, or when dropped.
  void then(Look look);
  // Waits until everything queued is written and verified. Throws as add() does.
  void finish();
  // Drops the queue, and waits for the write and the verification in progress.
  void abandon() noexcept;

  const StageClock& busy() const { return busy_; }  // writing

 private:
  struct Job {
    std::span<const std::byte> bytes;
    Owner owner;
    Look look;  // set if there are no bytes
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

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Job> jobs_, written_;
  unsigned at_work_ = 0;  // threads with a job
  std::exception_ptr failure_;
  bool closing_ = false;
  std::jthread writer_, verifier_thread_;
};

}  // namespace corank
