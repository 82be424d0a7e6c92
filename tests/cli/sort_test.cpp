// `corank sort` as a user runs it: pipes, compressed files, headers, replaced inputs, messages.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

std::string write_text(const TemporaryFolder& folder, const std::string& name,
                       const std::string& text) {
  write_file(folder / name, bytes_of_text(text));
  return folder / name;
}

}  // namespace

TEST_CASE("long lines of a pipe are sorted whenever one of them has room", "[sort]") {
  Random random(11);
  std::string text;
  std::vector<std::string> lines;
  for (int i = 0; i < 24; ++i)
    text += lines.emplace_back(std::to_string(random()) + std::string(1 << 20, 'x') + "\n");
  std::ranges::sort(lines);
  std::string sorted;
  for (const std::string& line : lines) sorted += line;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Result result =
        run({"sort", "--lines", "-q", "-m", "128M", "-T", "8", "-o", "-", "-"}, {.in = text});
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK((result.out == sorted));
  }
}

TEST_CASE("a sort reads pipes and files, and writes to standard output", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", "m\nc");
  const Result result = run({"sort", "--lines", "-o", "-", file, "-"}, {.in = "z\nb\n"});
  CHECK(result.err.empty());
  CHECK(result.code == 0);
  CHECK(result.out == "b\nc\nm\nz\n");
}

TEST_CASE("a sort whose threads share a file sorts it stably, and names the lines", "[sort]") {
  const TemporaryFolder folder;
  std::string text = "key\tline\n";
  for (int line = 2; text.size() < (std::size_t{33} << 20); ++line)
    text += std::to_string(line % 1000) + '\t' + std::to_string(line) + "\n";
  const auto lines = std::ranges::count(text, '\n');
  text += "bad\tlast";
  const std::string file = write_text(folder, "file", text);
  const auto sorted = [&](const std::string& threads, const std::string& bad) {
    return run({"sort", "-q", "--lines", "--delimiter", "\\t", "--header", "--by", "key:u64",
                "--bad", bad, "-T", threads, "-m", "1G", "--stats", folder / "stats", "-o", "-",
                file});
  };
  const Result by_few = sorted("2", "last"), by_many = sorted("16", "last");
  CHECK((by_few.code == 0 && by_many.code == 0));
  CHECK(by_few.out.size() == text.size() + 1);
  CHECK(by_few.out == by_many.out);
  CHECK(nlohmann::json::parse(text_of(folder / "stats"))["passes"] == 1);  // nothing is spilled
  const Result refused = sorted("16", "error");
  CHECK(refused.code == 2);
  CHECK(refused.err.find("line " + std::to_string(lines + 1) + " ") != std::string::npos);
}

TEST_CASE("a sort whose threads read files of several sizes spills nothing", "[sort]") {
  const TemporaryFolder folder;
  Strings arguments{"sort", "-q", "--csv", "-T", "16", "-m", "1G", "--stats", folder / "stats"};
  arguments = arguments + Strings{"-o", folder / "out"};
  for (const int lines : {90'000, 1, 40'000, 0, 70'000}) {
    std::string text;
    for (int line = 0; line < lines; ++line) text += std::to_string(line * 7919 % 100'003) + ",a\n";
    arguments.push_back(write_text(folder, std::to_string(arguments.size()), text));
  }
  CHECK(run(arguments).code == 0);
  const auto stats = nlohmann::json::parse(text_of(folder / "stats"));
  CHECK((stats["passes"] == 1 && stats["records"] == 200'001));
}

TEST_CASE("a sort replaces one of its files, and compresses", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", "c\nb\na\n");
  CHECK(run({"sort", "--lines", "-o", file, file}).code == 2);
  CHECK(text_of(folder / "file") == "c\nb\na\n");
  CHECK(run({"sort", "--lines", "-f", "-o", file, file}).code == 0);
  CHECK(text_of(folder / "file") == "a\nb\nc\n");
  const std::string zipped = folder / "file.gz";
  write_text(folder, "file", "c\nb\na\n");
  CHECK(run({"sort", "--lines", "-o", zipped, file}).code == 0);
  CHECK(run({"sort", "--lines", "--parts", "1", "-o", folder / "parts", zipped}).code == 0);
  CHECK(text_of(folder / "parts/part-00000") == "a\nb\nc\n");
}

TEST_CASE("a sort reads mapped and direct files beside a compressed one", "[sort]") {
  const auto sorted = [](const TemporaryFolder& folder, const Strings& options,
                         const std::string& output, const Strings& files) {
    Strings arguments{"sort", "-q", "-o", folder / output};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), files.begin(), files.end());
    const Result result = run(arguments);
    INFO(result.err);
    CHECK(result.code == 0);
    return folder / output;
  };
  for (const std::string io : {"mapped", "direct"}) {
    const TemporaryFolder folder;
    const Strings records{"-r", "key:bytes2", "--io", io}, lines{"--lines", "--io", io};
    const std::string b = write_text(folder, "b", "dabb"), c = write_text(folder, "c", "d\nb\n");
    const std::string b_zipped = sorted(folder, records, "b.gz", {b});
    const std::string c_zipped = sorted(folder, lines, "c.gz", {c});
    const std::string a = write_text(folder, "a", "aacc");
    CHECK(text_of(sorted(folder, records, "records", {a, b_zipped})) == "aabbccda");
    CHECK(text_of(sorted(folder, lines, "lines", {c_zipped, c})) == "b\nb\nd\nd\n");
  }
}

TEST_CASE("a sort reads lines through the page cache even if it writes direct", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", std::string(400'000, 'x') + "\nb\na\n");
  const auto reading = [&](const Strings& format) {
    const Strings arguments{"--io", "direct", "-q",           "-f", "--stats",
                            "-",    "-o",     folder / "out", file};
    return nlohmann::json::parse(output_of(run(Strings{"sort"} + format + arguments)))["io"];
  };
  CHECK(reading({"--lines"}) == "buffered");
  CHECK(text_of(folder / "out").starts_with("a\nb\nx"));
}

TEST_CASE("a sort keeps the header once", "[sort]") {
  const TemporaryFolder folder;
  const std::string a = write_text(folder, "a", "city,size\nUlm,9\nBonn,3\n");
  const std::string b = write_text(folder, "b", "city,size\nAhlen,5\n");
  const Result result = run({"sort", "--csv", "--header", "-b", "size:u64", "-o", "-", a, b});
  CHECK(result.out == "city,size\nBonn,3\nAhlen,5\nUlm,9\n");
}

TEST_CASE("a merge of files that are out of order says that a sort exists", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", "b\na\n");
  const Result result = run({"merge", "--lines", "-o", folder / "out", file});
  CHECK(result.code == 1);
  CHECK(holds(result.err, "line 2 (byte 2) is out of order"));
  CHECK(holds(result.err, "corank sort"));
}

TEST_CASE("a sort names keys that do not parse, and skips them on request", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", "7\nx\n3\n");
  const Strings sort{"sort", "--lines", "-b", "line:u64", "-o", "-", file};
  const Result refused = run(sort);
  CHECK(refused.code == 2);
  CHECK(holds(refused.err, file + ": line 2 (byte 2)"));
  Strings skipping = sort;
  skipping.insert(skipping.end(), {"--bad", "skip"});
  CHECK(run(skipping).out == "3\n7\n");
}

TEST_CASE("a sort names equal keys that it must not find", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", "b\na\nc\na\n");
  const Result result = run({"sort", "--lines", "--on-equal", "error", "-o", folder / "out", file});
  CHECK(result.code == 2);
  CHECK(holds(result.err, file + ": line 2 (byte 2) and " + file + ": line 4 (byte 6)"));
}

TEST_CASE("a sort says beforehand how it would go", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", std::string(24 << 20, '\0'));
  const Result result = run({"sort", "-r", "key:u64,value:u64", "-m", "16M", "-T", "2", "--explain",
                             "-o", folder / "out", file});
  CHECK(result.code == 0);
  CHECK(holds(result.out, "sort 1 file, 24.0 MiB, fixed-size records of 16 bytes"));
  CHECK(holds(result.out, "loads 1 to 5 of 7  sort, merge: 3.5 MiB each -> temporary runs in "));
  CHECK(holds(result.out, "loads 6 to 7 of 7  sort, merge with 5 temporary runs: 24.0 MiB -> "));
  CHECK(holds(result.out, "3 loads of 3.5 MiB at a time in memory"));
  CHECK(folder.names() == Strings{"file"});
}

TEST_CASE("a sort shrinks its blocks if that leaves room for all records", "[sort]") {
  const TemporaryFolder folder;
  const auto explained = [&](std::size_t mebibytes) {
    const std::string file = write_text(folder, "file", std::string(mebibytes << 20, '\0'));
    return run({"sort", "-r", "key:u64,value:u64", "-m", "16M", "-T", "2", "--explain", "-o",
                folder / "out", file})
        .out;
  };
  CHECK(holds(explained(8), "blocks of 148.0 KiB, 1 load of 8.0 MiB"));
  CHECK(holds(explained(12), "blocks of 60.1 KiB, 1 load of 12.0 MiB"));
  CHECK(holds(explained(14), "blocks of 148.0 KiB, 3 loads of 3.5 MiB"));
}

TEST_CASE("a sort of lines sorts large blocks where memory and lines suffice", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", "b\na\n");
  const auto explained = [&](std::uint64_t mebibytes, const char* memory, const char* threads) {
    std::filesystem::resize_file(file, mebibytes << 20);  // no blocks on the disk
    return run({"sort", "--lines", "-m", memory, "-T", threads, "--explain", "-o", folder / "out",
                file})
        .out;
  };
  CHECK(holds(explained(1024, "4G", "2"), "blocks of 4.0 MiB"));
  CHECK(holds(explained(1024, "4G", "16"), "blocks of 4.0 MiB"));
  CHECK(holds(explained(4096, "8G", "2"), "blocks of 8.0 MiB"));
  CHECK(holds(explained(30, "4G", "2"), "blocks of 2.0 MiB"));   // more than 4 for each thread
  CHECK(holds(explained(30, "4G", "16"), "blocks of 1.0 MiB"));  // few blocks for many threads
  CHECK(holds(explained(1024, "64M", "2"), "blocks of 588.0 KiB"));
}

TEST_CASE("records that are in order are read in place beside compressed temporary files",
          "[sort]") {
  const TemporaryFolder folder;
  const std::string ordered(1 << 16, '\n');
  const std::string file = write_text(folder, "file", ordered);
  const Result sorted = run({"sort", "-r", "key:u64,value:bytes1016", "--compress-spill", "zstd",
                             "-m", "64M", "-o", "-", file});
  INFO(sorted.err);
  CHECK(sorted.code == 0);
  CHECK((sorted.out == ordered));
}

TEST_CASE("more files in order than one merge takes are sorted beside compressed temporary files",
          "[sort]") {
  const TemporaryFolder folder;
  const std::string runs = folder / "runs";
  const Strings format{"-r", "key:u64,value:u64"};
  REQUIRE(run(Strings{"gen", "--records", "100000", "--runs", "5", "-o", runs} + format).code == 0);
  Strings files;
  for (int i = 0; i < 5; ++i) files.push_back(runs + "/run-0000" + std::to_string(i) + ".bin");
  const Result merged = run(Strings{"merge"} + format + files);
  const Result sorted =
      run(Strings{"sort", "-m", "20M", "--compress-spill", "lz4", "-o", "-"} + format + files);
  INFO(sorted.err);
  CHECK(sorted.code == 0);
  CHECK(merged.code == 0);
  CHECK((sorted.out == merged.out));
}

namespace {

std::string text_of_all(const Strings& records) {
  std::string text;
  for (const std::string& record : records) text += record;
  return text;
}

}  // namespace

TEST_CASE("large records have room in merges of compressed temporary files", "[sort]") {
  const TemporaryFolder folder;
  for (const std::size_t record_bytes : {1 << 16, 1 << 20}) {
    Random random(3);
    std::vector<std::string> records(20, std::string(record_bytes, 'x'));
    for (std::string& record : records) record.front() = static_cast<char>('a' + random() % 26);
    const std::string file = write_text(folder, "file", text_of_all(records));
    std::ranges::stable_sort(records, {}, [](const std::string& record) { return record[0]; });
    const auto sort = [&](const std::string& output, const Strings& options) {
      return run(Strings{"sort", "-r", "key:bytes1,value:bytes" + std::to_string(record_bytes - 1),
                         "--compress-spill", "zstd", "-o", output, file} +
                 options);
    };
    for (const char* memory : {"12M", "64M", "100M", "150M", "200M"})
      for (const char* parts : {"1", "4"}) {
        const Result explained =
            sort(folder / "parts", {"-m", memory, "--parts", parts, "--explain"});
        CAPTURE(memory, parts, explained.err);
        CHECK((explained.code == 0 || holds(explained.err, "--memory")));
      }
    const Result sorted = sort("-", {"-m", "512M"});
    CHECK(sorted.code == 0);
    CHECK((sorted.out == text_of_all(records)));
  }
}

TEST_CASE("the memory that a sort asks for is enough", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", std::string(1 << 16, '\n'));
  for (const Strings& format : {Strings{"--lines"}, {"--csv"}, {"-r", "key:u64,value:bytes1016"}})
    for (const Strings& options : {Strings{},
                                   {"--parts", "3"},
                                   {"--compress", "gzip"},
                                   {"--compress-spill", "zstd"},
                                   {"--compress", "gzip", "--compress-spill", "lz4"}})
      for (const std::string threads : {"1", "5"}) {
        const auto sort = [&](const std::string& memory, const std::string& output) {
          return run(Strings{"sort", "-T", threads, "-m", memory, "-o", folder / output, file} +
                     format + options);
        };
        const std::string told = "--memory ";
        const Result refused = sort("100K", "refused");
        INFO(refused.err);
        CHECK(refused.code == 2);
        const std::size_t at = refused.err.find(told) + told.size();
        const Result sorted =
            sort(refused.err.substr(at, refused.err.find(' ', at) - at), "sorted");
        INFO(sorted.err);
        CHECK(sorted.code == 0);
        std::filesystem::remove_all(folder / "sorted");
      }
}

TEST_CASE("a sort refuses a folder for temporary files that is none", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", "b\na\n");
  const Result result =
      run({"sort", "--lines", "--temp", folder / "none", "-o", folder / "out", file});
  CHECK(result.code == 2);
  CHECK(holds(result.err, "none: is not a folder; name one for temporary files by --temp"));
}

TEST_CASE("a sort to standard output names a TMPDIR that is no folder", "[sort]") {
  Environment setting;
  setting.before_exec = [] { ::setenv("TMPDIR", "/dev/null", 1); };
  for (int line = 0; line < 100'000; ++line)
    setting.in += std::to_string(line) + " of some lines\n";
  const Result result = run({"sort", "--lines", "-m", "2M", "-o", "-"}, setting);
  CHECK(result.code == 2);
  CHECK(holds(result.err, "/dev/null: is not a folder"));
}

TEST_CASE("a sort writes no file whose name promises what it is not", "[sort]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder, "file", "b\na\n");
  const std::string output = folder / "out.tgz";
  const Result refused = run({"sort", "--lines", "-o", output, file});
  CHECK(refused.code == 2);
  CHECK(holds(refused.err, "out.tgz: files of the format that its suffix tells are not written"));
  CHECK(run({"sort", "--lines", "--compress", "none", "-o", output, file}).code == 0);
  CHECK(text_of(output) == "a\nb\n");
}

TEST_CASE("a sort checks the order of files instead, as check does", "[sort]") {
  const TemporaryFolder folder;
  const std::string sorted = write_text(folder, "sorted", "a\nb\n");
  const std::string unsorted = write_text(folder, "unsorted", "b\na\n");
  CHECK(run({"sort", "--lines", "--check", sorted}).code == 0);
  CHECK(run({"sort", "--lines", "--check", "-T", "2", "--no-progress", sorted}).code == 0);
  CHECK(run({"sort", "--lines", "-b", "line:desc", "--check", sorted}).code == 1);
  const Result found = run({"sort", "--lines", "--check", unsorted, sorted});
  CHECK(found.code == 1);
  CHECK(found.err == run({"check", "--lines", unsorted, sorted}).err);
  for (const Strings& writing : {Strings{"-o", folder / "out"}, {"--limit", "1"}}) {
    Strings arguments{"sort", "--lines", "--check", sorted};
    arguments.insert(arguments.end(), writing.begin(), writing.end());
    const Result refused = run(arguments);
    CHECK(refused.code == 2);
    CHECK(holds(refused.err, "--check writes nothing; drop"));
  }
}

TEST_CASE("many sorted files, or large records, are sorted with little memory", "[sort]") {
  const TemporaryFolder folder;
  const auto sorted = [&](const std::string& record, const std::string& memory,
                          const Strings& files) {
    Strings arguments{"sort", "-q",   "-f", "--io", "mapped", "-T",          "2",
                      "-r",   record, "-m", memory, "-o",     folder / "out"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    const Result result = run(arguments);
    INFO(record << " with " << memory << ": " << result.err);
    CHECK(result.code == 0);
    return read_file(folder / "out");
  };
  Random random(1);
  const Schema schema = Schema::parse("k:u64,v:u64");
  Strings files;
  Bytes all;
  for (int i = 0; i < 300; ++i) {
    const Bytes run =
        stably_sorted(schema, {{.field = 0}}, random_records(schema, 600, Values::any, random));
    files.push_back(folder / ("run" + std::to_string(i)));
    write_file(files.back(), run);
    all.insert(all.end(), run.begin(), run.end());
  }
  const Bytes expected = stably_sorted(schema, {{.field = 0}}, all);
  for (const std::string memory : {"1M", "2M", "4M", "64M"})
    CHECK((sorted("k:u64,v:u64", memory, files) == expected));

  // Chunks of few records are often in order.
  const Schema large = Schema::parse("k:bytes5000");
  const Bytes records = random_records(large, 400, Values::any, random);
  write_file(folder / "large", records);
  for (const std::string memory : {"1200K", "4M"})
    CHECK((sorted("k:bytes5000", memory, {folder / "large"}) ==
           stably_sorted(large, {{.field = 0}}, records)));
}

TEST_CASE("a sort with a limit merges temporary files that the limit cut", "[sort]") {
  const TemporaryFolder folder;
  Random random(2);
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += std::to_string(below(random, 15)) + "\n";
  const std::string file = write_text(folder, "file", text);
  for (const std::string policy : {"first", "last"}) {
    const Result result = run({"sort", "--lines", "--on-equal", policy, "--limit", "3", "-m",
                               "1800K", "-T", "2", "-o", "-", file});
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(result.out == "0\n1\n10\n");
  }
}

TEST_CASE("sums of groups past a limit do not overflow, however little memory there is", "[sort]") {
  const TemporaryFolder folder;
  std::string records;
  for (int i = 0; i < 1'000'000; ++i) records += {static_cast<char>(1 + i % 100), 9, '.'};
  records += {0, 5, '.'};
  write_file(folder / "input", bytes_of_text(records));
  for (const char* memory : {"1800000", "64M"}) {
    const Result result = run({"sort", "-r", "k:u8,n:u8,c:bytes1", "--on-equal", "reduce:sum(n)",
                               "--limit", "1", "-T", "2", "-m", memory, folder / "input"});
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(result.out == std::string{0, 5, '.'});
  }
}

TEST_CASE("a sort finds equal keys in records of a byte, and in files that it reads directly",
          "[sort]") {
  const TemporaryFolder folder;
  const auto err_of = [&](const std::string& io, const std::string& text) {
    const std::string file = write_text(folder, "file", text);
    const Result result =
        run({"sort", "-r", "k:u8", "--on-equal", "error", "--io", io, "-o", folder / "out", file});
    CHECK(result.code == 2);
    return result.err;
  };
  for (const std::string io : {"buffered", "direct", "mapped"}) {
    CHECK(holds(err_of(io, "cac"), "record 0 (byte 0) and " + (folder / "file").string() +
                                       ": record 2 (byte 2) have the same key"));
    CHECK(holds(err_of(io, "\tabb"), "record 2 (byte 2) and " + (folder / "file").string() +
                                         ": record 3 (byte 3) have the same key"));
  }
}
