// A parallel loop that is never left incomplete without an exception.
#pragma once

#include <tbb/parallel_for.h>
#include <tbb/task_group.h>

#include <cassert>
#include <cstdint>

namespace corank {

// Calls body(i) for all i from `first` up to `end`, in tasks of the caller's arena, unless one
// throws. The loop has a cancellation context of its own. A plain tbb::parallel_for skips
// iterations silently when a surrounding task throws, and its caller would use missing results.
template <class Body>
void parallel_for(std::uint64_t first, std::uint64_t end, const Body& body) {
  assert(first <= end);
  tbb::task_group_context apart(tbb::task_group_context::isolated);
  tbb::parallel_for(first, end, body, apart);
}

}  // namespace corank
