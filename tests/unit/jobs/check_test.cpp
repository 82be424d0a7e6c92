// Tests of reading the records of one file on several threads, to check their order.
#include "corank/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ranges>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "corank/record.hpp"
#include "format/fixed_format.hpp"
#include "jobs/scan.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// How keys become the records of a file.
struct Kind {
  const char* name;
  Options options;
  std::string (*record)(std::uint32_t key);
};

std::vector<Kind> kinds() {
  std::vector<Kind> kinds(2);
  kinds[0].name = "fixed size";
  kinds[0].options.record = Schema::parse("key:u32be,value:bytes28");
  kinds[0].record = [](std::uint32_t key) {
    std::string record(32, 'v');
    for (int i = 0; i < 4; ++i) record[i] = static_cast<char>(key >> (24 - 8 * i));
    return record;
  };
  kinds[1].name = "lines";
  kinds[1].options.text = TextFormat{};
  kinds[1].record = [](std::uint32_t key) {
    return fmt::format("{:010}{}\n", key, std::string(key % 40, 'v'));
  };
  return kinds;
}

}  // namespace

TEST_CASE("checks and reports tell the first record out of order, whatever the threads") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "file";
  Random random(71);
  for (const Kind& kind : kinds())
    for (int round = 0; round < (exhaustive_step > 1 ? 8 : 24); ++round) {
      std::vector<std::uint32_t> keys(200'000);
      std::iota(keys.begin(), keys.end(), 1);
      // The record after each of these keys sorts before it; chunks hold some 10,000 records.
      std::uint64_t first = keys.size();
      const std::uint64_t from = below(random, keys.size() / 2);
      for (int inversions = round % 4; inversions > 0; --inversions) {
        const std::uint64_t at = from + 1 + below(random, 40'000);
        keys[at] = 0;
        first = std::min(first, at);
      }
      std::string text;
      for (const std::uint32_t key : keys) text += kind.record(key);
      write_file(file, bytes_of_text(text));
      const auto key_text = [&](std::uint32_t key) {
        write_file(folder.path() / "one", bytes_of_text(kind.record(key)));
        return describe(folder.path() / "one", kind.options).first_key;
      };
      const std::string first_key = key_text(keys.front()), last_key = key_text(keys.back());
      std::uint64_t checksum = 0;
      for (const unsigned threads : {1, 2, 3, 8}) {
        INFO(kind.name << ", " << threads << " threads, round " << round);
        Options options = kind.options;
        options.threads = threads;
        options.checksum = true;
        try {
          const CheckResult result = check(file, options);
          CHECK(first == keys.size());
          CHECK(result.records == keys.size());
          CHECK((threads == 1 || result.checksum == checksum));
          checksum = result.checksum;
        } catch (const OutOfOrder& error) {
          CHECK(error.record() == first);
        }
        const FileReport report = describe(file, options);
        CHECK(report.records == keys.size());
        CHECK(report.bytes == text.size());
        CHECK((report.out_of_order ? report.out_of_order->record : keys.size()) == first);
        CHECK(report.duplicates == std::uint64_t(std::ranges::count_if(
                                       std::views::iota(std::size_t{1}, keys.size()),
                                       [&](std::size_t i) { return keys[i] == keys[i - 1]; })));
        CHECK(report.first_key == first_key);
        CHECK(report.last_key == last_key);
      }
    }
}

TEST_CASE("a scan past the page cache reads records that fill no whole pages") {
  constexpr std::uint32_t record_bytes = 99;
  constexpr std::uint64_t count = 40'000;
  const auto format = make_fixed_format(Schema::parse("key:bytes99"), {});
  const TemporaryFolder folder;
  write_file(folder / "file", Bytes(count * record_bytes));
  Run run(folder / "file", record_bytes, Run::Opening{});
  const ScanResult cached = scan(run, *format, true, true, {.threads = 2});
  CHECK(cached.records == count);
  if (!run.make_direct()) return;  // the file system is in memory
  const ScanResult direct = scan(run, *format, true, true, {.threads = 2});
  CHECK((direct.records == count && direct.checksum == cached.checksum));
}
