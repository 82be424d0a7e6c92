// Starts oneTBB's threads and reserves their memory, before a merge takes all other memory.
#pragma once

#include <cstddef>

namespace corank {

// Starts the oneTBB threads that `parallelism` threads need, the caller's included. Threads that
// exist already count and stay; tbb::global_control may allow fewer. Throws std::system_error or
// std::bad_alloc if the system lacks threads, or memory for them. Thread-safe.
//
// Otherwise oneTBB starts threads and allocates when tasks arrive, and survives no failure then. A
// thread that cannot start another one ends the process. A task that does not fit its queue is
// lost, and its waiter hangs.
void start_workers(unsigned parallelism);

// Returns the value of tbb::global_control that allows `parallelism` threads, and the process no
// fewer than before.
std::size_t allowed_parallelism(unsigned parallelism);

// Reserves memory for a thread that calls oneTBB. Allocates more than a queue and some tasks need
// and frees it: the allocator keeps it for the thread.
void leave_memory_to_thread();

}  // namespace corank
