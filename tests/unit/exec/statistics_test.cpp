// Tests of the bottleneck in the statistics: computed from given figures, and of merges with one
// slow stage.
#include "exec/statistics.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>

#include "io/file.hpp"
#include "support/catch.hpp"
#include "support/merge_case.hpp"

using namespace corank;
using namespace corank::test;

namespace {

Stats of(double seconds, const Stats::Busy& busy, const Stats::Waits& waits) {
  Stats stats;
  stats.seconds = seconds;
  stats.bytes_written = 1'000'000;
  stats.busy = busy;
  stats.waits = waits;
  return stats;
}

std::string bound_of(const Stats& stats) {
  return find_bound(stats, stats.seconds, "writing output").what;
}

// A pipe moves so much at a time, and then rests.
constexpr std::size_t moved_bytes = 4096;
constexpr std::chrono::milliseconds rest{5};

// Two runs, and a named pipe.
struct PipedCase : MergeCase {
  PipedCase() : MergeCase("a:u64,p:u64", "a"), pipe(folder / "pipe") {
    Random random(41);
    for (int i = 0; i < 2; ++i)
      add_run(random_records(options.record, 20'000, Values::any, random));
    options.backend = BackendChoice::cpu;
    options.memory_bytes = 4 << 20;
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  }
  std::filesystem::path pipe;
};

}  // namespace

TEST_CASE("the bound is the stage that holds up the others") {
  SECTION("reading, where a device has few of the units that it could have") {
    // The cutter waits for the readers; 1.1 of 4 units are in flight, yet some unit always is.
    const Stats stats = of(0.73, {.read = 5.5, .cut = 0.03, .merge = 0.7, .write = 0.08},
                           {.read_for_cut = 0.1,
                            .cut_for_read = 0.65,
                            .cut_for_merge = 0.05,
                            .merge_for_cut = 0.07,
                            .merge_for_write = 0.05,
                            .write_for_merge = 0.65});
    CHECK(bound_of(stats) == "reading");
    CHECK(find_bound(stats, 0.73, "").ceiling_bytes_per_second > 1'000'000 / 0.73);
  }
  SECTION("merging, where all units are on a device") {
    const Stats stats = of(1, {.read = 0.4, .cut = 0.05, .merge = 3.9, .write = 0.1},
                           {.read_for_cut = 7.6,
                            .cut_for_read = 0.05,
                            .cut_for_merge = 0.9,
                            .merge_for_cut = 0.01,
                            .merge_for_write = 0.1,
                            .write_for_merge = 0.9});
    CHECK(bound_of(stats) == "merging");
    const double ceiling = find_bound(stats, 1, "").ceiling_bytes_per_second;
    CHECK(std::abs(ceiling * 0.99 - 1'000'000) < 1);
  }
  SECTION("merging by all cores, one unit after another") {
    CHECK(bound_of(of(1, {.read = 0.3, .cut = 0.1, .merge = 0.9, .write = 0.05, .verify = 0.1},
                      {.cut_for_read = 0.05,
                       .cut_for_merge = 0.85,
                       .merge_for_cut = 0.1,
                       .merge_for_write = 0.1,
                       .write_for_merge = 0.9})) == "merging");
  }
  SECTION("cutting, where runs are many") {
    CHECK(bound_of(of(1, {.read = 0.3, .cut = 0.8, .merge = 0.9, .write = 0.1},
                      {.cut_for_read = 0.1,
                       .cut_for_merge = 0.1,
                       .merge_for_cut = 0.2,
                       .write_for_merge = 0.9})) == "cutting");
  }
  SECTION("writing, where units wait for the writer") {
    CHECK(bound_of(of(1, {.read = 0.3, .cut = 0.05, .merge = 0.4, .write = 0.9},
                      {.cut_for_read = 0.05,
                       .cut_for_merge = 0.9,
                       .merge_for_cut = 0.6,
                       .merge_for_write = 3,
                       .write_for_merge = 0.1})) == "writing output");
  }
  SECTION("writing past the page cache, where units wait for free buffers") {
    CHECK(bound_of(of(1, {.read = 0.3, .cut = 0.05, .merge = 0.8, .write = 0.85, .verify = 0.1},
                      {.cut_for_read = 0.05,
                       .cut_for_merge = 0.9,
                       .merge_for_cut = 0.4,
                       .merge_for_write = 2.5,
                       .write_for_merge = 0.95})) == "writing output");
  }
  SECTION("writing, where most of the time went into making it durable") {
    CHECK(bound_of(of(1, {.read = 0.3, .cut = 0.01, .merge = 0.2, .write = 0.7},
                      {.cut_for_read = 0.25, .write_for_merge = 0.25})) == "writing output");
  }
  SECTION("compressing") {
    CHECK(bound_of(of(1, {.cut = 0.05, .merge = 0.5, .write = 0.1, .compress = 2},
                      {.cut_for_merge = 0.9,
                       .merge_for_write = 2,
                       .write_for_merge = 0.1,
                       .write_for_compress = 0.8})) == "compressing");
  }
  SECTION("verifying, where units stay in the pipeline for it") {
    CHECK(bound_of(of(1, {.cut = 0.05, .merge = 0.4, .write = 0.1, .verify = 1.5},
                      {.cut_for_merge = 0.9, .merge_for_write = 0.1, .write_for_merge = 0.8})) ==
          "verifying");
  }
  SECTION("nothing, where nothing took time") {
    CHECK(bound_of(of(1, {}, {})).empty());
    CHECK(find_bound(of(1, {}, {}), 0, "").what.empty());
  }
}

TEST_CASE("a run that comes slowly is the bound") {
  PipedCase test;
  const std::jthread feeder([&] {
    const FileDescriptor file(::open(test.pipe.c_str(), O_WRONLY | O_CLOEXEC));
    const std::span<const std::byte> all = test.runs.back();
    for (std::size_t at = 0; at < all.size(); at += moved_bytes) {
      write_all(file, all.subspan(at, std::min(moved_bytes, all.size() - at)), test.pipe);
      std::this_thread::sleep_for(rest);
    }
  });
  test.paths.back() = test.pipe;
  CHECK(merge(test.paths, "/dev/null", test.options).bound.what == "reading");
}

TEST_CASE("an output that is taken slowly is the bound") {
  PipedCase test;
  const std::jthread taker([&] {
    const FileDescriptor file(::open(test.pipe.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, moved_bytes> taken;
    while (::read(file.get(), taken.data(), taken.size()) > 0) std::this_thread::sleep_for(rest);
  });
  CHECK(merge(test.paths, test.pipe, test.options).bound.what == "writing " + test.pipe.string());
}
