// Tests of whole sorts against std::stable_sort: formats, shapes of the input, budgets, queries.
#include "corank/sort.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "corank/check.hpp"
#include "corank/merge.hpp"
#include "corank/streams.hpp"
#include "io/hole_puncher.hpp"
#include "plan/pass_planner.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

enum class Shape { random, sorted, reversed, rotated };

// Unsorted files, their records, and the options of their sort.
struct SortCase {
  TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  Bytes all;
  Options options;
  Stats stats;  // of the last sorted()

  SortCase() { options.overwrite = true; }
  SortCase(const std::string& schema, const std::string& keys) : SortCase() {
    options.record = Schema::parse(schema);
    options.keys = parse_keys(keys, options.record);
  }

  void add_file(const Bytes& bytes) {
    paths.push_back(folder / ("file" + std::to_string(paths.size())));
    write_file(paths.back(), bytes);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  // Adds records of this shape in up to `max_files` files.
  void add_records(std::uint64_t count, Values values, Shape shape, std::uint64_t max_files,
                   Random& random) {
    Bytes records = random_records(options.record, count, values, random);
    const std::uint64_t size = options.record.record_bytes;
    if (shape != Shape::random) records = stably_sorted(options.record, options.keys, records);
    if (shape == Shape::reversed)
      for (std::uint64_t i = 0; i < count / 2; ++i)
        std::swap_ranges(&records[i * size], &records[i * size] + size,
                         &records[(count - 1 - i) * size]);
    if (shape == Shape::rotated)
      std::rotate(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(count / 3 * size),
                  records.end());
    for (std::uint64_t files = 1 + below(random, max_files), at = 0; files > 0; --files) {
      const std::uint64_t end = files == 1 ? count : at + below(random, count - at + 1);
      add_file({records.begin() + static_cast<std::ptrdiff_t>(at * size),
                records.begin() + static_cast<std::ptrdiff_t>(end * size)});
      at = end;
    }
  }

  Bytes sorted() {
    stats = sort(paths, folder / "output", options);
    return read_file(folder / "output");
  }
  Bytes sorted_into_parts(unsigned count) const {
    const TemporaryFolder parts;
    Options by = options;
    by.parts = count;
    if (by.memory_bytes != 0) by.memory_bytes += (std::uint64_t{8} << 20);
    sort(paths, parts.path(), by);
    Bytes joined;
    for (const std::string& name : parts.names()) {
      const Bytes part = read_file(parts / name);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    return joined;
  }
  Bytes expected() const { return stably_sorted(options.record, options.keys, all); }
};

// Returns the records of `key:u64,value:u64` whose value exceeds `max`.
Bytes without_small_values(const Bytes& records, std::uint64_t max) {
  Bytes kept;
  for (std::size_t at = 0; at < records.size(); at += 16) {
    std::uint64_t value = 0;
    std::memcpy(&value, &records[at + 8], sizeof value);
    if (value > max)
      kept.insert(kept.end(), records.begin() + static_cast<std::ptrdiff_t>(at),
                  records.begin() + static_cast<std::ptrdiff_t>(at + 16));
  }
  return kept;
}

// A line or pair, and its key.
struct TextRecord {
  std::string key, bytes;
};

TextRecord random_text_record(TextKind kind, const std::string& prefix, const std::string& alphabet,
                              std::uint64_t longest, std::uint64_t number, Random& random) {
  std::string key = prefix;
  for (std::uint64_t left = below(random, longest + 1); left > 0; --left)
    key += alphabet[below(random, alphabet.size())];
  if (kind == TextKind::pairs) return {key, pair_of(key, std::to_string(number))};
  return {key, key + "\n"};
}

// Returns random lines of `bytes` bytes or a little more; they are appended to `text`, too.
std::vector<TextRecord> random_lines(const std::string& prefix, const std::string& alphabet,
                                     std::uint64_t longest, std::uint64_t bytes, std::string& text,
                                     Random& random) {
  std::vector<TextRecord> records;
  while (text.size() < bytes) {
    records.push_back(
        random_text_record(TextKind::lines, prefix, alphabet, longest, records.size(), random));
    text += records.back().bytes;
  }
  return records;
}

std::string sorted_text(std::vector<TextRecord> records) {
  std::ranges::stable_sort(records, {}, &TextRecord::key);
  std::string text;
  for (const TextRecord& record : records) text += record.bytes;
  return text;
}

// Returns the bytes that nameless files of this process take on the disk of `folder`.
std::uint64_t temporary_bytes_on_disk(const std::filesystem::path& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(entry.path(), gone);
    struct stat status {};
    if (name.starts_with(folder.string()) && ::stat(entry.path().c_str(), &status) == 0 &&
        status.st_nlink == 0)
      bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

// Keeps the output, and the most that it and the temporary files in `folder` took together.
struct WeighingSink final : ByteSink {
  explicit WeighingSink(std::filesystem::path where) : folder(std::move(where)) {}
  void write(std::span<const std::byte> bytes) override {
    output.insert(output.end(), bytes.begin(), bytes.end());
    peak = std::max(peak, output.size() + temporary_bytes_on_disk(folder));
  }
  std::filesystem::path folder;
  Bytes output;
  std::uint64_t peak = 0;
};

// Flips the last bit of a file, whose time of change stays, when the first bytes come.
struct DamagingSink final : ByteSink {
  explicit DamagingSink(std::filesystem::path damaged) : path(std::move(damaged)) {}
  void write(std::span<const std::byte>) override {
    if (std::exchange(is_done, true)) return;
    const auto time = std::filesystem::last_write_time(path);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const int last = file.get();
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(last ^ 1));
    file.close();
    std::filesystem::last_write_time(path, time);
  }
  std::filesystem::path path;
  bool is_done = false;
};

std::string what_sorting_throws(SortCase& test) {
  try {
    test.sorted();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("fixed-size records of every type and width are sorted stably", "[sort]") {
  Random random(1);
  unsigned round = 0;
  for (const auto& [schema, keys] : schemas_and_keys) {
    for (const Values values : {Values::any, Values::few, Values::one}) {
      const auto shape = static_cast<Shape>(round++ % 4);
      INFO(schema << " by " << keys << ", round " << round);
      SortCase test(schema, keys);
      test.add_records(below(random, 4) == 0 ? below(random, 5) : below(random, 6000), values,
                       shape, 4, random);
      test.options.threads = 1 + round % 3;
      test.options.io = static_cast<Io>(round % 4);
      const Bytes expected = test.expected();
      CHECK((test.sorted() == expected));
      CHECK(test.stats.records * test.options.record.record_bytes == expected.size());
      CHECK(test.stats.verified);
      CHECK((test.sorted_into_parts(3) == expected));
      Bytes in_memory = test.all;
      sort(in_memory, test.options);
      CHECK((in_memory == expected));
    }
  }
}

TEST_CASE("sorts within any budget spill what does not fit", "[sort]") {
  Random random(2);
  std::uint64_t max_passes = 0;
  for (unsigned round = 0; round < 48; round += exhaustive_step) {
    const auto& [schema, keys] = schemas_and_keys[round % schemas_and_keys.size()];
    SortCase test(schema, keys);
    const std::uint64_t size = test.options.record.record_bytes;
    const std::uint64_t least = std::uint64_t{1} << 20;
    test.add_records(std::min((least + below(random, 12 * least)) / size, 150'000 + size),
                     static_cast<Values>(round % 3), static_cast<Shape>(round / 3 % 4), 5, random);
    test.options.memory_bytes =
        2 * least + min_memory(static_cast<std::uint32_t>(size)) + below(random, 4 * least);
    test.options.io = static_cast<Io>(round % 4);
    test.options.threads = 1 + round % 2;
    INFO("round " << round << ": " << schema << " by " << keys << ", " << test.all.size()
                  << " bytes, budget " << test.options.memory_bytes);
    CHECK((test.sorted() == test.expected()));
    max_passes = std::max(max_passes, test.stats.passes);
    CHECK(test.folder.names().size() == test.paths.size() + 1);
  }
  CHECK(max_passes > 3);
}

TEST_CASE("sorted input is a single run, and descending input is sorted", "[sort]") {
  Random random(3);
  for (const Shape shape : {Shape::sorted, Shape::reversed}) {
    SortCase test("key:u64,value:u64", "key");
    test.add_records(300'000, Values::any, shape, 1, random);
    CHECK((test.sorted() == test.expected()));
  }
}

TEST_CASE("sorted stretches of mapped files are merged where they lie", "[sort]") {
  Random random(7);
  SortCase test("key:u64,value:u64", "key");
  for (int file = 0; file < 3; ++file)
    test.add_records(200'000, Values::any, Shape::sorted, 1, random);
  test.options.memory_bytes = std::uint64_t{4} << 20;  // less than the files have
  test.options.io = Io::mapped;
  CHECK((test.sorted() == test.expected()));
  CHECK(test.stats.passes == 1);
}

TEST_CASE("a limited sort holds what its output may have, and spills nothing", "[sort]") {
  Random random(9);
  for (const std::string where : {"", "value > 1000"}) {
    for (const Values values : {Values::any, Values::few, Values::one}) {
      INFO(where << ", " << static_cast<int>(values));
      SortCase test("key:u64,value:u64", "key");
      test.add_records(400'000, values, Shape::random, 3, random);
      test.options.memory_bytes = std::uint64_t{2} << 20;  // less than half of the files
      test.options.query.where = where.empty() ? Condition() : parse_where(where);
      Bytes expected = test.expected();
      if (!where.empty()) expected = without_small_values(expected, 1000);
      const std::uint64_t count = std::min<std::uint64_t>(3000, expected.size() / 16);
      expected.resize(count * 16);
      test.options.query.limit = 3000;
      CHECK((test.sorted() == expected));
      CHECK(test.stats.records == 400'000);
      CHECK(test.stats.records_written == count);
      CHECK(test.stats.passes == 1);
    }
  }
}

TEST_CASE("a sort may be limited to more than a load, and to fewer than all", "[sort]") {
  Random random(11);
  SortCase test("key:u64,value:u64", "key");
  test.add_records(1'500'000, Values::any, Shape::random, 1, random);
  test.options.memory_bytes = std::uint64_t{16} << 20;  // of which loads get a third
  const Bytes all = test.expected();
  for (const std::uint64_t limit : {100'000, 400'000, 1'000'000, 1'499'999, 1'500'000}) {
    INFO(limit);
    test.options.query.limit = limit;
    CHECK((test.sorted() ==
           Bytes(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(16 * limit))));
  }
  CHECK(test.stats.passes > 2);
}

TEST_CASE("a limited sort of lines holds what its output may have", "[sort]") {
  Random random(10);
  SortCase test;
  test.options.text.emplace();
  std::string text;
  const auto records = random_lines("same-start-", "abcdefgh", 40, 12'000'000, text, random);
  test.add_file(bytes_of_text(text));
  test.options.memory_bytes = std::uint64_t{4} << 20;
  test.options.query.limit = 1000;
  const std::string all = sorted_text(records);
  std::size_t bytes = 0;
  for (int line = 0; line < 1000; ++line) bytes = all.find('\n', bytes) + 1;
  CHECK((text_of(test.sorted()) == all.substr(0, bytes)));
  CHECK(test.stats.passes == 1);
}

TEST_CASE("groups shrink before they are spilled", "[sort]") {
  Random random(11);
  for (const std::string on_equal :
       {"first", "last", "reduce:sum(value),max(other)", "reduce:min(value),last(other)"}) {
    INFO(on_equal);
    SortCase test("key:u64,value:u32,other:u32", "key");
    test.add_records(400'000, Values::few, Shape::random, 3, random);
    parse_on_equal(on_equal, test.options.query);
    test.options.query.overflow = Overflow::wrap;
    const Bytes whole = test.sorted();
    test.options.memory_bytes = std::uint64_t{2} << 20;  // less than half of the files
    CHECK((test.sorted() == whole));
    CHECK(test.stats.passes > 2);
    CHECK(test.stats.bytes_written < test.all.size() / 100);
  }
}

TEST_CASE("temporary runs of records may be compressed", "[sort]") {
  Random random(12);
  SortCase test("key:u64,value:u64", "key");
  test.add_records(3'000'000, Values::few, Shape::random, 2, random);
  test.options.memory_bytes = std::uint64_t{32} << 20;  // less than the files have
  test.options.temporary_compression = Compression::parse("lz4");
  Bytes first = test.expected();
  CHECK((test.sorted() == first));
  CHECK(test.stats.records == 3'000'000);
  CHECK(test.stats.passes > 1);
  CHECK(test.stats.busy.compress > 0);
  test.options.query.limit = 2'000'000;
  first.resize(2'000'000 * 16);
  CHECK((test.sorted() == first));
}

TEST_CASE("temporary runs of lines may be compressed", "[sort]") {
  Random random(13);
  SortCase test;
  test.options.text.emplace();
  std::string text;
  const auto records = random_lines("start-", "ab", 60, 40'000'000, text, random);
  test.add_file(bytes_of_text(text));
  test.options.memory_bytes = std::uint64_t{32} << 20;
  test.options.temporary_compression = Compression::parse("zstd:2");
  CHECK((text_of(test.sorted()) == sorted_text(records)));
  CHECK(test.stats.passes > 1);
  CHECK(test.stats.busy.compress > 0);
}

TEST_CASE("several compressed files are read at a time, and spilled", "[sort]") {
  Random random(14);
  SortCase test("key:u64,value:u64", "key");
  test.add_records(5'000'000, Values::few, Shape::random, 9, random);
  while (test.paths.size() < 3) test.add_file({});
  for (const std::filesystem::path& path : test.paths)
    write_file(path, frame_of({Codec::gzip, 1}, read_file(path)));
  test.options.threads = 4;
  test.options.memory_bytes = std::uint64_t{64} << 20;  // less than the files hold
  const std::string plan = explain_sort(test.paths, test.folder / "output", test.options);
  CHECK(holds(plan, "streamed, 2 files at a time"));
  Bytes first = test.expected();
  CHECK((test.sorted() == first));
  CHECK(test.stats.records == 5'000'000);
  CHECK(test.stats.passes > 1);
  test.options.query.limit = 3'000'000;
  first.resize(3'000'000 * 16);
  CHECK((test.sorted() == first));
}

TEST_CASE("what cannot be compressed is refused", "[sort]") {
  SortCase test("key:u64", "key");
  test.add_file(Bytes(80));
  test.options.temporary_compression = Compression::parse("xz");
  CHECK(what_sorting_throws(test).find("lz4 or zstd") != std::string::npos);
  test.options.temporary_compression = Compression::parse("lz4");
  CHECK_THROWS_AS(merge(test.paths, test.folder / "output", test.options), Error);
}

TEST_CASE("temporary runs go to the folders that the options name", "[sort]") {
  Random random(8);
  const TemporaryFolder first, second;
  SortCase test("key:u64,value:u64", "key");
  test.add_records(400'000, Values::any, Shape::random, 1, random);
  test.options.memory_bytes = std::uint64_t{2} << 20;
  test.options.temporary_folders = {first.path(), second.path()};
  CHECK((test.sorted() == test.expected()));
  CHECK(test.stats.passes > 2);
  CHECK(first.names().empty());
  test.options.temporary_folders = {"/proc"};  // has no room
  test.options.overwrite = true;
  CHECK(what_sorting_throws(test).find("/proc") != std::string::npos);
  CHECK((read_file(test.folder / "output") == test.expected()));
}

TEST_CASE("loads of mapped lines are as large as others", "[sort]") {
  Random random(10);
  SortCase test;
  std::string text;
  test.options.text.emplace().kind = TextKind::lines;
  random_lines("", "0123456789", 60, 16 << 20, text, random);
  test.add_file(bytes_of_text(text));
  test.options.memory_bytes = 4 << 20;
  test.options.io = Io::buffered;
  test.sorted();
  const std::uint64_t passes = test.stats.passes;
  test.options.io = Io::mapped;
  test.sorted();
  CHECK(test.stats.passes == passes);
}

TEST_CASE("the smallest budgets merge a sorted stretch of mapped lines and others", "[sort]") {
  Random random(28);
  SortCase test;
  std::string text;
  test.options.text.emplace().kind = TextKind::lines;
  test.options.threads = 2;
  test.options.io = Io::mapped;
  std::vector<TextRecord> all;
  for (int stretch = 0; stretch < 6; ++stretch) {
    std::string lines;
    const auto records = random_lines("", "0123456789", 60, 300 << 10, lines, random);
    all.insert(all.end(), records.begin(), records.end());
    text += lines;
    lines.clear();
    std::vector<TextRecord> ordered = random_lines("", "0123456789", 60, 700 << 10, lines, random);
    std::ranges::stable_sort(ordered, {}, &TextRecord::key);
    all.insert(all.end(), ordered.begin(), ordered.end());
    text += sorted_text(ordered);
  }
  test.add_file(bytes_of_text(text));
  const Bytes expected = bytes_of_text(sorted_text(all));
  for (std::uint64_t memory = 1'750'000; memory < 3'000'000; memory += 125'000) {
    CAPTURE(memory);
    test.options.memory_bytes = memory;
    CHECK(test.sorted() == expected);
    CHECK(test.stats.passes > 1);
  }
}

TEST_CASE("spilled runs give their space back as the output grows", "[sort]") {
  Random random(9);
  const std::uint64_t bytes = 48 << 20;
  for (const bool lines : {false, true}) {
    SortCase test("key:u64,value:u64", "key");
    if (lines) {
      std::string text;
      test.options.text.emplace().kind = TextKind::lines;
      random_lines("", "0123456789", 60, bytes, text, random);
      test.add_file(bytes_of_text(text));
    } else {
      test.add_records(bytes / 16, Values::any, Shape::random, 1, random);
    }
    const std::filesystem::path temp = test.folder / "temp";
    std::filesystem::create_directory(temp);
    if (!has_holes(temp)) return;  // the file system has none
    test.options.temporary_folders = {temp};
    test.options.memory_bytes = 16 << 20;
    const auto sink = std::make_shared<WeighingSink>(temp);
    INFO("lines: " << lines);
    CHECK(sort(test.paths, NamedSink{"the sink", sink}, test.options).passes > 2);
    CHECK(sink->output.size() == test.all.size());
    CHECK(sink->peak > bytes);
    // Each temporary run may keep pieces of 1 MiB that a thread has not given back yet, and chunks
    // that are read ahead. Runs that kept their space would make it twice the bytes.
    CHECK(sink->peak < bytes + 2 * bytes / 3);
    CHECK((read_file(test.paths.front()) == test.all));
  }
}

TEST_CASE("a sort notices records that change in a mapped file after it has read them", "[sort]") {
  Random random(11);
  SortCase test("key:u64,value:u64", "key");
  for (int file = 0; file < 2; ++file)
    test.add_records(std::uint64_t{1} << 20, Values::any, Shape::sorted, 1, random);
  test.options.io = Io::mapped;
  test.options.threads = 2;  // far fewer units in flight than the files make
  test.options.memory_bytes = 16 << 20;
  const auto sink = std::make_shared<DamagingSink>(test.paths.back());
  std::string error;
  try {
    sort(test.paths, NamedSink{"the sink", sink}, test.options);
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  CHECK(holds(error, "the merged records are not those that were read"));
}

TEST_CASE("lines and pairs of any length are sorted stably", "[sort]") {
  Random random(4);
  for (unsigned round = 0; round < 60; round += exhaustive_step) {
    SortCase test;
    test.options.text.emplace();
    const TextKind kind = round % 3 == 2 ? TextKind::pairs : TextKind::lines;
    test.options.text->kind = kind;
    const std::string alphabet = round % 2 == 0 ? "ab" : "0123456789\xff";
    const std::string prefix(round % 7 == 6 ? 60 : 0, 's');
    const std::uint64_t longest = round % 5 == 4 ? 3000 : 40;
    std::vector<TextRecord> records;
    std::string text;
    const std::uint64_t bytes = below(random, round % 4 == 3 ? 8'000'000 : 300'000);
    while (text.size() < bytes) {
      records.push_back(
          random_text_record(kind, prefix, alphabet, longest, records.size(), random));
      text += records.back().bytes;
      if (below(random, 5000) == 0) {
        test.add_file(bytes_of_text(std::string_view(text).substr(test.all.size())));
      }
    }
    std::string rest = text.substr(test.all.size());
    if (kind == TextKind::lines && rest.ends_with('\n') && rest.size() > 1 && round % 2 == 0)
      rest.pop_back();  // the sort adds it
    test.add_file(bytes_of_text(rest));
    if (round % 4 == 3)
      test.options.memory_bytes = 3 * min_memory(0) + below(random, std::uint64_t{2} << 20);
    test.options.io = static_cast<Io>(round % 4);
    INFO("round " << round << ", " << text.size() << " bytes in " << test.paths.size()
                  << " files, budget " << test.options.memory_bytes);
    const std::string expected = sorted_text(records);
    CHECK((text_of(test.sorted()) == expected));
    CHECK(test.stats.records == records.size());
    if (kind == TextKind::lines) CHECK((text_of(test.sorted_into_parts(3)) == expected));
  }
}

TEST_CASE("a sort applies a query as a merge of sorted runs does", "[sort]") {
  Random random(5);
  struct Case {
    std::string name, on_equal = "keep", where = "";
    std::optional<std::uint64_t> limit = {};
    std::string from = "", to = "", having = "";
    Values values = Values::few;
  };
  const std::vector<Case> cases{
      {.name = "first", .on_equal = "first"},
      {.name = "last", .on_equal = "last"},
      {.name = "reduce", .on_equal = "reduce:sum(value),count(other)"},
      {.name = "limit", .limit = 1234},
      {.name = "where and limit", .where = "value > 9", .limit = 777},
      {.name = "range", .from = "500", .to = "4000000000", .values = Values::any},
      {.name = "having and limit",
       .on_equal = "first",
       .limit = 60'000,
       .having = "value > 9000000000000000000",
       .values = Values::any}};
  for (const Case& by : cases) {
    for (const bool spills : {false, true}) {
      INFO(by.name << (spills ? ", spilled" : ""));
      SortCase test("key:u32,value:u64,other:u64", "key");
      test.add_records(400'000, by.values, Shape::random, 3, random);
      if (spills) test.options.memory_bytes = std::uint64_t{3} << 20;
      Query& query = test.options.query;
      parse_on_equal(by.on_equal, query);
      query.overflow = Overflow::wrap;
      query.limit = by.limit;
      if (!by.where.empty()) query.where = parse_where(by.where);
      if (!by.having.empty()) query.having = parse_where(by.having, Setting::having);
      if (!by.from.empty()) query.from = parse_bound(Setting::from, by.from, test.options);
      if (!by.to.empty()) query.to = parse_bound(Setting::to, by.to, test.options);
      write_file(test.folder / "sorted", test.expected());
      const std::vector<std::filesystem::path> run{test.folder / "sorted"};
      merge(run, test.folder / "merged", test.options);
      CHECK((test.sorted() == read_file(test.folder / "merged")));
    }
  }
}

TEST_CASE("large loads of small records are merged in batches", "[sort]") {
  const TemporaryFolder folder;
  const auto merges_in_batches = [&](const char* schema, std::uint64_t bytes,
                                     std::uint64_t memory) {
    const std::filesystem::path file = folder / "file";
    write_file(file, {});
    std::filesystem::resize_file(file, bytes);
    Options options;
    options.record = Schema::parse(schema);
    options.backend = BackendChoice::cpu;
    options.threads = 2;
    options.memory_bytes = memory;
    const std::string text = explain_sort(std::vector{file}, folder / "output", options);
    return text.find(", merged in batches of ") != std::string::npos;
  };
  constexpr std::uint64_t GiB = std::uint64_t{1} << 30;
  CHECK(merges_in_batches("key:u64,value:u64", 4 * GiB, 8 * GiB));
  CHECK(merges_in_batches("key:u64,value:bytes56", 4 * GiB, 8 * GiB));
  CHECK_FALSE(merges_in_batches("key:u64,value:bytes120", 4 * GiB, 8 * GiB));
  CHECK_FALSE(merges_in_batches("key:u64,value:u64", GiB / 2, 8 * GiB));
  CHECK_FALSE(merges_in_batches("key:u64,value:u64", 4 * GiB, GiB / 2));
}

TEST_CASE("a sort in memory says what budget merges as many runs as it makes", "[sort]") {
  Random random(27);
  Options options;
  options.record = Schema::parse("key:u64,value:u64");
  options.backend = BackendChoice::cpu;
  options.threads = 2;
  options.memory_bytes = 1 << 20;
  Bytes records = random_records(options.record, 2 << 20, Values::any, random);
  const Bytes expected = stably_sorted(options.record, {{0}}, records);
  try {
    sort(records, options);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::memory);
    const std::string message = error.what(), before = "memory_bytes = ";
    CAPTURE(message);
    const std::size_t at = message.find(before);
    REQUIRE(at != std::string::npos);
    options.memory_bytes = std::stoull(message.substr(at + before.size()));
  }
  CHECK(options.memory_bytes < 4 << 20);
  sort(records, options);
  CHECK(records == expected);
}

TEST_CASE("a sort refuses what it cannot do, and budgets that are too small", "[sort]") {
  Random random(6);
  SortCase test("key:u64,value:u64", "key");
  test.add_records(1000, Values::any, Shape::random, 1, random);
  test.options.memory_bytes = 100'000;
  CHECK(what_sorting_throws(test).find("is enough") != std::string::npos);
  test.options.memory_bytes = 0;
  test.options.copy_only = true;
  CHECK(what_sorting_throws(test).find("Options::copy_only is for merges") != std::string::npos);
  test.options.copy_only = false;
  for (auto* const compression : {&test.options.compression, &test.options.temporary_compression}) {
    *compression = Compression{Codec::zstd, 500};
    CHECK(what_sorting_throws(test).find("has levels -50 to 22") != std::string::npos);
    compression->reset();
  }
  CHECK_FALSE(std::filesystem::exists(test.folder / "output"));
}
