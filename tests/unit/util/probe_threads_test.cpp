// Tests of threads that wait for storage.
#include "util/probe_threads.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

#include "support/catch.hpp"

using namespace corank;

TEST_CASE("all probes of a round are in flight together, however small the rounds before") {
  ProbeThreads threads(8);
  threads.for_each(3, [](std::size_t) -> std::uint64_t {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // as a read that waits does
    return 1;
  });
  for (const std::size_t count : {8, 2, 5, 8}) {
    std::mutex mutex;
    std::condition_variable arrived;
    std::size_t in_flight = 0, met = 0;
    threads.for_each(count, [&](std::size_t) -> std::uint64_t {
      std::unique_lock lock(mutex);
      ++in_flight;
      arrived.notify_all();
      met += arrived.wait_for(lock, std::chrono::seconds(20), [&] { return in_flight == count; });
      return 1;
    });
    CHECK(met == count);
  }
  CHECK(threads.rounds() >= 5);
}
