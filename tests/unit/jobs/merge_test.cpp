// Tests of whole merges on every available backend, byte for byte against std::stable_sort.
#include "corank/merge.hpp"

#include <tbb/global_control.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "corank/check.hpp"
#include "corank/partitions.hpp"
#include "corank/sort.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "util/worker_allowance.hpp"

using namespace corank;
using namespace corank::test;

namespace {

std::vector<BackendChoice> backends() {
  std::vector<BackendChoice> all{BackendChoice::cpu};
  if (find_cuda_device(0).usable) all.push_back(BackendChoice::cuda);
  return all;
}

const char* name(BackendChoice backend) {
  return backend == BackendChoice::cpu ? "cpu" : "cuda";
}

// Holds runs on disk and the expected output of their merge.
class Case {
 public:
  Case(const std::string& schema, const std::string& keys)
      : schema_(Schema::parse(schema)), keys_(parse_keys(keys, schema_)) {}

  void add_run(const Bytes& records) { add_sorted_run(stably_sorted(schema_, keys_, records)); }
  void add_sorted_run(const Bytes& records) {
    paths_.push_back(folder_ / ("run" + std::to_string(paths_.size())));
    write_file(paths_.back(), records);
    all_.insert(all_.end(), records.begin(), records.end());
  }

  Options options(BackendChoice backend, std::uint64_t memory_bytes = 0) const {
    Options options;
    options.record = schema_;
    options.keys = keys_;
    options.backend = backend;
    options.memory_bytes = memory_bytes;
    options.overwrite = true;
    options.checksum = true;
    return options;
  }

  // Merges on every backend and compares the output with the expected one.
  Stats check(std::uint64_t memory_bytes = 0) {
    const Bytes expected = stably_sorted(schema_, keys_, all_);
    const CheckResult sum = [&] {
      write_file(folder_ / "expected", expected);
      return corank::check(folder_ / "expected", options(BackendChoice::cpu, 0));
    }();
    Stats stats;
    for (const BackendChoice backend : backends()) {
      INFO("backend " << name(backend) << ", " << paths_.size() << " runs, budget "
                      << memory_bytes);
      stats = merge(paths_, output(), options(backend, memory_bytes));
      CHECK((read_file(output()) == expected));
      CHECK(stats.records == expected.size() / schema_.record_bytes);
      CHECK(stats.checksum == sum.checksum);
      CHECK(stats.backend == name(backend));
      for (const Io io : {Io::buffered, Io::direct, Io::mapped}) {
        INFO("io " << static_cast<int>(io));
        Options by_io = options(backend, memory_bytes);
        by_io.io = io;
        CHECK(merge(paths_, output(), by_io).checksum == sum.checksum);
        CHECK((read_file(output()) == expected));
      }
      CHECK((merged_in_memory(options(backend, memory_bytes)) == expected));
      CHECK((merged_into_parts(3, options(backend, memory_bytes)) == expected));
    }
    return stats;
  }

  Bytes merged_in_memory(const Options& options) const {
    std::vector<Bytes> runs;
    for (const auto& path : paths_) runs.push_back(read_file(path));
    const std::vector<std::span<const std::byte>> spans(runs.begin(), runs.end());
    Bytes output(all_.size());
    merge(spans, output, options);
    return output;
  }

  Bytes merged_into_parts(unsigned count, Options options) const {
    const TemporaryFolder parts;
    options.parts = count;
    // Each part gets the whole budget, because a third of it may be too small.
    options.memory_bytes *= count;
    merge(paths_, parts.path(), options);
    CHECK(parts.names().size() == count);
    Bytes all;
    for (const std::string& name : parts.names()) {
      const Bytes part = read_file(parts / name);
      CHECK(part.size() / schema_.record_bytes - all_.size() / schema_.record_bytes / count <= 1);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  const Schema& schema() const { return schema_; }
  const std::vector<std::filesystem::path>& paths() const { return paths_; }
  std::filesystem::path output() const { return folder_ / "output"; }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
  Schema schema_;
  std::vector<KeyField> keys_;
  std::vector<std::filesystem::path> paths_;
  Bytes all_;
};

}  // namespace

TEST_CASE("every merge of up to four runs of up to four records with three keys") {
  // All cases are one merge. The first key is the number of the case, so a case is a row span of
  // every run. Units and tiles cut through the cases anywhere.
  struct Record {
    std::uint32_t number;
    std::uint8_t key;
    std::uint8_t run;
    std::uint16_t position;
  };
  static_assert(sizeof(Record) == 8);
  std::vector<std::vector<std::uint8_t>> shorts{{}};
  for (std::size_t i = 0; i < shorts.size(); ++i)
    for (std::uint8_t key = shorts[i].empty() ? 0 : shorts[i].back();
         key < 3 && shorts[i].size() < 4; ++key) {
      auto longer = shorts[i];
      longer.push_back(key);
      shorts.push_back(longer);
    }
  REQUIRE(shorts.size() == 35);

  std::vector<Record> runs[4];
  std::vector<Record> expected;
  std::uint32_t number = 0;
  for (std::size_t a = 0; a < 35; ++a)
    for (std::size_t b = 0; b < 35; ++b)
      for (std::size_t c = 0; c < 35; ++c)
        for (std::size_t d = 0; d < 35; ++d, ++number) {
          const std::size_t picks[] = {a, b, c, d};
          const auto first = std::ssize(expected);
          for (std::uint8_t run = 0; run < 4; ++run) {
            std::uint16_t position = 0;
            for (const std::uint8_t key : shorts[picks[run]])
              runs[run].push_back({number, key, run, position++});
            expected.insert(expected.end(), runs[run].end() - position, runs[run].end());
          }
          std::stable_sort(expected.begin() + first, expected.end(),
                           [](const Record& x, const Record& y) { return x.key < y.key; });
        }

  const TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  const auto bytes_of = [](const std::vector<Record>& records) {
    const auto* begin = reinterpret_cast<const std::byte*>(records.data());
    return Bytes(begin, begin + records.size() * sizeof(Record));
  };
  for (const auto& run : runs) {
    paths.push_back(folder / ("run" + std::to_string(paths.size())));
    write_file(paths.back(), bytes_of(run));
  }
  Options options;
  options.record = Schema::parse("case:u32,key:u8,run:u8,position:u16");
  options.keys = parse_keys("case,key", options.record);
  options.memory_bytes = 4 << 20;
  options.overwrite = true;
  for (const BackendChoice backend : backends()) {
    options.backend = backend;
    const Stats stats = merge(paths, folder / "output", options);
    CHECK(stats.units > 100);
    CHECK((read_file(folder / "output") == bytes_of(expected)));
  }
}

TEST_CASE("random runs of every shape") {
  const std::pair<const char*, const char*> shapes[] = {
      {"a:u8", "a"},
      {"a:u16be", "a:desc"},
      {"a:u32,p:u8", "a"},
      {"a:u64,p:u64", "a"},
      {"p:bytes3,a:i64be,q:bytes2", "a:desc"},
      {"a:f32,p:u32", "a"},
      {"a:f64be,p:bytes5", "a:desc"},
      {"a:i8,b:i16,c:i32,p:u64", "b,a:desc,c"},
      {"a:u64,b:u64be,p:bytes7", "b,a"},
      {"a:bytes10,p:bytes90", "a"},
      {"p:u8,a:u64,b:bytes20,q:u16", "b:desc,a"},
      {"a:bytes40,p:u32", "a"},
      {"p:bytes13,a:u8,b:bytes64", "a,b"},
      {"a:u64,p:bytes4088", "a"},
      {"p:bytes3000,a:bytes1096", "a:desc"},
  };
  Random random(11);
  for (const auto& [schema, keys] : shapes)
    for (const Values values : {Values::any, Values::few, Values::one}) {
      Case test(schema, keys);
      const std::uint64_t runs = 1 + below(random, 12);
      const std::uint64_t bytes = 1 + below(random, 400'000);
      for (std::uint64_t i = 0; i < runs; ++i) {
        const std::uint64_t count =
            below(random, 6) == 0 ? below(random, 2) : bytes / runs / test.schema().record_bytes;
        test.add_run(random_records(test.schema(), count, values, random));
      }
      INFO(schema << " by " << keys);
      test.check();
      test.check(700'000);
    }
}

TEST_CASE("records of every size from 1 to 4096 bytes") {
  Random random(12);
  for (const int size :
       {1, 2, 3, 5, 8, 15, 16, 17, 31, 64, 100, 127, 255, 1000, 1023, 4095, 4096}) {
    Case test("a:bytes" + std::to_string(size), "a");
    for (int i = 0; i < 5; ++i)
      test.add_run(random_records(test.schema(), 60'000 / static_cast<unsigned>(size) + 2,
                                  i % 2 ? Values::any : Values::few, random));
    test.check();
    test.check(600'000);
  }
}

TEST_CASE("from one run to two thousand, in one pass and in several") {
  Random random(13);
  for (const std::size_t runs : {1, 2, 3, 7, 64, 500, 2000}) {
    Case test("a:u32,p:u32", "a");
    for (std::size_t i = 0; i < runs; ++i)
      test.add_run(
          random_records(test.schema(), below(random, 40'000 / runs), Values::any, random));
    CHECK(test.check().passes == 1);
    const Stats stats = test.check(700'000);
    CHECK((stats.passes > 1) == (runs >= 64));
  }
}

TEST_CASE("an earlier pass of nothing but empty runs") {
  Random random(15);
  Case test("a:u32,p:u32", "a");
  for (int i = 0; i < 100; ++i)
    test.add_run(random_records(test.schema(), i < 95 ? 0 : 100, Values::any, random));
  CHECK(test.check(700'000).passes > 1);
}

TEST_CASE("keys that are all equal, disjoint, or in one run only") {
  Random random(14);
  const auto numbered = [](std::uint32_t key, std::uint32_t step, std::uint32_t count) {
    Bytes bytes(8ull * count);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t record[] = {key + step * i, i};
      std::memcpy(bytes.data() + 8ull * i, record, 8);
    }
    return bytes;
  };
  for (const std::uint64_t memory_bytes : {std::uint64_t{0}, std::uint64_t{800'000}}) {
    Case equal("a:u32,p:u32", "a");
    Case disjoint("a:u32,p:u32", "a");
    Case reversed("a:u32,p:u32", "a");
    Case lopsided("a:u32,p:u32", "a");
    for (std::uint32_t i = 0; i < 8; ++i) {
      equal.add_run(numbered(5, 0, 50'000));
      disjoint.add_run(numbered(i * 1'000'000, 7, 50'000));
      reversed.add_run(numbered((8 - i) * 1'000'000, 7, 50'000));
      lopsided.add_run(i == 3 ? numbered(0, 1, 400'000) : numbered(100 * i, 1, i % 2));
    }
    equal.check(memory_bytes);
    disjoint.check(memory_bytes);
    reversed.check(memory_bytes);
    lopsided.check(memory_bytes);
  }
}

TEST_CASE("units of equal size, the last one shorter") {
  Case test("a:u64,p:u64", "a");
  Random random(15);
  for (int i = 0; i < 3; ++i)
    test.add_run(random_records(test.schema(), 100'000, Values::any, random));
  const Stats all = test.check();
  CHECK(all.units <= 3);  // fewer with more threads
  const Stats small = test.check(1 << 20);
  CHECK(small.units > 10);
  CHECK(small.bytes_read == 4'800'000);
  CHECK(small.bytes_written == 4'800'000);
}

TEST_CASE("nothing to merge") {
  Case test("a:u64", "a");
  for (int i = 0; i < 3; ++i) test.add_run({});
  const Stats stats = test.check();
  CHECK(stats.records == 0);
  CHECK(std::filesystem::file_size(test.output()) == 0);
  CHECK_THROWS_AS(
      merge(std::vector<std::filesystem::path>{}, test.output(), test.options(BackendChoice::cpu)),
      Error);
}

TEST_CASE("the first record out of order is named, wherever it is") {
  constexpr std::uint64_t count = 60'000;
  Random random(16);
  for (const BackendChoice backend : backends())
    for (const std::uint64_t memory_bytes : {std::uint64_t{0}, std::uint64_t{500'000}})
      for (int round = 0; round < 24; ++round) {
        Case test("a:u64", "a");
        Bytes runs[3];
        for (auto& run : runs) {
          run.resize(8 * count);
          for (std::uint64_t i = 0; i < count; ++i) {
            const std::uint64_t key = 10 * (i + 1);
            std::memcpy(run.data() + 8 * i, &key, 8);
          }
        }
        // Includes the edges of chunks, whose sizes are multiples of a page, and both ends of the
        // run.
        const std::uint64_t edges[] = {1, 2, 511, 512, 513, 1024, 4096, 8192, count - 2, count - 1};
        const std::uint64_t at = round < 10 ? edges[round] : 1 + below(random, count - 1);
        const std::uint64_t low = round % 2 ? 0 : 10 * at - 1;
        std::memcpy(runs[1].data() + 8 * at, &low, 8);
        if (round % 3 == 0 && at + 10 < count) std::memcpy(runs[1].data() + 8 * (at + 9), &low, 8);
        for (const auto& run : runs) test.add_sorted_run(run);
        INFO("record " << at << " of " << count << ", budget " << memory_bytes << ", "
                       << name(backend));
        try {
          merge(test.paths(), test.output(), test.options(backend, memory_bytes));
          FAIL("was merged");
        } catch (const OutOfOrder& error) {
          CHECK(error.file() == test.paths()[1]);
          CHECK(error.record() == at);
          CHECK(error.byte() == 8 * at);
        }
        CHECK(test.folder().names() == std::vector<std::string>{"run0", "run1", "run2"});
      }
}

TEST_CASE("a merge that is asked to stop leaves the old output and nothing else") {
  Random random(17);
  Case test("a:u64", "a");
  for (int i = 0; i < 4; ++i)
    test.add_run(random_records(test.schema(), 200'000, Values::any, random));
  write_file(test.output(), Bytes(3));
  for (const BackendChoice backend : backends()) {
    std::stop_source source;
    Options options = test.options(backend, 600'000);
    options.stop = source.get_token();
    options.progress = [&](const Progress&) { source.request_stop(); };
    CHECK_THROWS_AS(merge(test.paths(), test.output(), options), Interrupted);
    CHECK(read_file(test.output()).size() == 3);
    CHECK(test.folder().names().size() == 5);
  }
}

TEST_CASE("several merges in one process at once") {
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([t, &right] {
      Random random(static_cast<std::uint64_t>(20 + t));
      const TemporaryFolder folder;
      Options options;
      options.record = Schema::parse("a:u16,p:u32");
      options.memory_bytes = 600'000;
      std::vector<std::filesystem::path> paths;
      Bytes all;
      for (int i = 0; i < 5; ++i) {
        const Bytes run = stably_sorted(
            options.record, {{0}}, random_records(options.record, 20'000, Values::any, random));
        paths.push_back(folder / std::to_string(i));
        write_file(paths.back(), run);
        all.insert(all.end(), run.begin(), run.end());
      }
      merge(paths, folder / "output", options);
      right += read_file(folder / "output") == stably_sorted(options.record, {{0}}, all);
    });
  threads.clear();
  CHECK(right == 3);
}

TEST_CASE("a merge with few threads leaves the process its own") {
  const auto allowed = [] {
    return tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  };
  const std::size_t before = allowed();
  std::size_t during = 0;
  Options options;
  options.record = Schema::parse("a:u32");
  options.threads = 1;
  options.progress = [&](const Progress&) { during = allowed(); };
  std::array<std::uint32_t, 4> words{1, 3, 2, 4};
  const auto bytes = std::as_bytes(std::span(words));
  const std::vector<std::span<const std::byte>> runs{bytes.first(8), bytes.last(8)};
  Bytes output(16);
  merge(runs, output, options);
  CHECK(during >= before);
  CHECK(allowed() == before);
}

TEST_CASE("allowances for few threads do not limit those for many") {
  const auto allowed = [] {
    return tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  };
  const std::size_t before = allowed();
  {
    std::optional<WorkerAllowance> few(before + 1);
    const WorkerAllowance many(before + 3);
    CHECK(allowed() == before + 3);
    few.reset();
    CHECK(allowed() == before + 3);
    const WorkerAllowance more(before + 4);
    CHECK(allowed() == before + 4);
  }
  CHECK(allowed() == before);
}

TEST_CASE("copy-only writes the runs one after another") {
  Random random(30);
  for (const std::size_t runs : {1, 7, 300}) {
    Case test("a:u64,p:bytes5", "a");
    Bytes expected;
    for (std::size_t i = 0; i < runs; ++i) {
      const Bytes run =
          random_records(test.schema(), below(random, 300'000 / runs), Values::any, random);
      test.add_sorted_run(run);  // not sorted: a copy does not check the order
      expected.insert(expected.end(), run.begin(), run.end());
    }
    for (const std::uint64_t memory_bytes : {std::uint64_t{0}, std::uint64_t{600'000}}) {
      Options options = test.options(BackendChoice::cpu, memory_bytes);
      options.copy_only = true;
      const Stats stats = merge(test.paths(), test.output(), options);
      CHECK((read_file(test.output()) == expected));
      CHECK(stats.passes == 1);
      CHECK(stats.backend == "none");
      CHECK((test.merged_in_memory(options) == expected));
      CHECK((test.merged_into_parts(4, options) == expected));
    }
  }
}

TEST_CASE("runs in memory that can't be merged are refused") {
  Options options;
  options.record = Schema::parse("a:u32");
  std::uint32_t words[] = {1, 2, 3, 4, 6, 5, 7};
  const auto bytes = std::as_writable_bytes(std::span(words));
  const auto run = [&](std::size_t first, std::size_t count) {
    return std::span<const std::byte>(bytes.subspan(4 * first, 4 * count));
  };
  Bytes output(20);
  const auto message = [&](const std::vector<std::span<const std::byte>>& runs,
                           std::span<std::byte> into) -> std::string {
    try {
      merge(runs, into, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message({run(0, 2), run(2, 3)}, output).empty());
  CHECK(message({run(0, 2), run(3, 3)}, output).starts_with("run 1: record 2 (byte 8)"));
  CHECK(message({run(0, 2), run(2, 2)}, output).find("20 bytes") != std::string::npos);
  CHECK(message({run(0, 2), run(2, 3)}, bytes.first(20)).starts_with("run 0: overlaps"));
  CHECK(message({run(0, 1).first(3)}, std::span(output).first(3)).find("multiple") !=
        std::string::npos);
  CHECK(message({}, output).find("no runs") != std::string::npos);
  options.keys = {{1}};
  CHECK(message({run(0, 2), run(2, 3)}, output).find("no field 1") != std::string::npos);
  options.keys.clear();
  options.record = Schema::parse("a:u16,b:u16");
  options.record.record_bytes = 2;
  CHECK(message({run(0, 2)}, output).find("\"b\" ends at byte 4 of a record of 2") !=
        std::string::npos);
  options.record = Schema::parse("a:u32");
  options.record.fields[0].bytes = 3;
  CHECK(message({run(0, 2)}, output).find("\"a\" cannot have 3 bytes") != std::string::npos);
  options.record.fields[0] = {"a", FieldKind::floating, false, 2, 0};
  CHECK(message({run(0, 2)}, output).find("cannot have 2 bytes") != std::string::npos);
  options.record.fields.clear();
  CHECK(message({run(0, 2)}, output).find("no fields") != std::string::npos);
  options.record = Schema::parse("a:u32");
  options.temporary_compression = Compression::parse("lz4");
  CHECK(message({run(0, 2), run(2, 3)}, output).ends_with("is for sorts; drop it"));
  options.temporary_compression.reset();
  for (const auto& ask : std::initializer_list<void (*)(Options&)>{
           [](Options& o) { o.parts = 2; }, [](Options& o) { o.resume = true; },
           [](Options& o) { o.compression = Compression::parse("zstd"); }}) {
    const Options before = options;
    ask(options);
    CHECK(message({run(0, 2), run(2, 3)}, output).find("for files") != std::string::npos);
    options = before;
  }
}

TEST_CASE("a disorder where two parts meet is found") {
  // All other records are equal, so the partition boundary falls on the same record of the run
  // every time.
  for (std::uint64_t at = 1; at < 64; ++at) {
    Case test("a:u8", "a");
    Bytes run(64, std::byte{5});
    run[at] = std::byte{4};
    test.add_sorted_run(run);
    Options options = test.options(BackendChoice::cpu);
    options.parts = 7;
    const TemporaryFolder folder;
    try {
      merge(test.paths(), folder / "parts", options);
      FAIL("was merged");
    } catch (const OutOfOrder& error) {
      CHECK(error.record() == at);
    }
    CHECK(folder.names().empty());
  }
}

TEST_CASE("parts of runs in no order at all are refused") {
  Random random(32);
  for (int round = 0; round < 30; ++round) {
    Case test("a:u32", "a");
    for (int i = 0; i < 3; ++i)
      test.add_sorted_run(random_records(test.schema(), 5'000, Values::any, random));
    Options options = test.options(BackendChoice::cpu);
    options.parts = 9;
    const TemporaryFolder folder;
    CHECK_THROWS_AS(merge(test.paths(), folder / "parts", options), OutOfOrder);
    CHECK(folder.names().empty());
  }
}

TEST_CASE("runs in memory in no order at all are refused") {
  // Runs in memory are cut into several units concurrently.
  Random random(33);
  for (int round = 0; round < 30; ++round) {
    Case test("a:u32", "a");
    for (int i = 0; i < 3; ++i)
      test.add_sorted_run(random_records(test.schema(), 60'000, Values::any, random));
    CHECK_THROWS_AS(test.merged_in_memory(test.options(BackendChoice::cpu, 400'000)), OutOfOrder);
  }
}

TEST_CASE("statistics tell where the time went") {
  Random random(31);
  Case test("a:u64,p:u64", "a");
  for (int i = 0; i < 4; ++i)
    test.add_run(random_records(test.schema(), 100'000, Values::any, random));
  Options options = test.options(BackendChoice::cpu, 1 << 20);
  const Stats stats = merge(test.paths(), test.output(), options);
  CHECK(!stats.bound.what.empty());
  CHECK(stats.bound.bytes_per_second > 0);
  CHECK(stats.bound.ceiling_bytes_per_second >= 0.99 * stats.bound.bytes_per_second);
  // A serial stage is always either busy or waiting.
  CHECK(stats.busy.write + stats.waits.write_for_merge <= stats.seconds);
  CHECK(stats.busy.cut + stats.waits.cut_for_read + stats.waits.cut_for_merge <= stats.seconds);
  CHECK(stats.waits.merge_for_cut <= stats.seconds);
}

namespace {

// Returns the message of the Error that `call` throws, which must be of the options; or nothing.
template <class Call>
std::string options_error(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::options);
    return error.what();
  }
  return {};
}

// Two runs of words in files, and options to merge them.
struct WordFiles {
  WordFiles() {
    for (const auto& path : runs) write_file(path, bytes_of_text("aaaaaaaabbbbbbbb"));
    options.record = Schema::parse("key:u64");
    options.backend = BackendChoice::cpu;
    options.threads = 2;
    options.overwrite = true;
  }

  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> runs{folder / "run0", folder / "run1"};
  const std::filesystem::path output = folder / "output";
  Options options;
};

}  // namespace

TEST_CASE("a trace that would replace a run or an output is refused") {
  WordFiles files;
  const auto& runs = files.runs;
  const Options& options = files.options;
  const auto message = [&](const std::filesystem::path& trace, unsigned parts) {
    files.options.trace = trace;
    files.options.parts = parts;
    return options_error([&] { merge(runs, files.output, options); });
  };
  std::filesystem::create_hard_link(runs[1], files.folder / "link");
  for (const char* const name : {"run0", "link", "output", "missing/../output"})
    CHECK(holds(message(files.folder / name, 0), "name another file for the trace"));
  CHECK(files.folder.names().size() == 3);
  CHECK(read_file(runs[0]).size() == 16);
  CHECK(holds(message(files.output / "part-00001", 2), "name another file for the trace"));
  CHECK(message(files.folder / "trace", 2).empty());
  CHECK(text_of(files.folder / "trace").starts_with("["));
}

TEST_CASE("empty paths and paths with a NUL byte are refused") {
  WordFiles files;
  const auto& runs = files.runs;
  const Options& options = files.options;
  const std::string name = runs[0].string() + std::string("\0run", 4);
  for (const std::string& bad : {std::string(), name}) {
    const std::vector<std::filesystem::path> paths{runs[0], bad};
    CHECK(holds(options_error([&] { merge(paths, files.output, options); }), "not the name"));
    CHECK(holds(options_error([&] { merge(runs, bad, options); }), "not the name"));
    CHECK(holds(options_error([&] { sort(runs, bad, options); }), "not the name"));
    CHECK(holds(options_error([&] { check(bad, options); }), "not the name"));
    CHECK(holds(options_error([&] { concatenate({}, bad, options); }), "not the name"));
  }
  CHECK(files.folder.names().size() == 2);
}

TEST_CASE("more threads than a program may start are refused") {
  WordFiles files;
  const auto& runs = files.runs;
  const Options& options = files.options;
  for (const unsigned threads : {4097U, std::numeric_limits<unsigned>::max()}) {
    files.options.threads = threads;
    CHECK(holds(options_error([&] { merge(runs, files.output, options); }), "more than 4096"));
    CHECK(holds(options_error([&] { sort(runs, files.output, options); }), "more than 4096"));
    CHECK(holds(options_error([&] { check(runs[0], options); }), "more than 4096"));
    CHECK(holds(options_error([&] { plan_partitions(runs, 2, options); }), "more than 4096"));
    Bytes records(16);
    CHECK(holds(options_error([&] { sort(records, options); }), "more than 4096"));
  }
  CHECK(files.folder.names().size() == 2);
}

TEST_CASE("plans whose cuts do not fit their runs are refused") {
  const WordFiles files;
  const auto& runs = files.runs;
  const Options& options = files.options;
  const PartitionPlan whole = plan_partitions(runs, 2, options);
  const std::vector<std::filesystem::path> parts(2, runs[0]);
  const auto refused = [&](PartitionPlan plan) {
    CHECK(!options_error([&] { write_partition(plan, 0, files.output, options); }).empty());
    CHECK(!options_error([&] { read_part_keys(plan, 0, runs[0], options); }).empty());
    CHECK(!options_error([&] { check_parts(plan, parts, options); }).empty());
    CHECK(!options_error([&] { check_planned_runs(plan, options); }).empty());
  };
  PartitionPlan plan;
  CHECK(plan.size() == 0);
  CHECK(holds(options_error([&] { (void)plan.length(0); }), "numbered from 0"));
  refused(plan);
  CHECK(!options_error([&] { check_parts(plan, {}, options); }).empty());
  plan = whole;
  plan.runs.pop_back();
  refused(plan);
  plan = whole;
  plan.cuts[0].clear();
  refused(plan);
  plan = whole;
  plan.cuts[2].push_back(2);
  refused(plan);
  CHECK(holds(options_error([&] { check_parts(whole, {&runs[0], 1}, options); }), "2 partitions"));
  for (const std::size_t count : {std::size_t{0}, std::size_t{100'000}, SIZE_MAX})
    CHECK(!options_error([&] { plan_partitions(runs, count, options); }).empty());
}
