// Tests of merges from and into streams, above all those of Boost.Iostreams.
#include "corank/iostreams.hpp"

#include <algorithm>
#include <boost/iostreams/compose.hpp>
#include <boost/iostreams/device/array.hpp>
#include <boost/iostreams/device/back_inserter.hpp>
#include <boost/iostreams/device/file.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "codec/decompressor.hpp"
#include "corank/merge.hpp"
#include "support/catch.hpp"
#include "support/sources.hpp"

using namespace corank;
using namespace corank::test;
namespace io = boost::iostreams;

namespace {

// A filter that flips every bit, both ways.
struct Flip : io::multichar_dual_use_filter {
  template <class Device>
  std::streamsize read(Device& device, char* bytes, std::streamsize count) {
    const std::streamsize got = io::read(device, bytes, count);
    flip(bytes, got);
    return got;
  }
  template <class Device>
  std::streamsize write(Device& device, const char* bytes, std::streamsize count) {
    std::string flipped(bytes, static_cast<std::size_t>(count));
    flip(flipped.data(), count);
    return io::write(device, flipped.data(), count);
  }
  static void flip(char* bytes, std::streamsize count) {
    for (std::streamsize i = 0; i < count; ++i) bytes[i] = static_cast<char>(~bytes[i]);
  }
};

std::string flipped(std::string bytes) {
  Flip::flip(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

// A filter that writes nothing but an end.
struct AddEnd : io::multichar_output_filter {
  template <class Device>
  std::streamsize write(Device&, const char*, std::streamsize count) {
    return count;
  }
  template <class Device>
  void close(Device& device) {
    io::write(device, "end", 3);
  }
};

struct FullSink : io::sink {
  std::streamsize write(const char*, std::streamsize) { throw std::length_error("it is full"); }
};

// A device that gives a few bytes at a time, and none every other time. Fails at a byte, if asked.
struct Trickle : io::source {
  std::streamsize read(char* bytes, std::streamsize count) {
    if (at == fails_at && throws_number) throw 42;
    if (at == fails_at) throw std::runtime_error("the line is dead");
    if ((empty = !empty)) return 0;
    const std::size_t got = std::min({text.size(), fails_at, at + 5'000}) - at;
    if (got == 0) return -1;
    const std::size_t few = std::min(got, static_cast<std::size_t>(count));
    std::memcpy(bytes, text.data() + at, few);
    at += few;
    return static_cast<std::streamsize>(few);
  }
  std::string text;
  std::size_t fails_at = std::string::npos;
  bool throws_number = false;
  std::size_t at = 0;
  bool empty = false;
};

// A sink that counts its commits and fails at a byte, if asked.
struct Taker final : ByteSink {
  void write(std::span<const std::byte> bytes) override {
    CHECK(commits == 0);
    if (text.size() + bytes.size() > room) throw std::length_error("the tape is full");
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void commit() override {
    ++commits;
    if (fails_to_commit) throw std::runtime_error("the tape is torn");
  }
  std::string text;
  std::size_t room = std::string::npos;
  int commits = 0;
  bool fails_to_commit = false;
};

std::string compressed(Codec codec, const std::string& text) {
  return text_of(frame_of({codec, 1}, std::as_bytes(std::span(text))));
}

// Holds sorted runs, and what they give merged.
class SourceMerging {
 public:
  explicit SourceMerging(std::size_t runs, std::uint64_t records_a_run = 20'000) {
    Random random(51);
    options.record = Schema::parse("a:u16,p:u32,q:u16");
    options.backend = BackendChoice::cpu;
    options.threads = 2;
    const auto keys = parse_keys("a", options.record);
    Bytes all;
    for (std::size_t i = 0; i < runs; ++i) {
      const Bytes run = stably_sorted(
          options.record, keys, random_records(options.record, records_a_run, Values::few, random));
      texts.push_back(text_of(run));
      all.insert(all.end(), run.begin(), run.end());
    }
    expected = text_of(stably_sorted(options.record, keys, all));
  }

  // Returns the runs as devices of memory.
  std::vector<NamedSource> sources() const {
    std::vector<NamedSource> sources;
    for (const std::string& text : texts)
      sources.push_back(source("run " + std::to_string(sources.size()),
                               io::array_source(text.data(), text.size())));
    return sources;
  }

  std::string message(const std::vector<NamedSource>& runs) const {
    try {
      merge(runs, NamedSink{"tape", std::make_shared<Taker>()}, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  std::vector<std::string> texts;
  std::string expected;
  Options options;
};

}  // namespace

TEST_CASE("every kind of Boost.Iostreams source is a run") {
  const SourceMerging test(8);
  const TemporaryFolder folder;
  const std::string plain = (folder / "plain").string(), hidden = (folder / "hidden").string();
  write_file(plain, bytes_of_text(test.texts[0]));
  const std::string flipped_text = flipped(test.texts[1]);
  write_file(hidden, bytes_of_text(flipped_text));
  const std::string zipped = compressed(Codec::zstd, test.texts[7]);

  io::filtering_istream filtering;
  filtering.push(Flip());
  const std::string flipped_3 = flipped(test.texts[3]);
  filtering.push(io::array_source(flipped_3.data(), flipped_3.size()));
  io::filtering_istreambuf buffer;
  buffer.push(io::array_source(test.texts[4].data(), test.texts[4].size()));
  std::istringstream text(test.texts[5]);
  Trickle trickle;
  trickle.text = test.texts[6];

  const std::vector<NamedSource> runs{
      source("file", io::file_source(plain, std::ios::binary)),
      source("composed", io::compose(Flip(), io::file_source(hidden, std::ios::binary))),
      source("array", io::array_source(test.texts[2].data(), test.texts[2].size())),
      source("filtering stream", filtering),
      source("filtering buffer", buffer),
      source("string stream", text),
      source("device", trickle),
      source("compressed", io::array_source(zipped.data(), zipped.size())),
  };
  const auto taker = std::make_shared<Taker>();
  const Stats stats = merge(runs, NamedSink{"taker", taker}, test.options);
  CHECK((taker->text == test.expected));
  CHECK(taker->commits == 1);
  CHECK(stats.verified);
  CHECK(stats.output_bytes == test.expected.size());
}

TEST_CASE("every kind of Boost.Iostreams sink is an output") {
  const SourceMerging test(3);
  const TemporaryFolder folder;
  const std::string plain = (folder / "plain").string(), hidden = (folder / "hidden").string();

  std::string text;
  merge(test.sources(), sink("text", io::back_inserter(text)), test.options);
  CHECK((text == test.expected));

  std::string array(test.expected.size(), '\0');
  merge(test.sources(), sink("array", io::array_sink(array.data(), array.size())), test.options);
  CHECK((array == test.expected));

  merge(test.sources(), sink("file", io::file_sink(plain, std::ios::binary)), test.options);
  CHECK((text_of(read_file(plain)) == test.expected));

  merge(test.sources(),
        sink("composed", io::compose(Flip(), io::file_sink(hidden, std::ios::binary))),
        test.options);
  CHECK((flipped(text_of(read_file(hidden))) == test.expected));

  std::string filtered;
  io::filtering_ostream filtering;
  filtering.push(Flip());
  filtering.push(io::back_inserter(filtered));
  merge(test.sources(), sink("filtering stream", filtering), test.options);
  CHECK((flipped(filtered) == test.expected));

  std::ostringstream stream;
  merge(test.sources(), sink("string stream", stream), test.options);
  CHECK((stream.str() == test.expected));
}

TEST_CASE("devices that are not open, or that lose bytes, are errors") {
  const SourceMerging test(2);
  const TemporaryFolder folder;
  std::vector<NamedSource> runs = test.sources();
  runs.push_back(source("missing", io::file_source(folder / "missing", std::ios::binary)));
  const auto taker = std::make_shared<Taker>();
  CHECK_THROWS_WITH(merge(runs, NamedSink{"taker", taker}, test.options),
                    ContainsSubstring("missing") && ContainsSubstring("is not open"));
  CHECK(taker->commits == 0);
  io::filtering_istream endless;
  endless.push(Flip());
  runs.back() = source("endless", endless);
  CHECK_THROWS_WITH(merge(runs, NamedSink{"taker", taker}, test.options),
                    ContainsSubstring("endless") && ContainsSubstring("has no end"));
  CHECK_THROWS_WITH(merge(test.sources(),
                          sink("full", io::file_sink("/dev/full", std::ios::binary)), test.options),
                    ContainsSubstring("full"));
  // A few bytes are written by the flush alone.
  const std::string record(test.options.record.record_bytes, 'a');
  const std::vector<NamedSource> few{source("few", io::array_source(record.data(), record.size()))};
  CHECK_THROWS_WITH(
      merge(few, sink("full", io::file_sink("/dev/full", std::ios::binary)), test.options),
      ContainsSubstring("full") && ContainsSubstring("last bytes"));
}

TEST_CASE("chains without a buffer tell that the bytes of their close are lost") {
  const SourceMerging test(2);
  CHECK_THROWS_WITH(
      merge(test.sources(), sink("composed", io::compose(AddEnd(), FullSink())), test.options),
      ContainsSubstring("composed: cannot close: it is full"));
  io::filtering_ostream filtering;
  filtering.push(AddEnd());
  filtering.push(FullSink(), 0);
  CHECK_THROWS_WITH(merge(test.sources(), sink("filtering", filtering), test.options),
                    ContainsSubstring("filtering: cannot close: it is full"));
}

TEST_CASE("a source is one run only") {
  const SourceMerging test(2);
  std::vector<NamedSource> runs = test.sources();
  runs.push_back({"again", runs[1].bytes});
  CHECK(test.message(runs) == "again: has the ByteSource of run 1; each run needs its own");
}

TEST_CASE("a source that says it read more than it was asked is an error") {
  struct Boaster : ByteSource {
    std::optional<std::size_t> read(std::span<std::byte> into) override { return into.size() + 1; }
  };
  const std::vector<NamedSource> runs{{"boaster", std::make_shared<Boaster>()}};
  const auto taker = std::make_shared<Taker>();
  CHECK_THROWS_WITH(merge(runs, NamedSink{"taker", taker}, SourceMerging(1).options),
                    ContainsSubstring("boaster") && ContainsSubstring("more than it was asked"));
}

TEST_CASE("streams and files are merged into one another") {
  SourceMerging test(4);
  const TemporaryFolder folder;
  merge(test.sources(), folder / "out", test.options);
  CHECK((text_of(read_file(folder / "out")) == test.expected));

  std::vector<std::filesystem::path> paths;
  for (std::size_t i = 0; i < test.texts.size(); ++i) {
    paths.push_back(folder / std::to_string(i));
    write_file(paths.back(), bytes_of_text(test.texts[i]));
  }
  const auto taker = std::make_shared<Taker>();
  merge(paths, NamedSink{"out.gz", taker}, test.options);
  CHECK((taker->text == test.expected));  // the name of a sink does not choose a codec

  const auto compressed_taker = std::make_shared<Taker>();
  test.options.compression = Compression{Codec::gzip, 1};
  merge(paths, NamedSink{"out", compressed_taker}, test.options);
  write_file(folder / "out.gz", bytes_of_text(compressed_taker->text));
  CHECK((text_of(drain(*open(folder / "out.gz"))) == test.expected));
}

TEST_CASE("more streams than the memory holds are merged in several passes") {
  SourceMerging test(100, 2'000);
  test.options.memory_bytes = std::uint64_t{4} << 20;
  std::string warning;
  test.options.notice = [&](const Message& message) { warning = message.text(); };
  const auto taker = std::make_shared<Taker>();
  const Stats stats = merge(test.sources(), NamedSink{"taker", taker}, test.options);
  CHECK(stats.passes > 1);
  CHECK(holds(warning, "passes, which write an unknown number of bytes more, to "));
  CHECK((taker->text == test.expected));
}

TEST_CASE("streams are sorted as well") {
  SourceMerging test(6);
  std::string first, second;
  for (std::size_t run = 0; run < 6; ++run) (run < 4 ? first : second) += test.texts[run];
  for (const std::uint64_t memory_bytes : {std::uint64_t{0}, std::uint64_t{8} << 20}) {
    test.options.memory_bytes = memory_bytes;
    const std::vector<NamedSource> inputs{
        source("first", io::array_source(first.data(), first.size())),
        source("second", io::array_source(second.data(), second.size()))};
    const auto taker = std::make_shared<Taker>();
    sort(inputs, NamedSink{"taker", taker}, test.options);
    CHECK((taker->text == test.expected));
    CHECK(taker->commits == 1);
  }
}

TEST_CASE("lines with a header are merged from streams") {
  Options options;
  options.text = TextFormat{};
  options.text->header = true;
  std::istringstream a("name\nada\neve\n"), b("name\nbob");
  const auto taker = std::make_shared<Taker>();
  merge(std::vector{source("a", a), source("b", b)}, NamedSink{"taker", taker}, options);
  CHECK(taker->text == "name\nada\nbob\neve\n");
}

TEST_CASE("a source that fails is told with its name and the byte") {
  const SourceMerging test(2);
  auto runs = test.sources();
  Trickle trickle;
  trickle.text = test.texts[1];
  trickle.fails_at = 12'345;
  runs[1] = source("remote", trickle);
  CHECK(test.message(runs) == "remote: cannot read at byte 12345: the line is dead");
  runs[1] = source("remote", trickle);
  try {
    merge(runs, NamedSink{"taker", std::make_shared<Taker>()}, test.options);
    FAIL("was merged");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::system);
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::runtime_error);
  }
  std::ifstream none("/nonexistent/file");
  runs[1] = source("remote", none);
  CHECK(holds(test.message(runs), "remote: cannot read at byte 0: the stream has failed, or was"));
  trickle.throws_number = true;
  runs[1] = source("remote", trickle);
  CHECK(holds(test.message(runs), "remote: cannot read at byte 12345: something was thrown"));
  runs[1] = {"remote", nullptr};
  CHECK(test.message(runs) == "remote: has no ByteSource");
}

TEST_CASE("a stream that is cut short is told with its name and the byte") {
  const SourceMerging test(2);
  for (const Codec codec : codecs) {
    const std::string whole = compressed(codec, test.texts[1]);
    for (const std::size_t missing : {std::size_t{1}, whole.size() / 2}) {
      INFO(name_of(codec) << " without " << missing << " bytes");
      const std::size_t left = whole.size() - missing;
      auto runs = test.sources();
      runs[1] = source("remote", io::array_source(whole.data(), left));
      CHECK(holds(test.message(runs), "remote: its " + std::string(name_of(codec)) +
                                          " data ends too early, at byte " + std::to_string(left)));
    }
  }
  auto runs = test.sources();
  runs[1] = source("remote", io::array_source(test.texts[1].data(), 805));
  CHECK(holds(test.message(runs), "ends at byte 805, 5 bytes after the last whole record"));
}

TEST_CASE("a sink that fails ends the merge and is not committed") {
  SourceMerging test(2);
  const auto message = [&](const std::shared_ptr<Taker>& taker) -> std::string {
    try {
      merge(test.sources(), NamedSink{"tape", taker}, test.options);
    } catch (const Error& error) {
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::exception);
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto full = std::make_shared<Taker>();
  full->room = 100'000;
  CHECK(message(full) ==
        "tape: cannot write at byte " + std::to_string(full->text.size()) + ": the tape is full");
  CHECK((full->text == test.expected.substr(0, full->text.size())));
  CHECK(full->commits == 0);
  const auto torn = std::make_shared<Taker>();
  torn->fails_to_commit = true;
  CHECK(message(torn) == "tape: cannot close: the tape is torn");
  std::string room(1000, '\0');
  CHECK_THROWS_AS(
      merge(test.sources(), sink("array", io::array_sink(room.data(), room.size())), test.options),
      Error);
  CHECK_THROWS_AS(merge(test.sources(), NamedSink{"nothing", nullptr}, test.options), Error);
  CHECK(!std::filesystem::exists("nothing"));
}

TEST_CASE("a stream that was never opened takes no output, not even an empty one") {
  SourceMerging test(2);
  std::ofstream none("/nonexistent/file");
  CHECK_THROWS_AS(merge(test.sources(), sink("none", none), test.options), Error);
  for (std::string& text : test.texts) text.clear();
  CHECK_THROWS_AS(merge(test.sources(), sink("none", none), test.options), Error);
}

TEST_CASE("a sink sees that a merge failed, since it is not committed") {
  SourceMerging test(2);
  std::swap_ranges(test.texts[0].begin(), test.texts[0].begin() + 8, test.texts[0].end() - 8);
  const auto taker = std::make_shared<Taker>();
  CHECK_THROWS_AS(merge(test.sources(), NamedSink{"taker", taker}, test.options), OutOfOrder);
  CHECK(taker->commits == 0);
  std::stop_source stop;
  stop.request_stop();
  test.options.stop = stop.get_token();
  CHECK_THROWS_AS(merge(test.sources(), NamedSink{"taker", taker}, test.options), Interrupted);
  CHECK(taker->commits == 0);
}

TEST_CASE("what needs files is refused for streams") {
  SourceMerging test(2);
  test.options.resume = true;
  CHECK(holds(test.message(test.sources()), "run 0: is a stream, in which Options::resume"));
  test.options.resume = false;
  test.options.parts = 2;
  const TemporaryFolder folder;
  write_file(folder / "run", bytes_of_text(test.texts[0]));
  const std::vector<std::filesystem::path> paths{folder / "run"};
  const NamedSink taker{"taker", std::make_shared<Taker>()};
  CHECK_THROWS_AS(merge(paths, taker, test.options), Error);
  test.options.parts = 0;
  test.options.resume = true;
  CHECK_THROWS_AS(merge(paths, taker, test.options), Error);
  CHECK(folder.names().size() == 1);
}

TEST_CASE("the decompressor is a filter in a chain of others") {
  const SourceMerging test(1);
  for (const Codec codec : codecs) {
    INFO(name_of(codec));
    const std::string hidden = flipped(compressed(codec, test.texts[0]));
    for (const std::streamsize buffer_bytes : {1, 100, 65'536}) {
      io::filtering_istream chain;
      chain.push(Decompressor(buffer_bytes, "chain", codec, 0));
      chain.push(Flip());
      chain.push(io::array_source(hidden.data(), hidden.size()));
      std::ostringstream plain;
      plain << chain.rdbuf();
      CHECK((plain.str() == test.texts[0]));
    }
    auto cut = io::compose(Decompressor(4096, "chain", codec, 0),
                           io::compose(Flip(), io::array_source(hidden.data(), hidden.size() - 1)));
    std::string room(test.texts[0].size() + 1, '\0');
    CHECK_THROWS_AS(io::read(cut, room.data(), static_cast<std::streamsize>(room.size())), Error);
  }
}
