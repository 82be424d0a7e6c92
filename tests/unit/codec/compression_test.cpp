// Tests of merges with compressed inputs and outputs.
#include <fmt/format.h>

#include <algorithm>
#include <stop_token>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "codec/compressor.hpp"
#include "corank/merge.hpp"
#include "support/catch.hpp"
#include "support/sources.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Returns the decompressed content of a file.
Bytes content_of(const std::filesystem::path& path) {
  return drain(*open(path));
}

// Holds runs on disk and the expected output of their merge.
class CompressedMerging {
 public:
  explicit CompressedMerging(std::size_t runs, std::uint64_t records_a_run) {
    Random random(41);
    options.record = Schema::parse("a:u16,p:u32,q:u16");
    options.backend = BackendChoice::cpu;
    options.overwrite = true;
    const auto keys = parse_keys("a", options.record);
    for (std::size_t i = 0; i < runs; ++i) {
      const Bytes run = stably_sorted(
          options.record, keys, random_records(options.record, records_a_run, Values::few, random));
      paths.push_back(folder / ("run" + std::to_string(i)));
      write_file(paths.back(), run);
      expected.insert(expected.end(), run.begin(), run.end());
    }
    expected = stably_sorted(options.record, keys, expected);
  }

  TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  Options options;
  Bytes expected;
};

std::string message_of(const CompressedMerging& test, const std::filesystem::path& output) {
  try {
    merge(test.paths, output, test.options);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("an output is compressed as its name or its options say") {
  CompressedMerging test(3, 150'000);
  for (const Codec codec : codecs) {
    INFO(name_of(codec));
    const auto named = test.folder / ("out" + std::string(suffix_of(codec)));
    test.options.compression.reset();
    const Stats stats = merge(test.paths, named, test.options);
    CHECK(look_at(named, true).codec == codec);
    CHECK((content_of(named) == test.expected));
    CHECK(stats.output_bytes == std::filesystem::file_size(named));
    CHECK(stats.bytes_written == test.expected.size());
    CHECK(stats.busy.compress > 0);

    test.options.compression = Compression{codec, 1};
    merge(test.paths, test.folder / "out", test.options);
    CHECK((content_of(test.folder / "out") == test.expected));
    CHECK(look_at(test.folder / "out", true).codec == codec);

    test.options.compression = Compression{};
    merge(test.paths, named, test.options);
    CHECK((read_file(named) == test.expected));
  }
}

TEST_CASE("compressed runs are merged as the files that they hold") {
  CompressedMerging test(100, 3000);
  for (std::size_t run = 0; run < test.paths.size(); ++run) {
    if (run % 7 == 6) continue;  // some stay uncompressed
    const Codec codec = codecs[run % std::size(codecs)];
    const auto path = test.paths[run].string() + std::string(suffix_of(codec));
    write_file(path, frame_of({codec, 1}, read_file(test.paths[run])));
    test.paths[run] = path;
  }
  const auto output = test.folder / "out";
  for (const std::uint64_t memory_bytes : {std::uint64_t{0}, std::uint64_t{64} << 20}) {
    test.options.memory_bytes = memory_bytes;
    const Stats stats = merge(test.paths, output, test.options);
    CHECK((read_file(output) == test.expected));
    CHECK((stats.passes > 1) == (memory_bytes != 0));
    CHECK(stats.records == 300'000);
    CHECK(stats.verified);
  }
  test.options.copy_only = true;
  CHECK(merge(test.paths, output, test.options).records == 300'000);
}

TEST_CASE("a range of compressed runs and their equal keys are those of the files") {
  CompressedMerging test(5, 3000);
  const auto output = test.folder / "out";
  const auto merged = [&](const auto& paths) {
    merge(paths, output, test.options);
    return read_file(output);
  };
  const auto plain = test.paths;
  for (const std::size_t run : {0, 3}) {
    const auto path = test.paths[run].string() + ".zst";
    write_file(path, frame_of({Codec::zstd, 1}, read_file(test.paths[run])));
    test.paths[run] = path;
  }
  Query& query = test.options.query;
  for (const auto& [from, to] :
       {std::pair{"2", ""}, {"", "3"}, {"1", "4"}, {"60000", ""}, {"3", "3"}}) {
    INFO(from << " to " << to);
    query = Query{};
    if (*from != 0) query.from = {from};
    if (*to != 0) query.to = {to};
    CHECK((merged(test.paths) == merged(plain)));
    query.limit = 1000;
    CHECK((merged(test.paths) == merged(plain)));
  }
  query = Query{};
  query.on_equal = OnEqual::error;
  CHECK(holds(message_of(test, output), "have the same key"));
}

TEST_CASE("a compressed run that is not what it must be is told") {
  CompressedMerging test(3, 20'000);
  const auto replace = [&](const Bytes& records) {
    const Bytes frame = frame_of({Codec::zstd, 1}, records);
    test.paths[1] = test.folder / "run1.zst";
    write_file(test.paths[1], frame);
    return frame;
  };
  const auto output = test.folder / "out";
  const Bytes records = read_file(test.paths[1]);
  Bytes wrong = records;
  std::copy_n(records.begin(), 8, wrong.end() - 8);
  replace(wrong);
  try {
    merge(test.paths, output, test.options);
    FAIL("was merged");
  } catch (const OutOfOrder& error) {
    CHECK(error.record() == 19'999);
    CHECK(error.file() == test.paths[1]);
  }
  wrong = records;
  wrong.pop_back();
  replace(wrong);
  CHECK(
      holds(message_of(test, output), "ends at byte 159999, 7 bytes after the last whole record"));
  Bytes frame = replace(records);
  frame.pop_back();
  write_file(test.paths[1], frame);
  CHECK(holds(message_of(test, output), "ends too early"));
  test.options.resume = true;
  CHECK(holds(message_of(test, output), "is compressed, in which Options::resume"));
  CHECK(!std::filesystem::exists(output));
}

TEST_CASE("of two faults of a compressed run the first is told, however far ahead it is read") {
  const TemporaryFolder folder;
  std::vector<std::string> lines;
  for (int line = 0; line < 300'000; ++line) lines.push_back(fmt::format("{:012}\n", line));
  std::swap(lines[150'000], lines[150'001]);
  std::string text;
  for (const std::string& line : lines) text += line;
  Bytes frame = frame_of({Codec::gzip, 1}, bytes_of_text(text));
  frame[frame.size() - 6] ^= std::byte{1};  // of its checksum
  const std::vector paths{folder.path() / "run.gz"};
  write_file(paths[0], frame);
  Options options;
  options.text = TextFormat{};
  for (int attempt = 0; attempt < 30; ++attempt)
    CHECK_THROWS_AS(merge(paths, folder.path() / "out", options), OutOfOrder);
}

TEST_CASE("a compressed run without records is merged") {
  CompressedMerging test(2, 1000);
  write_file(test.folder / "empty.gz", frame_of({Codec::gzip, 1}, {}));
  test.paths.push_back(test.folder / "empty.gz");
  merge(test.paths, test.folder / "out", test.options);
  CHECK((read_file(test.folder / "out") == test.expected));
  test.paths = {test.folder / "empty.gz"};
  CHECK(merge(test.paths, test.folder / "out", test.options).records == 0);
  CHECK(read_file(test.folder / "out").empty());
}

TEST_CASE("which compressed bytes are written does not depend on how they were merged") {
  CompressedMerging test(5, 100'000);
  const auto path = test.folder / "out.zst";
  merge(test.paths, path, test.options);
  const Bytes expected = read_file(path);
  for (const unsigned threads : {1, 3, 16})
    for (const std::uint64_t memory_bytes : {16 << 20, 64 << 20})
      for (const Io io : {Io::buffered, Io::direct, Io::mapped}) {
        test.options.threads = threads;
        test.options.memory_bytes = memory_bytes;
        test.options.io = io;
        merge(test.paths, path, test.options);
        INFO(threads << " threads, " << memory_bytes << " bytes");
        CHECK((read_file(path) == expected));
      }
}

TEST_CASE("a compressed output without records is a file of its codec") {
  CompressedMerging test(2, 0);
  for (const Codec codec : codecs) {
    const auto path = test.folder / ("out" + std::string(suffix_of(codec)));
    merge(test.paths, path, test.options);
    CHECK(std::filesystem::file_size(path) > 0);
    CHECK(content_of(path).empty());
  }
}

TEST_CASE("parts are compressed side by side") {
  CompressedMerging test(4, 60'000);
  test.options.parts = 3;
  test.options.compression = Compression{Codec::gzip, 1};
  const Stats stats = merge(test.paths, test.folder / "parts", test.options);
  Bytes all;
  std::uint64_t bytes = 0;
  for (const char* name : {"part-00000.gz", "part-00001.gz", "part-00002.gz"}) {
    const Bytes part = content_of(test.folder / "parts" / name);
    CHECK(part.size() == test.expected.size() / 3);
    all.insert(all.end(), part.begin(), part.end());
    bytes += std::filesystem::file_size(test.folder / "parts" / name);
  }
  CHECK((all == test.expected));
  CHECK(stats.output_bytes == bytes);
}

TEST_CASE("copies are compressed as merges are") {
  CompressedMerging test(3, 50'000);
  test.options.copy_only = true;
  merge(test.paths, test.folder / "out.lz4", test.options);
  Bytes all;
  for (const auto& path : test.paths) {
    const Bytes run = read_file(path);
    all.insert(all.end(), run.begin(), run.end());
  }
  CHECK((content_of(test.folder / "out.lz4") == all));
}

TEST_CASE("compression takes its memory from the budget") {
  CompressedMerging test(3, 1000);
  test.options.memory_bytes = 1 << 20;
  const std::string refused = message_of(test, test.folder / "out.zst");
  const std::string says = "the smallest budget that works is ";
  CHECK(holds(refused, "Options::memory_bytes = 1048576:"));
  REQUIRE(holds(refused, says));
  test.options.memory_bytes = std::stoull(refused.substr(refused.find(says) + says.size()));
  merge(test.paths, test.folder / "out.zst", test.options);
  CHECK((content_of(test.folder / "out.zst") == test.expected));
  --test.options.memory_bytes;
  CHECK(holds(message_of(test, test.folder / "out.zst"), "too little"));
}

TEST_CASE("a compressed output is not gone on with") {
  CompressedMerging test(2, 1000);
  test.options.resume = true;
  CHECK(holds(message_of(test, test.folder / "out.xz"), "Options::resume"));
  CHECK(test.folder.names().size() == 2);
}

TEST_CASE("a compressed output that can't be written leaves nothing") {
  CompressedMerging test(3, 200'000);
  test.options.compression = Compression{Codec::zstd, 1};
  CHECK(holds(message_of(test, "/dev/full"), "/dev/full: cannot write"));
  CHECK(test.folder.names().size() == 3);
}

TEST_CASE("an interrupted merge does not wait for all that is to be compressed") {
  CompressedMerging test(2, 100'000);
  std::stop_source stop;
  stop.request_stop();
  Compressor compressor({Codec::xz, 9}, 1, stop.get_token(), {});
  const auto write = [](std::span<const std::byte>) {};
  CHECK_THROWS_AS(
      [&] {
        for (int i = 0; i < 100; ++i) compressor.add(test.expected, write);
      }(),
      Interrupted);
}

TEST_CASE("what fails while frames are written stops them") {
  Random random(42);
  Bytes bytes(5 << 20);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(below(random, 7));
  Compressor compressor({Codec::lz4, 0}, 2, {}, {});
  const auto fail = [](std::span<const std::byte>) { throw Error("the disk is gone"); };
  CHECK_THROWS_AS(
      [&] {
        compressor.add(bytes, fail);
        compressor.finish(fail);
      }(),
      Error);
}
