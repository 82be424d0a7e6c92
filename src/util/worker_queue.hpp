// Threads that do queued jobs, and the lock of the state that jobs share with their clients.
//
// Any thread may submit jobs; a job may submit more. The first failure of a job drops all queued
// jobs, and every later submit(), wait() and finish() throws it. Shared state is guarded by lock(),
// and wait() tests its condition whenever a job ends. The destructor drops the queued jobs and
// waits for those at work.
#pragma once

#include <cassert>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "corank/error.hpp"
#include "util/stopwatch.hpp"

namespace corank {

template <class Job>
class WorkerQueue {
 public:
  using Lock = std::unique_lock<std::mutex>;
  // Does a job on thread number `worker`.
  using Work = std::function<void(Job& job, unsigned worker)>;

  // Throws std::system_error if the system lacks threads. State that `work` uses must outlive the
  // queue.
  WorkerQueue(unsigned threads, Work work) : work_(std::move(work)) {
    assert(threads != 0);
    try {
      for (unsigned worker = 0; worker < threads; ++worker)
        threads_.emplace_back([this, worker] { serve(worker); });
    } catch (...) {
      close();  // ends the threads that have started
      throw;
    }
  }
  ~WorkerQueue() { close(); }
  WorkerQueue(const WorkerQueue&) = delete;
  WorkerQueue& operator=(const WorkerQueue&) = delete;

  Lock lock() { return Lock(mutex_); }

  void submit(Job job) { submit(std::move(job), lock()); }
  void submit(Job job, const Lock& lock) {
    check(lock);
    jobs_.push_back(std::move(job));
    submitted_.notify_one();
  }

  // Returns the next job, for a job that does several at a time; nothing if none is queued.
  std::optional<Job> take([[maybe_unused]] const Lock& lock) {
    assert(owns(lock) && at_work_ != 0);
    if (jobs_.empty()) return std::nullopt;
    std::optional<Job> job(std::move(jobs_.front()));
    jobs_.pop_front();
    return job;
  }

  // Throws the first failure, if there is one.
  void check() { check(lock()); }
  void check([[maybe_unused]] const Lock& lock) const {
    assert(owns(lock));
    if (failure_) std::rethrow_exception(failure_);
  }

  // Waits until `is_done()`, at most until `latest`. Returns whether it is. Throws the first
  // failure, and Interrupted once `stop` is requested.
  template <class Done>
  bool wait_until(Lock& lock, const std::stop_token& stop, TraceClock::time_point latest,
                  Done is_done) {
    assert(owns(lock));
    const bool done =
        changed_.wait_until(lock, stop, latest, [&] { return failure_ || is_done(); });
    check(lock);
    if (!done && stop.stop_requested()) throw Interrupted();
    return done;
  }
  template <class Done>
  void wait(Lock& lock, const std::stop_token& stop, Done is_done) {
    assert(owns(lock));
    const bool done = changed_.wait(lock, stop, [&] { return failure_ || is_done(); });
    check(lock);
    if (!done) throw Interrupted();
  }
  // Makes wait() test its condition, for a job that changes shared state before it ends.
  void notify() { changed_.notify_all(); }

  // Waits until all jobs are done.
  void finish() {
    Lock held = lock();
    wait(held, {}, [this] { return jobs_.empty() && at_work_ == 0; });
  }
  // Drops the queued jobs, and waits for those at work.
  void abandon() noexcept {
    Lock held = lock();
    jobs_.clear();
    changed_.wait(held, [this] { return at_work_ == 0; });
    jobs_.clear();  // jobs at work may have submitted more
  }

  const StageClock& idle() const { return idle_; }  // of all threads, without a job

 private:
  [[maybe_unused]] bool owns(const Lock& lock) const {
    return lock.owns_lock() && lock.mutex() == &mutex_;
  }

  void close() noexcept {
    {
      const Lock held = lock();
      closing_ = true;
      jobs_.clear();
    }
    submitted_.notify_all();
  }

  void serve(unsigned worker) {
    Lock held = lock();
    for (;;) {
      {
        Stopwatch idling(idle_);
        submitted_.wait(held, [this] { return closing_ || !jobs_.empty(); });
      }
      if (closing_) return;
      ++at_work_;
      std::exception_ptr failure;
      {
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        held.unlock();
        try {
          work_(job, worker);
        } catch (...) {
          failure = std::current_exception();
        }
      }
      held.lock();
      --at_work_;
      if (!failure_) failure_ = failure;
      if (failure_) jobs_.clear();
      changed_.notify_all();
    }
  }

  Work work_;
  StageClock idle_ = 0;

  std::mutex mutex_;  // guards the members below, and the state that clients share with jobs
  std::condition_variable submitted_;
  std::condition_variable_any changed_;
  std::deque<Job> jobs_;
  unsigned at_work_ = 0;  // threads with a job
  std::exception_ptr failure_;
  bool closing_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace corank
