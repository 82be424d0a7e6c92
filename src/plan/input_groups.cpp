#include "plan/input_groups.hpp"

#include <algorithm>
#include <cassert>

namespace corank {

std::uint64_t useful_groups(std::span<const Run> inputs, unsigned threads) {
  constexpr unsigned threads_of_group = 2;  // one decompresses, another sorts
  if (std::ranges::none_of(inputs, &Run::is_stream) || std::ranges::any_of(inputs, &Run::is_pipe))
    return 1;
  return std::clamp<std::uint64_t>(threads / threads_of_group, 1, inputs.size());
}

std::vector<std::span<const Run>> group_inputs(std::span<const Run> inputs, std::uint64_t count) {
  assert(count == 1 || (count != 0 && count <= inputs.size()));
  std::vector<std::span<const Run>> groups;
  for (std::uint64_t later = count - 1; later != 0; --later) {
    const std::uint64_t bytes_of_group = total_bytes(inputs) / (later + 1);
    std::uint64_t bytes = inputs.front().bytes();
    std::size_t size = 1;
    // An input belongs to the group if that has room for half of it. Later groups need one each.
    while (size + later < inputs.size() && bytes + inputs[size].bytes() / 2 < bytes_of_group)
      bytes += inputs[size++].bytes();
    groups.push_back(inputs.first(size));
    inputs = inputs.subspan(size);
  }
  groups.push_back(inputs);
  return groups;
}

}  // namespace corank
