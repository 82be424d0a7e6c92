#include "exec/output_checksum.hpp"

#include <tbb/task_arena.h>

#include <atomic>

#include "format/rows.hpp"
#include "util/parallel_for.hpp"
#include "verify/checksum.hpp"

namespace corank {
namespace {

// Min bytes per task: smaller tasks cost more to schedule than to run.
constexpr std::uint64_t task_bytes = std::uint64_t{256} << 10;

}  // namespace

std::uint64_t output_checksum(const KeyLayout& layout,
                              std::span<const std::span<const std::byte>> pieces) {
  std::atomic<std::uint64_t> sum = 0;
  for (const std::span<const std::byte> piece : pieces) {
    const auto parts = parts_of(layout, piece, task_bytes);
    tbb::this_task_arena::isolate([&] {
      parallel_for(0, parts.size(), [&](std::uint64_t i) {
        RowReader batch(layout, parts[i]);
        std::uint64_t part_sum = 0;
        while (batch.next()) part_sum += rows_checksum(layout, batch.rows(), batch.count());
        sum += part_sum;
      });
    });
  }
  return sum;
}

}  // namespace corank
