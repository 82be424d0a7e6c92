// Starts oneTBB's threads and reserves their memory, before a merge takes all other memory.
#pragma once

#include <cstddef>

namespace corank {

// Lets oneTBB use as many threads as any allowance wants, until none is left, and no fewer than
// without. Thread-safe.
//
// The smallest of several tbb::global_control objects holds. Without allowances, a job with few
// threads would limit one with many that runs at the same time.
class WorkerAllowance {
 public:
  // Allows and starts `parallelism` threads, the caller's included. Threads that exist already
  // count and stay; a tbb::global_control of the process may allow fewer. Throws std::system_error
  // or std::bad_alloc if the system lacks threads, or memory for them.
  //
  // Otherwise oneTBB starts threads and allocates when tasks arrive, and survives no failure then.
  // A thread that cannot start another one ends the process. A task that does not fit its queue is
  // lost, and its waiter hangs.
  explicit WorkerAllowance(unsigned parallelism);
  ~WorkerAllowance();
  WorkerAllowance(const WorkerAllowance&) = delete;
  WorkerAllowance& operator=(const WorkerAllowance&) = delete;
};

// Starts the scheduler of oneTBB, which then stays. Throws std::bad_alloc if there is no memory for
// it: it may hang then instead of failing, so this must come before what takes memory.
void start_scheduler();

// Reserves memory for a thread that calls oneTBB. Allocates more than a queue and some tasks need
// and frees it: the allocator keeps it for the thread.
void leave_memory_to_thread();

}  // namespace corank
