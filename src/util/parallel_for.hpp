// Loops over all cores that are never left half done.
#pragma once

#include <tbb/parallel_for.h>
#include <tbb/task_group.h>

#include <cstdint>

namespace corank {

// Calls body(i) for all i from `first` to `end`, in tasks of the caller's arena, unless one throws.
// Where the tasks around it are cancelled, since one of them has thrown, tbb::parallel_for alone
// would leave out the rest of its own without a word, and who called it would go on with what is
// not there.
template <class Body>
void parallel_for(std::uint64_t first, std::uint64_t end, const Body& body) {
  tbb::task_group_context apart(tbb::task_group_context::isolated);
  tbb::parallel_for(first, end, body, apart);
}

}  // namespace corank
