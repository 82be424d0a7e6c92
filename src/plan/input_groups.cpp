#include "plan/input_groups.hpp"

#include <algorithm>
#include <cassert>

#include "run/block_reader.hpp"
#include "run/record_search.hpp"
#include "util/math.hpp"

namespace corank {
namespace {

// Threads that a group keeps busy, the one that reads it included: one thread decompresses about as
// fast as another sorts, and counts records about as fast as three sort them. See docs/tuning.md.
constexpr unsigned threads_of_compressed = 2, threads_of_plain = 4;
// Min size of a group of inputs that are cut.
constexpr std::uint64_t min_cut_bytes = 16 * MiB;

// Returns whether groups may begin within the inputs.
bool can_cut(std::span<const Run> inputs, const RecordFormat& format) {
  return !format.traits().has_fixed_size && format.traits().can_search &&
         std::ranges::none_of(inputs, &Run::is_stream);
}

std::vector<std::vector<Run>> cut(std::span<const Run> inputs, const RecordFormat& format,
                                  std::uint64_t count) {
  std::vector<std::vector<Run>> groups(count);
  const std::uint64_t group_bytes = divide_up(total_bytes(inputs), count);
  std::uint64_t begin = 0;  // of the input, among the bytes of all
  for (const Run& input : inputs) {
    BlockReader reader(input);
    for (std::uint64_t from = 0, to = 0; from < input.records(); from = to) {
      const std::uint64_t group = (begin + from) / group_bytes;
      const std::uint64_t end = (group + 1) * group_bytes - begin;
      to = end < input.records() ? next_record(reader, format, end - 1) : input.records();
      groups[group].push_back(input.subspan(from, to - from));
    }
    begin += input.records();
  }
  for (std::vector<Run>& group : groups)
    if (group.empty()) group.push_back(inputs.back().subspan(0, 0));  // records are long
  return groups;
}

std::vector<std::vector<Run>> divide(std::span<const Run> inputs, std::uint64_t count) {
  assert(count == 1 || (count != 0 && count <= inputs.size()));
  std::vector<std::vector<Run>> groups;
  for (std::uint64_t later = count - 1; later != 0; --later) {
    const std::uint64_t bytes_of_group = total_bytes(inputs) / (later + 1);
    std::uint64_t bytes = inputs.front().bytes();
    std::size_t size = 1;
    // An input belongs to the group if that has room for half of it. Later groups need one each.
    while (size + later < inputs.size() && bytes + inputs[size].bytes() / 2 < bytes_of_group)
      bytes += inputs[size++].bytes();
    groups.emplace_back(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(size));
    inputs = inputs.subspan(size);
  }
  groups.emplace_back(inputs.begin(), inputs.end());
  return groups;
}

}  // namespace

std::uint64_t useful_groups(std::span<const Run> inputs, const RecordFormat& format,
                            unsigned threads) {
  if (inputs.empty() || std::ranges::any_of(inputs, &Run::is_pipe)) return 1;
  if (std::ranges::any_of(inputs, &Run::is_stream))
    return std::clamp<std::uint64_t>(threads / threads_of_compressed, 1, inputs.size());
  if (format.traits().has_fixed_size) return 1;
  const std::uint64_t max_groups =
      can_cut(inputs, format) ? total_bytes(inputs) / min_cut_bytes : inputs.size();
  const std::uint64_t groups = std::min<std::uint64_t>(threads / threads_of_plain, max_groups);
  return groups > 1 && std::ranges::all_of(inputs, &Run::is_cached) ? groups : 1;
}

std::vector<std::vector<Run>> group_inputs(std::span<const Run> inputs, const RecordFormat& format,
                                           std::uint64_t count) {
  const bool is_cut = count > 1 && can_cut(inputs, format) && total_bytes(inputs) != 0;
  return is_cut ? cut(inputs, format, count) : divide(inputs, count);
}

}  // namespace corank
