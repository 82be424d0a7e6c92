#include "util/worker_allowance.hpp"

#include <sys/mman.h>
#include <tbb/cache_aligned_allocator.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "util/math.hpp"

namespace corank {
namespace {

// Bytes that allocators map when threads first allocate: in total, and per thread.
constexpr std::size_t room_bytes = 8 * MiB;
constexpr std::size_t room_bytes_of_thread = MiB;
// Maximum wait for all threads to arrive. If oneTBB is busy elsewhere, its threads come late or
// never.
constexpr std::chrono::milliseconds patience{100};

// Throws std::bad_alloc unless there is so much memory.
void try_room(std::size_t bytes) {
  void* const room =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  ::munmap(room, bytes);
}

// Throws unless the system can start `count` more threads, with stacks no smaller than oneTBB's,
// and has the memory that their allocators map.
void try_threads(unsigned count) {
  std::latch tried(1);
  std::vector<std::jthread> threads;
  try {
    while (threads.size() < count) threads.emplace_back([&] { tried.wait(); });
    try_room(room_bytes + count * room_bytes_of_thread);
  } catch (...) {
    tried.count_down();
    throw;
  }
  tried.count_down();
}

std::mutex starting;
unsigned started = 1;  // oneTBB's threads, and the caller's; guarded by `starting`

// Starts threads that were tried, as many as are allowed. Holds `starting`.
void start_workers(unsigned parallelism) {
  const auto allowed =
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  parallelism = static_cast<unsigned>(std::min<std::size_t>(parallelism, allowed));
  if (parallelism <= started) return;
  // A waiting thread takes no second task, so each thread takes one.
  std::mutex mutex;
  std::condition_variable arrived;
  unsigned missing = parallelism;
  tbb::task_arena arena(static_cast<int>(parallelism));
  arena.execute([&] {
    tbb::parallel_for(
        0u, parallelism,
        [&](unsigned) {
          leave_memory_to_thread();
          std::unique_lock waiting(mutex);
          if (--missing == 0) return arrived.notify_all();
          arrived.wait_for(waiting, patience, [&] { return missing == 0; });
        },
        tbb::simple_partitioner());
  });
  started = parallelism;
}

// All allowances that exist.
class Allowances {
 public:
  void add(std::size_t parallelism) {
    constexpr auto parameter = tbb::global_control::max_allowed_parallelism;
    const std::lock_guard lock(mutex_);
    if (parallelism > tbb::global_control::active_value(parameter)) {
      // The new control comes before the old one goes, so that the default is never between.
      auto control = std::make_unique<tbb::global_control>(parameter, parallelism);
      control_ = std::move(control);
    }
    ++count_;
  }

  void remove() {
    const std::lock_guard lock(mutex_);
    assert(count_ != 0);
    if (--count_ == 0) control_.reset();
  }

 private:
  std::mutex mutex_;
  std::size_t count_ = 0;
  std::unique_ptr<tbb::global_control> control_;
};

Allowances& allowances() {
  static Allowances* const all = new Allowances;  // outlives threads that still merge at the exit
  return *all;
}

}  // namespace

void start_scheduler() {
  // oneTBB keeps its threads for as long as there is an arena. This one outlives threads that still
  // merge at the exit.
  [[maybe_unused]] static const tbb::task_arena* const keeper = [] {
    try_room(room_bytes);
    auto arena = std::make_unique<tbb::task_arena>(1);
    arena->initialize();
    return arena.release();
  }();
}

void leave_memory_to_thread() {
  using Memory = std::vector<std::byte, tbb::cache_aligned_allocator<std::byte>>;
  std::array<Memory, 16> blocks;
  // Close to the largest block that oneTBB's allocator cuts from slabs of the thread's own.
  for (Memory& block : blocks) block.reserve(8000);
}

WorkerAllowance::WorkerAllowance(unsigned parallelism) {
  assert(parallelism != 0);
  const std::lock_guard lock(starting);
  start_scheduler();
  // Before they are allowed: oneTBB would start threads while the tried ones take their places.
  if (parallelism > started) try_threads(parallelism - started);
  allowances().add(parallelism);
  try {
    start_workers(parallelism);
  } catch (...) {
    allowances().remove();
    throw;
  }
}

WorkerAllowance::~WorkerAllowance() {
  allowances().remove();
}

}  // namespace corank
