#include "exec/output_checksum.hpp"

#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "corank/error.hpp"
#include "format/framing.hpp"
#include "util/parallel_for.hpp"
#include "verify/checksum.hpp"

namespace corank {
namespace {

// Min bytes per task: smaller tasks cost more to schedule than to run.
constexpr std::uint64_t task_bytes = std::uint64_t{256} << 10;

std::uint64_t fixed_checksum(std::span<const std::byte> bytes, std::uint32_t record_bytes) {
  const std::uint64_t task = std::max<std::uint64_t>(task_bytes / record_bytes, 1) * record_bytes;
  std::atomic<std::uint64_t> sum = 0;
  tbb::this_task_arena::isolate([&] {
    parallel_for(0, (bytes.size() + task - 1) / task, [&](std::uint64_t i) {
      const std::uint64_t from = i * task;
      sum +=
          records_checksum(bytes.subspan(from, std::min(task, bytes.size() - from)), record_bytes);
    });
  });
  return sum;
}

std::uint64_t text_checksum(const TextLayout& layout, std::span<const std::byte> bytes) {
  const auto parts = parts_of(layout, bytes, task_bytes);
  std::atomic<std::uint64_t> sum = 0;
  tbb::this_task_arena::isolate([&] {
    parallel_for(0, parts.size(), [&](std::uint64_t i) {
      std::array<PrefixRef, 256> refs;
      for (std::span<const std::byte> rest = parts[i]; !rest.empty();) {
        const Indexed found = index_records(layout, rest, true, refs);
        if (found.records == 0) throw Corrupted("merged output does not contain a whole record");
        sum += prefix_refs_checksum(layout, std::span(refs).first(found.records));
        rest = rest.subspan(found.bytes);
      }
    });
  });
  return sum;
}

}  // namespace

std::uint64_t output_checksum(const TextLayout* text, std::uint32_t record_bytes,
                              std::span<const std::span<const std::byte>> pieces) {
  std::uint64_t sum = 0;
  for (const std::span<const std::byte> piece : pieces)
    sum += text ? text_checksum(*text, piece) : fixed_checksum(piece, record_bytes);
  return sum;
}

}  // namespace corank
