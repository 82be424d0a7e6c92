// oneTBB's threads, started while there is room for them.
#pragma once

namespace corank {

// Starts oneTBB's threads: as many as `parallelism` threads at once need beside the caller, unless
// tbb::global_control allows fewer or they are there already: they stay. Throws std::system_error
// or std::bad_alloc where the system does not give as many, or no memory for them. Thread-safe.
//
// oneTBB starts threads and takes memory when tasks come, and survives no failure then: a thread
// that cannot start another ends the process, and a task that its queue has no memory for is lost,
// so that who waits for it waits for ever. So both are had before what else a merge takes.
void start_workers(unsigned parallelism);

// The same for a thread that calls oneTBB: takes memory and gives it back to the allocator, which
// keeps it for the thread: more than a queue and some tasks need.
void leave_memory_to_thread();

}  // namespace corank
