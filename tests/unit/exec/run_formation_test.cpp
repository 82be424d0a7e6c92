// Runs that are formed of unsorted inputs, in batches of several blocks.
#include "exec/run_formation.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "corank/options.hpp"
#include "exec/progress_meter.hpp"
#include "format/key_words.hpp"
#include "jobs/merge_format.hpp"
#include "run/run_io.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

namespace corank::test {
namespace {

constexpr std::uint64_t bytes_a_record = 16, chunk_records = 1000, batch_blocks = 4;

// Forms runs of files of unsigned numbers with their positions.
struct Forming {
  explicit Forming(Io how) : io(how) {
    options.record = Schema::parse("key:u64,position:u64");
    options.keys = parse_keys("key", options.record);
  }

  void add_file(const std::vector<std::uint64_t>& keys) {
    Bytes bytes(keys.size() * bytes_a_record);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::uint64_t record[] = {keys[i], records++};
      std::memcpy(&bytes[i * bytes_a_record], record, bytes_a_record);
    }
    all.insert(all.end(), bytes.begin(), bytes.end());
    const auto path = folder / std::to_string(inputs.size());
    write_file(path, bytes);
    inputs.emplace_back(path, static_cast<std::uint32_t>(bytes_a_record), Run::Opening{});
  }

  // Returns the records of each run. Fills memory for `room` records at a time.
  std::vector<Bytes> form(std::uint64_t room) {
    const auto format = make_format(options);
    const auto keys = make_key_words(format->keys().layout());
    PassPlan plan{};
    plan.tokens = 4;
    plan.read_ahead = 4;
    plan.chunks = plan.read_ahead + 2 * max_block_chunks + plan.tokens * batch_blocks;
    plan.chunk_bytes = plan.unit_bytes = 5 * page_bytes();
    plan.chunk_records = plan.unit_records = chunk_records;
    choose_io(inputs, io, true, records * bytes_a_record, plan.chunk_bytes);
    const OutputOrder order{&format->keys(), OutputOrder::Kind::none};
    ProgressMeter progress(options, true);
    PassTotals totals;
    const Pass pass{.runs = inputs,
                    .format = *format,
                    .plan = plan,
                    .operators = nullptr,
                    .limit = std::numeric_limits<std::uint64_t>::max(),
                    .output = order,
                    .backend = nullptr,
                    .writers = {},
                    .in_place = {},
                    .threads = 2,
                    .stop = {},
                    .checksum = false,
                    .fingerprint = portable_fingerprint,
                    .fingerprints = {},
                    .progress = progress,
                    .trace = nullptr,
                    .partition = 0};
    RunFormation formation(pass, *keys, chunk_records * bytes_a_record, batch_blocks, false,
                           totals);
    std::vector<Bytes> runs;
    Bytes memory(room * bytes_a_record);
    do {
      const FormedRuns formed = formation.fill(memory, {1'000, 1'000, 1'000});
      mapped = 0;
      for (const FormedRun& run : formed.runs) {
        runs.emplace_back(run.bytes.begin(), run.bytes.end());
        mapped += run.input.has_value();
      }
    } while (!formation.at_end());
    formation.finish();
    return runs;
  }

  // Returns whether each run is sorted, and a stable merge of the runs is the stable sort.
  bool is_right(const std::vector<Bytes>& runs) const {
    const auto sorted = [&](const Bytes& bytes) {
      return stably_sorted(options.record, options.keys, bytes);
    };
    Bytes joined;
    for (const Bytes& run : runs) {
      if (sorted(run) != run) return false;
      joined.insert(joined.end(), run.begin(), run.end());
    }
    return sorted(joined) == sorted(all);
  }

  TemporaryFolder folder;
  Options options;
  Io io;
  std::vector<Run> inputs;
  Bytes all;
  std::uint64_t records = 0;
  std::size_t mapped = 0;  // runs of the last load that lie in an input
};

std::vector<std::uint64_t> random_keys(std::size_t count, std::uint64_t values, Random& random) {
  std::vector<std::uint64_t> keys(count);
  for (std::uint64_t& key : keys) key = below(random, values);
  return keys;
}

}  // namespace

TEST_CASE("batches of blocks are sorted stably and become few runs") {
  Random random(71);
  for (const Io io : {Io::buffered, Io::mapped})
    for (const std::uint64_t values : {1ull, 3ull, 1ull << 60})
      for (const std::size_t count : std::vector<std::size_t>{1, 4'000, 4'001, 30'500}) {
        Forming forming(io);
        forming.add_file(random_keys(count, values, random));
        CAPTURE(static_cast<int>(io), values, count);
        const std::vector<Bytes> runs = forming.form(count + 1);
        CHECK(forming.is_right(runs));
        CHECK(runs.size() <= 2 * count / (chunk_records * batch_blocks) + 1);
        CHECK(forming.is_right(forming.form(2'500)));
      }
}

TEST_CASE("batches take the records of many small files, and empty ones") {
  Random random(72);
  Forming forming(Io::buffered);
  for (int file = 0; file < 300; ++file)
    forming.add_file(random_keys(below(random, 40) * below(random, 2), 100, random));
  forming.add_file(random_keys(20'000, 100, random));
  CHECK(forming.is_right(forming.form(forming.records)));
  CHECK(forming.is_right(forming.form(3'000)));
}

TEST_CASE("sorted stretches of mapped files between batches stay where they are, in order") {
  Random random(73);
  Forming forming(Io::mapped);
  for (int file = 0; file < 4; ++file) {
    std::vector<std::uint64_t> keys = random_keys(24'000, 50, random);
    // Chunks that are sorted, one and several in a row, among chunks that are not.
    for (const auto& [first, end] : {std::pair{3'000, 4'000}, std::pair{9'000, 14'000}})
      std::sort(keys.begin() + first, keys.begin() + end);
    forming.add_file(keys);
  }
  const std::vector<Bytes> runs = forming.form(forming.records);
  CHECK(forming.mapped > 0);
  CHECK(forming.is_right(runs));
}

}  // namespace corank::test
