// Tests of threads that do queued jobs.
#include "util/worker_queue.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using namespace corank;

TEST_CASE("each job is done once, on one of the threads, and one thread keeps the order") {
  for (const unsigned threads : {1u, 4u}) {
    std::vector<int> done;
    std::atomic<bool> known_worker = true;
    WorkerQueue<int>* jobs = nullptr;
    WorkerQueue<int> queue(threads, [&](int job, unsigned worker) {
      known_worker = known_worker && worker < threads;
      const auto lock = jobs->lock();
      done.push_back(job);
    });
    jobs = &queue;
    for (int job = 0; job < 1000; ++job) queue.submit(job);
    queue.finish();
    CHECK(known_worker);
    if (threads == 1) CHECK(std::ranges::is_sorted(done));
    std::ranges::sort(done);
    REQUIRE(done.size() == 1000);
    for (int job = 0; job < 1000; ++job) CHECK(done[static_cast<std::size_t>(job)] == job);
  }
}

TEST_CASE("a job may submit more jobs, and take queued ones") {
  std::atomic<int> sum = 0;
  WorkerQueue<int>* jobs = nullptr;
  WorkerQueue<int> queue(1, [&](int job, unsigned) {
    sum += job;
    auto lock = jobs->lock();
    if (job > 1) jobs->submit(job - 1, lock);
    while (const auto more = jobs->take(lock)) {
      sum += *more;
      if (*more > 1) jobs->submit(*more - 1, lock);
    }
  });
  jobs = &queue;
  queue.submit(10);
  queue.finish();
  CHECK(sum == 55);
}

TEST_CASE("the first failure of a job drops the others and is thrown from then on") {
  std::latch may_fail(1);
  const auto token = std::make_shared<int>(0);
  std::atomic<int> begun = 0;
  WorkerQueue<std::shared_ptr<int>> queue(1, [&](const std::shared_ptr<int>&, unsigned) {
    may_fail.wait();
    throw std::runtime_error("failure " + std::to_string(++begun));
  });
  for (int job = 0; job < 10; ++job) queue.submit(token);
  may_fail.count_down();
  CHECK_THROWS_WITH(queue.finish(), "failure 1");
  CHECK(token.use_count() == 1);
  CHECK_THROWS_WITH(queue.submit(token), "failure 1");
  CHECK_THROWS_WITH(queue.check(), "failure 1");
  auto lock = queue.lock();
  CHECK_THROWS_WITH(queue.wait(lock, {}, [] { return true; }), "failure 1");
  CHECK(begun == 1);
}

TEST_CASE("abandoned jobs are dropped, and those at work are waited for") {
  std::latch has_begun(1), may_end(1);
  std::atomic<int> begun = 0, ended = 0;
  WorkerQueue<int> queue(1, [&](int, unsigned) {
    ++begun;
    has_begun.count_down();
    may_end.wait();
    ++ended;
  });
  for (int job = 0; job < 5; ++job) queue.submit(job);
  has_begun.wait();
  const std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    may_end.count_down();
  });
  queue.abandon();
  CHECK(ended == 1);
  queue.finish();
  CHECK(begun == 1);
}

TEST_CASE("waiting for a job ends where a stop is requested, or in time") {
  std::latch may_end(1);
  std::stop_source stop;
  WorkerQueue<int> queue(1, [&](int, unsigned) { may_end.wait(); });
  queue.submit(0);
  auto lock = queue.lock();
  const auto never = [] { return false; };
  const auto latest = TraceClock::now() + std::chrono::milliseconds(5);
  CHECK(!queue.wait_until(lock, stop.get_token(), latest, never));
  CHECK(TraceClock::now() >= latest);
  CHECK(queue.wait_until(lock, stop.get_token(), latest, [] { return true; }));
  stop.request_stop();
  CHECK_THROWS_AS(queue.wait(lock, stop.get_token(), never), Interrupted);
  lock.unlock();
  may_end.count_down();
}
