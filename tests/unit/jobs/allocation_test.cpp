// Tests that a merge survives any failed allocation: it succeeds, or throws and keeps the old
// output.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "corank/merge.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

// Number of allocations, over all threads, that succeed before one fails.
std::atomic<std::int64_t> before_failure = never;

}  // namespace

// The linker's --wrap option puts this in front of operator new, except within the standard
// library.
extern "C" {

void* __real__Znwm(std::size_t bytes);
void* __wrap__Znwm(std::size_t bytes);
void* __wrap__Znwm(std::size_t bytes) {
  if (before_failure.fetch_sub(1, std::memory_order_relaxed) == 0) throw std::bad_alloc();
  return __real__Znwm(bytes);
}
}

namespace {

// Names and contents of the files in the output folder.
using Outputs = std::vector<std::pair<std::string, std::string>>;

struct Failing {
  TemporaryFolder runs, outputs;
  std::vector<std::filesystem::path> paths;
  Options options;

  Failing(unsigned count, const std::function<std::string(unsigned)>& run) {
    for (unsigned i = 0; i < count; ++i) {
      paths.push_back(runs / ("run" + std::to_string(i)));
      write_file(paths.back(), bytes_of_text(run(i)));
    }
    options.record = Schema::parse("key:u32,value:u32");
    options.backend = BackendChoice::cpu;
    options.threads = 2;
    options.memory_bytes = std::uint64_t{2} << 20;
    options.overwrite = true;
  }

  Outputs found() const {
    Outputs all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(outputs.path()))
      if (entry.is_regular_file())
        all.emplace_back(entry.path().lexically_relative(outputs.path()), text_of(entry.path()));
    std::ranges::sort(all);
    return all;
  }

  // Merges repeatedly, with ever more allocations that succeed before one fails.
  void check(const std::string& output, const Outputs& old) const {
    const auto begin = [&] {
      for (const auto& entry : std::filesystem::directory_iterator(outputs.path()))
        std::filesystem::remove_all(entry.path());
      for (const auto& [name, text] : old) write_file(outputs / name, bytes_of_text(text));
    };
    // The first merge of a process allocates more than later ones.
    for (int merges = 0; merges < 2; ++merges) {
      begin();
      before_failure = never;
      merge(paths, outputs / output, options);
    }
    const std::int64_t allocations = never - before_failure;
    const Outputs right = found();
    REQUIRE(right != old);
    const std::int64_t step = 1 + allocations * exhaustive_step / 200;
    std::int64_t merges = 0, failed = 0;
    // Each of the last allocations is tried, because they occur while the output is published.
    const std::int64_t first_of_last = allocations - 20;
    for (std::int64_t succeed = 0; succeed < allocations;
         succeed += succeed < first_of_last ? step : 1) {
      begin();
      std::string failure;
      before_failure = succeed;
      try {
        merge(paths, outputs / output, options);
        before_failure = never;
      } catch (const std::bad_alloc&) {
        before_failure = never;
        failure = "no memory";
      } catch (const std::exception& error) {
        before_failure = never;
        failure = error.what();
      }
      CAPTURE(output, succeed, allocations, failure);
      CHECK((found() == (failure.empty() ? right : old)));
      CHECK((failure.empty() || failure.find("memory") != std::string::npos));
      // How many allocations there are varies with the threads, by more than the last ones.
      if (succeed >= first_of_last) continue;
      ++merges;
      failed += !failure.empty();
    }
    CHECK(failed > merges / 2);
  }
};

std::string records(unsigned run) {
  Random random(run);
  const Schema schema = Schema::parse("key:u32,value:u32");
  const auto keys = parse_keys("key", schema);
  return text_of(stably_sorted(schema, keys, random_records(schema, 30'000, Values::few, random)));
}

std::string lines(unsigned run) {
  std::string text;
  for (unsigned i = 0; i < 10'000; ++i) text += fmt::format("{:06},{}\n", i / 2, run);
  return text;
}

}  // namespace

TEST_CASE("where an allocation fails a merge of records is right or leaves the old output") {
  Failing merging(4, records);
  Options& options = merging.options;
  std::string output = "output";
  SECTION("as it is") {}
  SECTION("past the page cache") {
    options.io = Io::direct;
  }
  SECTION("mapped") {
    options.io = Io::mapped;
  }
  SECTION("of equal keys one") {
    options.query.on_equal = OnEqual::first;
    options.query.select = parse_select("value");
  }
  SECTION("compressed") {
    options.memory_bytes = std::uint64_t{16} << 20;
    for (auto& path : merging.paths) {
      const auto compressed = path.string() + ".gz";
      merge(std::span(&path, 1), compressed, options);
      path = compressed;
    }
    output = "output.zst";
  }
  merging.check(output, {{output, "old"}});
}

TEST_CASE("where an allocation fails several passes are right or leave the old output") {
  Failing merging(24, records);
  merging.options.memory_bytes = std::uint64_t{1} << 20;
  merging.check("output", {{"output", "old"}});
}

TEST_CASE("where an allocation fails parts are right or none is there") {
  Failing merging(4, records);
  merging.options.parts = 2;
  merging.options.memory_bytes *= 2;
  merging.check("", {});
}

TEST_CASE("where an allocation fails a merge of lines is right or leaves the old output") {
  Failing merging(4, lines);
  merging.options.text = TextFormat{};
  SECTION("as it is") {}
  SECTION("of equal keys the last") {
    merging.options.text->delimiter = ',';
    merging.options.text->keys = parse_text_keys("1:u64");
    merging.options.query.on_equal = OnEqual::last;
  }
  merging.check("output", {{"output", "old"}});
}
