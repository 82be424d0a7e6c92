#include "util/memory_budget.hpp"

#include <unistd.h>

#include <algorithm>

#include "util/buffer_pool.hpp"

namespace corank {

std::uint64_t memory_budget(std::uint64_t wanted_bytes) {
  if (wanted_bytes != 0) return wanted_bytes;
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  return std::min(pages * page_bytes() / 4, std::uint64_t{4} << 30);
}

}  // namespace corank
