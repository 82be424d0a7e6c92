// The plan of a merge as text: golden, since threads, memory and io are given.
#include <cstring>
#include <string>
#include <vector>

#include "corank/merge.hpp"
#include "plan/plan.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Writes `count` runs of `records` ascending 16-byte records each.
std::vector<std::filesystem::path> write_runs(const TemporaryFolder& folder, unsigned count,
                                              std::uint64_t records) {
  std::vector<std::filesystem::path> runs;
  for (unsigned run = 0; run < count; ++run) {
    std::vector<std::byte> bytes(records * 16);
    for (std::uint64_t i = 0; i < records; ++i) std::memcpy(bytes.data() + i * 16, &i, 8);
    runs.push_back(folder / ("run" + std::to_string(run)));
    write_file(runs.back(), bytes);
  }
  return runs;
}

Options plain_options() {
  Options options;
  options.record = Schema::parse("key:u64,value:u64");
  options.backend = BackendChoice::cpu;
  options.io = Io::buffered;
  options.threads = 2;
  options.memory_bytes = std::uint64_t{64} << 20;
  return options;
}

}  // namespace

TEST_CASE("a plan says what a merge does", "[plan]") {
  const TemporaryFolder folder;
  const auto runs = write_runs(folder, 3, 1000);
  CHECK(explain_merge(runs, "out.bin", plain_options()) ==
        "merge 3 runs, 46.9 KiB, fixed-size records of 16 bytes\n"
        "pass 1 of 1  merge 3 runs: 46.9 KiB -> out.bin\n"
        "  read       buffered, up to 171 chunks of 128.0 KiB\n"
        "  merge      cpu (asked for), 2 threads, units of 4.0 MiB, 4 in flight\n"
        "  operators  none\n"
        "  write      1 partition\n"
        "  verify     order, and that all records were written\n"
        "  memory     64.0 MiB for buffers\n"
        "  bound      probably writing one file; several parts are written faster\n");
  CHECK(!std::filesystem::exists("out.bin"));
}

TEST_CASE("a plan has the operators in their order", "[plan]") {
  const TemporaryFolder folder;
  const auto runs = write_runs(folder, 2, 10);
  Options options = plain_options();
  options.query.on_equal = OnEqual::last;
  options.query.where = parse_where("value < 5");
  options.query.limit = 3;
  const std::string text = explain_merge(runs, folder / "out.zst", options);
  CHECK(text.find("operators  filter, last of equal keys, limit\n") != std::string::npos);
  CHECK(text.find("1 partition, compressed by zst\n") != std::string::npos);
  CHECK(text.find("bound      probably compressing\n") != std::string::npos);
}

TEST_CASE("a plan has the passes that the merge then runs", "[plan]") {
  const TemporaryFolder folder;
  const auto runs = write_runs(folder, 40, 100);
  Options options = plain_options();
  options.memory_bytes = std::uint64_t{512} << 10;
  const std::string text = explain_merge(runs, folder / "out", options);
  const Stats stats = merge(runs, folder / "out", options);
  REQUIRE(stats.passes > 1);
  const std::string last = std::to_string(stats.passes);
  CHECK(text.find("pass " + last + " of " + last + "  merge ") != std::string::npos);
  CHECK(text.find(" -> a temporary run in " + folder.path().string() + "\n") != std::string::npos);
}

TEST_CASE("a plan of parts has partitions, and is refused as the merge is", "[plan]") {
  const TemporaryFolder folder;
  const auto runs = write_runs(folder, 2, 1000);
  Options options = plain_options();
  options.parts = 4;
  const std::string text = explain_merge(runs, folder / "parts", options);
  CHECK(text.find("4 partitions\n") != std::string::npos);
  CHECK(text.find("bound      probably memory bandwidth\n") != std::string::npos);
  CHECK(!std::filesystem::exists(folder / "parts"));
  options.memory_bytes = 1;
  CHECK_THROWS_AS(explain_merge(runs, folder / "parts", options), Error);
}
