// Tests of part files of every format: their concatenation is the output of one merge, and records
// with equal keys are in one part.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

constexpr int num_parts = 4;

// A format, and how its record is written for a key of three letters.
struct Format {
  Strings options;
  std::string header;
  std::string (*record)(const std::string& key, const std::string& value);
  std::size_t key_offset;  // in a record
};

const std::vector<Format> part_formats{
    {{"-r", "key:bytes3,value:bytes4"},
     "",
     [](const std::string& key, const std::string& value) { return key + value; },
     0},
    {{"--lines", "-t", ",", "-b", "1"},
     "",
     [](const std::string& key, const std::string& value) { return key + "," + value + "\n"; },
     0},
    {{"--csv", "--header", "-b", "key"},
     "key,value\n",
     [](const std::string& key, const std::string& value) {
       return key + ",\"a, \"\"b\"\"\n" + value + "\"\n";
     },
     0},
    {{"--kv"},
     "",
     [](const std::string& key, const std::string& value) {
       return std::string("\3\0\0\0\4\0\0\0", 8) + key + value;
     },
     8},
};

// Runs of records whose keys repeat often.
struct PartData {
  explicit PartData(const Format& of) : format(of) {
    for (unsigned run = 0; run < 3; ++run) {
      std::string text = format.header;
      for (unsigned i = 0; i < 3000; ++i) {
        const unsigned key = i / (7 + run);
        text += format.record(
            {static_cast<char>('a' + key / 676), static_cast<char>('a' + key / 26 % 26),
             static_cast<char>('a' + key % 26)},
            std::to_string(1000 + (i * 37 + run) % 9000));
      }
      runs.push_back(folder / ("run" + std::to_string(run)));
      write_file(runs.back(), bytes_of_text(text));
    }
  }

  Strings command(const std::string& verb, const Strings& options, const Strings& inputs) const {
    return Strings{verb, "--backend", "cpu"} + format.options + options + inputs;
  }
  std::string whole(const Strings& options) const {
    REQUIRE(run(command("merge", options + Strings{"-f", "-o", folder / "whole"}, runs)).code == 0);
    return text_of(folder / "whole");
  }
  // Checks that the parts hold `expected`, and that no two have records with the same key.
  void check(const Strings& arguments, const std::string& expected,
             const Environment& setting = {}) const {
    const Result result = run(arguments, setting);
    INFO(result.err);
    REQUIRE(result.code == 0);
    std::string all, key_before;
    for (int part = 0; part < num_parts; ++part) {
      const std::string text = text_of(parts + "/part-0000" + std::to_string(part));
      CHECK(text.size() > expected.size() / num_parts / 2);
      const std::string_view records =
          std::string_view(text).substr(part == 0 ? format.header.size() : 0);
      CHECK(key_before != records.substr(format.key_offset, 3));
      all += text;
      const std::string last = format.record("abc", "1000");
      key_before = records.substr(records.size() - last.size() + format.key_offset, 3);
    }
    CHECK((all == expected));
    std::filesystem::remove_all(parts);
  }

  const Format& format;
  TemporaryFolder folder;
  Strings runs;
  std::string parts = folder / "parts";
};

}  // namespace

TEST_CASE("parts of every format are one merge, with equal keys in one part", "[parts]") {
  for (const Format& format : part_formats) {
    INFO(format.options[0]);
    const PartData data(format);
    const Strings into{"--parts", std::to_string(num_parts), "--parts-by-key", "-o", data.parts};
    const std::string expected = data.whole({});
    data.check(data.command("merge", into, data.runs), expected);
    data.check(data.command("merge", into + Strings{"-m", "8M", "-T", "1"}, data.runs), expected);
    data.check(data.command("sort", into, data.runs), expected);
    // Operators shorten all parts.
    const Strings last{"--on-equal", "last"};
    data.check(data.command("merge", into + last, data.runs), data.whole(last));
  }
}

TEST_CASE("parts of pipes and compressed runs are one merge", "[parts]") {
  for (const Format& format : part_formats) {
    INFO(format.options[0]);
    const PartData data(format);
    const Strings into{"--parts", std::to_string(num_parts), "--parts-by-key", "-o", data.parts};
    const std::string expected = data.whole({});
    Environment piped;
    piped.in = text_of(data.runs[0]);
    data.check(data.command("merge", into, {"-", data.runs[1], data.runs[2]}), expected, piped);
    const std::string packed = data.folder / "packed.zst";
    REQUIRE(run({"merge", "--copy-only", "-r", "byte:u8", "-o", packed, data.runs[1]}).code == 0);
    const Result result = run(data.command("merge", into, {data.runs[0], packed, data.runs[2]}));
    CHECK(holds(result.err, "4 parts share"));
    std::filesystem::remove_all(data.parts);
    data.check(data.command("merge", into, {data.runs[0], packed, data.runs[2]}), expected);
    const Strings first{"--on-equal", "first"};
    data.check(data.command("merge", into + first, {data.runs[0], packed, data.runs[2]}),
               data.whole(first));
    const Strings all = Strings{"union"} + data.format.options;
    REQUIRE(run(all + Strings{"-o", data.folder / "united"} + data.runs).code == 0);
    data.check(data.command("union", into, {data.runs[0], packed, data.runs[2]}),
               text_of(data.folder / "united"));
  }
}

TEST_CASE("a temporary file that parts are cut from is told beforehand", "[parts]") {
  const TemporaryFolder folder;
  write_file(folder / "run", bytes_of_text("a\nb\n"));
  for (const std::string command : {"merge", "sort"}) {
    const auto tells = [&](const Strings& options) {
      return holds(run(Strings{command, "--parts", "2", "--explain", "-o", folder / "parts"} +
                       options + Strings{folder / "run"})
                       .out,
                   "to a temporary file first");
    };
    CHECK(tells({"--csv", "--on-equal", "first"}));
    CHECK(!tells({"--csv"}));
    CHECK(!tells({"--csv", "--on-equal", "first", "--limit", "1"}));
  }
  CHECK(!holds(run({"merge", "--lines", "--on-equal", "first", "--parts", "2", "--explain", "-o",
                    folder / "parts", folder / "run"})
                   .out,
               "temporary"));
}

TEST_CASE("a limit that parts share keeps equal keys together on request", "[parts]") {
  for (const Format& format : part_formats) {
    const PartData data(format);
    const Strings limit{"--limit", "7001", "--where",
                        format.options[0] == "-r" ? "key > 'aac'" : "1 > 'aac'"};
    if (format.options[0] == "--kv") continue;  // pairs have no columns
    data.check(data.command("merge",
                            limit + Strings{"--parts", std::to_string(num_parts), "--parts-by-key",
                                            "-o", data.parts},
                            data.runs),
               data.whole(limit));
  }
}

TEST_CASE("parts of a sort with compressed temporary files are one sort", "[parts]") {
  const TemporaryFolder folder;
  const std::string runs = folder / "runs", parts = folder / "parts", whole = folder / "whole";
  REQUIRE(run({"gen", "-r", "key:u64", "--records", "6000000", "--runs", "1", "-o", runs}).code ==
          0);
  const Strings sort{"sort", "-r", "key:u64", "-b", "key:desc", runs + "/run-00000.bin"};
  REQUIRE(run(sort + Strings{"-o", whole}).code == 0);
  REQUIRE(run(sort + Strings{"--compress-spill", "lz4", "-m", "32M", "--parts", "2", "-o", parts})
              .code == 0);
  CHECK(std::filesystem::file_size(parts + "/part-00000") == 24'000'000);
  CHECK((text_of(parts + "/part-00000") + text_of(parts + "/part-00001") == text_of(whole)));
}
