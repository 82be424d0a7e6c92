#include "run/pass_plan.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "util/buffer_pool.hpp"
#include "util/math.hpp"

namespace corank {

std::uint64_t records_of_pages(std::uint32_t record_bytes) {
  assert(record_bytes != 0);
  return page_bytes() / std::gcd(page_bytes(), std::uint64_t{record_bytes});
}

std::uint64_t first_chunk_records(const PassPlan& plan, std::uint32_t record_bytes,
                                  std::uint64_t run, std::uint64_t runs) {
  assert(run < runs && plan.chunk_records != 0);
  const std::uint64_t part = part_of(plan.chunk_records, run + 1, runs);
  return std::min(round_up(std::max<std::uint64_t>(part, 1), records_of_pages(record_bytes)),
                  plan.chunk_records);
}

bool shrink_to_fit_device(PassPlan& plan, std::uint32_t record_bytes) {
  constexpr std::uint64_t min_bytes = MiB;
  assert(plan.unit_records != 0 && plan.tokens != 0);
  if (plan.unit_records > 1 && plan.unit_bytes > min_bytes) {
    plan.unit_records /= 2;
    plan.unit_bytes = round_up(plan.unit_records * record_bytes, page_bytes());
  } else if (plan.tokens > 1) {
    plan.tokens /= 2;
  } else {
    return false;
  }
  return true;
}

}  // namespace corank
