// A shared object that contains the library: merges two runs in memory.
#include <array>
#include <corank/merge.hpp>
#include <cstddef>
#include <cstdint>
#include <span>

// Returns 0 if the merge is right.
extern "C" int merge_two_runs() {
  const std::array<std::uint64_t, 3> odd{1, 3, 5};
  const std::array<std::uint64_t, 2> even{2, 4};
  std::array<std::uint64_t, 5> merged{};
  corank::Options options;
  options.record = corank::Schema::parse("number:u64");
  const std::span<const std::byte> runs[] = {std::as_bytes(std::span(odd)),
                                             std::as_bytes(std::span(even))};
  corank::merge(runs, std::as_writable_bytes(std::span(merged)), options);
  return merged == std::array<std::uint64_t, 5>{1, 2, 3, 4, 5} ? 0 : 1;
}
