// Groups of inputs that a sort reads at the same time.
#include "plan/input_groups.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Runs in memory, of bytes.
struct Inputs {
  explicit Inputs(std::initializer_list<std::uint64_t> sizes) {
    for (const std::uint64_t bytes : sizes)
      runs.emplace_back(std::span(memory).first(bytes), "run", 1);
  }
  std::vector<std::uint64_t> groups(std::uint64_t count) const {
    std::vector<std::uint64_t> sizes;
    const Run* next = runs.data();
    for (const std::span<const Run> group : group_inputs(runs, count)) {
      CHECK(group.data() == next);
      next = group.data() + group.size();
      sizes.push_back(group.size());
    }
    CHECK(next == runs.data() + runs.size());
    return sizes;
  }

  Bytes memory = Bytes(1000);
  std::vector<Run> runs;
};

}  // namespace

TEST_CASE("groups of inputs have about the same bytes, and none is empty", "[sort]") {
  using Sizes = std::vector<std::uint64_t>;
  CHECK(Inputs{}.groups(1) == Sizes{0});
  CHECK(Inputs{5, 5, 5}.groups(1) == Sizes{3});
  CHECK(Inputs{5, 5, 5}.groups(3) == Sizes{1, 1, 1});
  CHECK(Inputs{5, 5, 5, 5, 5, 5}.groups(3) == Sizes{2, 2, 2});
  CHECK(Inputs{100, 1, 1, 1}.groups(2) == Sizes{1, 3});
  CHECK(Inputs{1, 1, 1, 100}.groups(2) == Sizes{3, 1});
  CHECK(Inputs{100, 100, 1, 1}.groups(4) == Sizes{1, 1, 1, 1});
  CHECK(Inputs{0, 0, 0, 0}.groups(2) == Sizes{1, 3});
  CHECK(Inputs{10, 20, 30, 40, 50}.groups(2) == Sizes{3, 2});
}

TEST_CASE("only compressed files are read several at a time", "[sort]") {
  const Inputs plain{5, 5, 5, 5};
  CHECK(useful_groups(plain.runs, 16) == 1);
  const TemporaryFolder folder;
  std::vector<Run> runs;
  const auto add = [&](const std::string& name, const std::string& bytes) {
    write_file(folder / name, bytes_of_text(bytes));
    runs.emplace_back(folder / name, 1, Run::Opening{.decompress = true});
  };
  const std::string gzip("\x1f\x8b\x08\0", 4);
  for (const std::string name : {"a.gz", "b.gz", "c.gz"}) add(name, gzip);
  CHECK(useful_groups(runs, 16) == 3);
  CHECK(useful_groups(runs, 4) == 2);
  CHECK(useful_groups(runs, 3) == 1);
  CHECK(useful_groups({}, 16) == 1);
  add("plain", "line\n");
  CHECK(useful_groups(runs, 16) == 4);
  CHECK(useful_groups(std::span(runs).last(1), 16) == 1);
  while (runs.size() < 40) add(std::to_string(runs.size()) + ".gz", gzip);
  CHECK(useful_groups(runs, 32) == 16);
  CHECK(useful_groups(runs, 128) == 40);
}
