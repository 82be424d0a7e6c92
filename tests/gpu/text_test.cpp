// Tests of merges of variable-length records: the CUDA backend against the CPU backend.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "corank/merge.hpp"
#include "corank/text_key.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

std::string random_text(Random& random, std::uint64_t most, const std::string& alphabet) {
  std::string text(below(random, most + 1), ' ');
  for (char& c : text) c = alphabet[below(random, alphabet.size())];
  return text;
}

TextFormat format_of(TextKind kind, const std::string& keys, char terminator = '\n') {
  TextFormat format;
  format.kind = kind;
  format.terminator = terminator;
  if (kind == TextKind::lines && !keys.empty()) format.delimiter = ',';
  if (!keys.empty()) format.keys = parse_text_keys(keys);
  format.bad_numbers = BadNumbers::last;
  return format;
}

// Returns a random record whose second column is usually a number.
std::string random_record(Random& random, const TextFormat& format, std::uint64_t longest) {
  const std::uint64_t most = below(random, 20) == 0 ? longest : 12;
  if (format.kind == TextKind::pairs) {
    const std::string key = random_text(random, most, "abAB"), value = random_text(random, 9, "xy");
    const std::uint32_t lengths[] = {static_cast<std::uint32_t>(key.size()),
                                     static_cast<std::uint32_t>(value.size())};
    return std::string(reinterpret_cast<const char*>(lengths), sizeof lengths) + key + value;
  }
  const std::string number =
      below(random, 9) == 0
          ? random_text(random, 3, "ab")
          : std::to_string(static_cast<std::int64_t>(below(random, 2'000)) - 1'000);
  std::string first = random_text(random, most, "abAB ");
  if (format.kind == TextKind::csv && below(random, 3) == 0) first = "\"" + first + ",\n\"\"\"";
  return first + ',' + number + ',' + random_text(random, 6, "cd") + format.terminator;
}

struct TextFiles {
  TextFiles(const TextFormat& format, std::uint64_t runs, std::uint64_t records,
            std::uint64_t longest, Random& random) {
    options.text = format;
    options.overwrite = true;
    options.threads = 2;
    const TextEncoding encoding(format);
    const auto less = [&](const std::string& a, const std::string& b) {
      return text_less(encoding.layout(), reinterpret_cast<const std::byte*>(a.data()), a.size(),
                       reinterpret_cast<const std::byte*>(b.data()), b.size());
    };
    for (std::uint64_t run = 0; run < runs; ++run) {
      std::vector<std::string> all;
      for (std::uint64_t i = below(random, records + 1); i > 0; --i)
        all.push_back(random_record(random, format, longest));
      std::ranges::stable_sort(all, less);
      Bytes bytes;
      for (const std::string& record : all) {
        const auto* const begin = reinterpret_cast<const std::byte*>(record.data());
        bytes.insert(bytes.end(), begin, begin + record.size());
      }
      paths.push_back(folder / ("run" + std::to_string(run)));
      write_file(paths.back(), bytes);
    }
  }
  // Merges on both backends; returns a description of the difference, or an empty string.
  std::string difference() {
    options.backend = BackendChoice::cpu;
    merge(paths, folder / "expected", options);
    options.backend = BackendChoice::cuda;
    options.strict_backend = true;
    const Stats stats = merge(paths, folder / "output", options);
    std::string found;
    if (stats.backend != "cuda") found += " not on the device";
    if (!stats.verified) found += " not verified";
    if (read_file(folder / "output") != read_file(folder / "expected")) found += " other bytes";
    return found;
  }

  TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  Options options;
};

const std::pair<TextKind, const char*> formats[] = {
    {TextKind::lines, ""},         {TextKind::lines, "line:desc:nocase"},
    {TextKind::lines, "2:i64,1"},  {TextKind::lines, "2:u64:desc,1:desc,3"},
    {TextKind::lines, "1:nocase"}, {TextKind::csv, "1,2:i64"},
    {TextKind::csv, "2:i64:desc"}, {TextKind::csv, "1:desc:nocase,3"},
    {TextKind::pairs, ""},         {TextKind::pairs, "key:desc"}};

}  // namespace

TEST_CASE("the CUDA backend merges text of every format", "[gpu][sanitize][text]") {
  Random random(61);
  for (const auto& [kind, keys] : formats)
    for (const std::uint64_t runs : {4u, 50u}) {
      CAPTURE(static_cast<int>(kind), keys, runs);
      TextFiles files(format_of(kind, keys), runs, 3'000 / runs, 60, random);
      if (runs == 4) files.options.io = Io::mapped;  // the host copies the mapped runs
      CHECK(files.difference() == "");
    }
}

TEST_CASE("the CUDA backend merges long lines and many", "[gpu][text]") {
  Random random(62);
  for (const auto& [kind, keys] : formats) {
    CAPTURE(static_cast<int>(kind), keys);
    // Lengths that exceed the length field of a prefix reference, and records larger than a chunk.
    TextFiles files(format_of(kind, keys), 5, 400, 300'000, random);
    CHECK(files.difference() == "");
    files.options.memory_bytes = 48 << 20;
    CHECK(files.difference() == "");
    TextFiles many(format_of(kind, keys), 900, 2'000, 40, random);
    CHECK(many.difference() == "");
    many.options.memory_bytes = 64 << 20;
    CHECK(many.difference() == "");
  }
}

TEST_CASE("the CUDA backend and the CPU agree on text with equal keys", "[gpu][sanitize][text]") {
  Random random(64);
  for (const auto& [kind, keys] : formats)
    for (const OnEqual on_equal : {OnEqual::keep, OnEqual::first, OnEqual::last}) {
      CAPTURE(static_cast<int>(kind), keys, static_cast<int>(on_equal));
      TextFiles files(format_of(kind, keys), 6, 1'000, 60, random);
      files.options.query.on_equal = on_equal;
      if (on_equal != OnEqual::keep) CHECK(files.difference() == "");
      files.options.query.limit = below(random, 3'000);
      files.options.memory_bytes = 48 << 20;
      CHECK(files.difference() == "");
    }
}

TEST_CASE("the CUDA backend and the CPU agree on shaped text and set operations", "[gpu][text]") {
  Random random(65);
  for (const auto& [kind, keys] : formats)
    for (const OnEqual on_equal : {OnEqual::keep, OnEqual::first, OnEqual::last, OnEqual::unite,
                                   OnEqual::intersect, OnEqual::subtract}) {
      CAPTURE(static_cast<int>(kind), keys, static_cast<int>(on_equal));
      TextFiles files(format_of(kind, keys), is_set_operation(on_equal) ? 2 : 6, 3'000, 60, random);
      Query& query = files.options.query;
      query.on_equal = on_equal;
      files.options.memory_bytes = below(random, 2) ? 48 << 20 : 0;
      if (is_set_operation(on_equal)) CHECK(files.difference() == "");
      if (kind == TextKind::pairs) {
        query.where = parse_where(below(random, 2) ? "key > 'a'" : "key > 'a' and value > 'xy'");
        if (on_equal == OnEqual::first || on_equal == OnEqual::last)
          query.tombstone = parse_tombstone("value=");
      } else if (files.options.text->delimiter || kind == TextKind::csv) {
        query.where = parse_where("2:i64 > -500 and 3 != 'c'");
        query.select = parse_select("2,1");
        if (on_equal == OnEqual::first || on_equal == OnEqual::last)
          query.tombstone = parse_tombstone("3='dd'");
      } else {
        query.where = parse_where("line > 'A'");
      }
      CHECK(files.difference() == "");
    }
}

TEST_CASE("the CUDA backend refuses equal lines where they are an error", "[gpu][text]") {
  Random random(66);
  TextFiles files(format_of(TextKind::lines, ""), 3, 2'000, 60, random);
  files.options.query.on_equal = OnEqual::last;
  files.options.backend = BackendChoice::cuda;
  merge(files.paths, files.folder / "unique", files.options);
  files.options.query.on_equal = OnEqual::error;
  const auto error_on = [&](BackendChoice backend) -> std::string {
    files.options.backend = backend;
    try {
      merge(files.paths, files.folder / "output", files.options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string on_cpu = error_on(BackendChoice::cpu);
  CHECK(on_cpu != "");
  CHECK(error_on(BackendChoice::cuda) == on_cpu);
  merge(std::vector{files.folder / "unique"}, files.folder / "output", files.options);
  CHECK(read_file(files.folder / "output") == read_file(files.folder / "unique"));
}

TEST_CASE("the CUDA backend names the line that is out of order", "[gpu][text]") {
  Random random(63);
  TextFiles files(format_of(TextKind::lines, ""), 3, 5'000, 30, random);
  Bytes run = read_file(files.paths[1]);
  // The first line becomes greater than all others.
  std::ranges::fill(std::span(run).first(static_cast<std::size_t>(
                        std::ranges::find(run, std::byte{'\n'}) - run.begin())),
                    std::byte{'z'});
  run.insert(run.begin(), std::byte{'z'});
  write_file(files.paths[1], run);
  files.options.backend = BackendChoice::cuda;
  try {
    merge(files.paths, files.folder / "output", files.options);
    FAIL("nothing was found");
  } catch (const OutOfOrder& found) {
    CHECK(found.file() == files.paths[1]);
    CHECK(found.record() == 1);
  }
}
