#include "verify/output_verifier.hpp"

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cassert>
#include <optional>

#include "corank/error.hpp"
#include "format/key_order.hpp"
#include "util/parallel_for.hpp"

namespace corank {
namespace {

// Bytes per block: few enough to stay in L1 for the second pass over them.
constexpr std::uint64_t block_bytes = std::uint64_t{16} << 10;
// Minimum bytes per task; smaller tasks cost more to schedule than to run.
constexpr std::uint64_t task_bytes = std::uint64_t{1} << 20;

[[noreturn]] void throw_disorder(std::uint64_t rank) {
  throw Corrupted(fmt::format("record {} of the output does not follow its predecessor", rank));
}

}  // namespace

bool OutputVerifier::follows(const std::byte* record, const std::byte* predecessor) const {
  switch (kind_) {
    case OutputOrder::Kind::none:
      return true;
    case OutputOrder::Kind::rising:
      return !record_less(encoding_.layout(), record, predecessor);
    default:
      return record_less(encoding_.layout(), predecessor, record);
  }
}

void OutputVerifier::look(std::span<const std::byte> bytes, std::uint64_t rank, unsigned threads) {
  const KeyLayout layout = encoding_.layout();
  const std::uint32_t record_bytes = layout.record_bytes;
  assert(threads != 0 && bytes.size() % record_bytes == 0);
  const std::uint64_t records = bytes.size() / record_bytes;
  const bool strict = kind_ == OutputOrder::Kind::strict;
  const auto verify_range = [&](std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t in_block = std::max<std::uint64_t>(block_bytes / record_bytes, 1);
    std::uint64_t sum = 0;
    for (std::uint64_t first = begin; first < end; first += in_block) {
      const std::uint64_t count = std::min(in_block, end - first);
      const auto block = bytes.subspan(first * record_bytes, count * record_bytes);
      const std::uint64_t before = first == 0 ? 0 : 1;
      const std::byte* const predecessor = block.data() - before * record_bytes;
      std::optional<OrderedSum> checked;
      if (kind_ != OutputOrder::Kind::none && sum_)
        checked = sum_and_order(sum_, layout, block, strict);
      if (kind_ != OutputOrder::Kind::none &&
          !(checked && checked->ascends && (before == 0 || follows(block.data(), predecessor)))) {
        const std::uint64_t descent = first_descent(layout, predecessor, count + before, strict);
        if (descent != count + before) throw_disorder(rank + first - before + descent);
      }
      if (sum_) sum += checked ? checked->sum : sum_(block, record_bytes);
    }
    fingerprint_ += sum;
  };
  const std::uint64_t in_task = std::max<std::uint64_t>(task_bytes / record_bytes, 1);
  const std::uint64_t tasks =
      std::clamp<std::uint64_t>((records + in_task - 1) / in_task, 1, threads);
  if (tasks == 1) return verify_range(0, records);
  // Isolated: while this thread waits for its tasks, it must not start others, which may take long.
  tbb::this_task_arena::isolate([&] {
    parallel_for(0, tasks, [&](std::uint64_t task) {
      verify_range(records * task / tasks, records * (task + 1) / tasks);
    });
  });
}

void OutputVerifier::follow(std::span<const std::byte> bytes, std::uint64_t rank) {
  if (bytes.empty()) return;
  assert(bytes.size() % encoding_.record_bytes() == 0);
  const auto first = bytes.first(encoding_.record_bytes());
  const auto last = bytes.last(encoding_.record_bytes());
  if (last_.empty())
    first_.assign(first.begin(), first.end());
  else if (!follows(first.data(), last_.data()))
    throw_disorder(rank);
  last_.assign(last.begin(), last.end());
}

void OutputVerifier::check_edge(const OutputVerifier& next) const {
  assert(!empty() && !next.empty());
  if (!follows(next.first_.data(), last_.data()))
    throw Corrupted(
        "a part of the output begins with a record that does not follow the part before");
}

}  // namespace corank
