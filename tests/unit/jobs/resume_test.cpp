// Tests of interrupted and resumed merges, and of the attributes that a replaced output keeps.
#include "jobs/resume.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "corank/check.hpp"
#include "corank/merge.hpp"
#include "io/atomic_file.hpp"
#include "io/sidecar.hpp"
#include "support/catch.hpp"
#include "support/small_files.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Holds runs, the expected output of their merge, and the warnings of the last merge.
class Merging {
 public:
  explicit Merging(int runs = 5, std::uint64_t records = 20'000) {
    Random random(31);
    options.record = Schema::parse("a:u16,p:u32");
    options.backend = BackendChoice::cpu;
    options.memory_bytes = 1 << 20;
    options.resume = true;
    options.checksum = true;
    options.checkpoint_interval = std::chrono::milliseconds(0);
    options.notice = [this](const Message& warning) { notices.push_back(warning.text()); };
    Bytes all;
    for (int i = 0; i < runs; ++i) {
      const Bytes run =
          stably_sorted(options.record, keys(),
                        random_records(options.record, records / static_cast<std::uint64_t>(runs),
                                       Values::any, random));
      paths.push_back(folder / ("run" + std::to_string(i)));
      write_file(paths.back(), run);
      all.insert(all.end(), run.begin(), run.end());
    }
    copied = all;
    merged = stably_sorted(options.record, keys(), all);
  }

  std::vector<KeyField> keys() const { return parse_keys("a", options.record); }
  Stats merge() {
    notices.clear();
    return corank::merge(paths, output, options);
  }
  // Merges until every output file has `bytes` bytes; the merge then fails.
  void stop_at(std::uint64_t bytes) {
    const SmallFiles small(bytes);
    CHECK_THROWS_AS(merge(), Error);
  }
  bool told(const std::string& part) const {
    return std::ranges::any_of(
        notices, [&](const std::string& text) { return text.find(part) != std::string::npos; });
  }
  void check_whole(const Bytes& expected) const {
    CHECK((read_file(output) == expected));
    std::vector<std::string> names{"output"};
    for (std::size_t i = 0; i < paths.size(); ++i) names.push_back("run" + std::to_string(i));
    std::ranges::sort(names);
    CHECK(folder.names() == names);
  }

  TemporaryFolder folder;
  Options options;
  std::vector<std::filesystem::path> paths;
  std::filesystem::path output = folder / "output";
  std::filesystem::path temporary = folder / ".output.corank";
  std::filesystem::path sidecar = folder / ".output.corank-resume";
  Bytes merged, copied;
  std::vector<std::string> notices;
};

Sidecar read_sidecar(const std::filesystem::path& path) {
  const Bytes text = read_file(path);
  return parse_sidecar({reinterpret_cast<const char*>(text.data()), text.size()}).value();
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  write_file(path, Bytes(begin, begin + text.size()));
}

// Holds a merge with operators, and its expected output without an interruption.
class ShapedMerging {
 public:
  ShapedMerging() {
    options.backend = BackendChoice::cpu;
    options.checksum = true;
    options.notice = [this](const Message& warning) {
      const std::string text = warning.text();
      if (text.find("memory budget") == std::string::npos) notices.push_back(text);
    };
  }

  // Makes records with two keys of `values` distinct values each; 0 makes all keys distinct.
  void make_records(unsigned runs, unsigned records, std::uint64_t values, Random& random) {
    options.record = Schema::parse("p:u32,a:u16,b:u16be");
    options.keys = parse_keys("a,b:desc", options.record);
    for (unsigned run = 0; run < runs; ++run) {
      Bytes all;
      const auto put = [&](std::uint64_t value, unsigned bytes) {
        for (unsigned byte = 0; byte < bytes; ++byte)
          all.push_back(static_cast<std::byte>(value >> 8 * byte));
      };
      for (unsigned i = run; i < records; i += runs) {
        put(random(), 4);
        put(values == 0 ? i : below(random, values), 2);
        put(values == 0 ? i : below(random, values), 2);
      }
      add_run(stably_sorted(options.record, options.keys, all));
    }
  }

  // Makes lines whose second column is the key; some runs end without a newline.
  void make_lines(unsigned runs, unsigned lines, std::uint64_t values, bool with_header,
                  Random& random) {
    options.text.emplace();
    options.text->keys = parse_text_keys("2:u64");
    options.text->delimiter = ',';
    options.text->header = with_header;
    for (unsigned run = 0; run < runs; ++run) {
      std::vector<std::pair<std::uint64_t, std::string>> all;
      for (unsigned i = run; i < lines; i += runs) {
        const std::uint64_t key = values == 0 ? i : below(random, values);
        all.emplace_back(key, std::to_string(random() >> below(random, 60)) + "," +
                                  std::string(below(random, 2), '0') + std::to_string(key));
      }
      std::ranges::stable_sort(all, {}, &std::pair<std::uint64_t, std::string>::first);
      std::string text = with_header ? header.substr(0, header.size() - 1) : "";
      for (const auto& line : all) text += (text.empty() ? "" : "\n") + line.second;
      if (run % 2 == 0) text += "\n";
      const auto bytes = std::as_bytes(std::span(text));
      add_run({bytes.begin(), bytes.end()});
    }
  }

  Stats merge() {
    notices.clear();
    return corank::merge(paths, output, options);
  }

  // Merges without an interruption, then interrupted and resumed. Returns false if the output is
  // too small to interrupt.
  bool learn() {
    whole = merge();
    for (const auto& file : files()) {
      expected.push_back(read_file(file));
      size += expected.back().size();
    }
    std::filesystem::remove_all(output);
    options.resume = true;
    if (std::ranges::none_of(expected, [](const Bytes& file) { return file.size() > 512; }))
      return false;
    {
      const Io io = std::exchange(options.io, Io::buffered);
      const SmallFiles small(512);
      CHECK_THROWS_AS(merge(), Error);
      options.io = io;
    }
    std::uint64_t left = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      sidecars.push_back(read_sidecar(beside(i, ".corank-resume")));
      left += whole_records(i, std::filesystem::file_size(beside(i, ".corank")));
    }
    check_rest(left);
    return true;
  }

  // Leaves the first `bytes` bytes of an output file as an interrupted merge does. Returns the
  // number of bytes in whole records.
  std::uint64_t leave(std::size_t file, std::uint64_t bytes, bool in_place = false) {
    if (options.parts != 0) std::filesystem::create_directory(output);
    write_file(
        beside(file, ".corank"),
        Bytes(expected[file].begin(), expected[file].begin() + static_cast<std::ptrdiff_t>(bytes)));
    struct stat status {};
    REQUIRE(::stat(beside(file, ".corank").c_str(), &status) == 0);
    Sidecar sidecar = sidecars[file];
    sidecar.inode = status.st_ino;
    sidecar.durable_bytes = in_place ? bytes : 0;
    write_text(beside(file, ".corank-resume"), sidecar_text(sidecar));
    if (in_place) std::filesystem::rename(beside(file, ".corank"), files()[file]);
    return whole_records(file, bytes);
  }
  std::uint64_t leave_some(Random& random) {
    std::uint64_t left = 0;
    for (std::size_t file = 0; file < expected.size(); ++file) {
      const std::uint64_t all = expected[file].size();
      const std::uint64_t choice = below(random, 8);
      left += leave(file,
                    choice == 0   ? all
                    : choice == 1 ? 0
                                  : below(random, all + 1),
                    choice == 0 && file == 0 && below(random, 2));
    }
    return left;
  }

  void check_rest(std::uint64_t left) {
    const Stats rest = merge();
    CHECK(notices.empty());
    CHECK(rest.resumed_bytes == left);
    CHECK(rest.records_written == whole.records_written);
    CHECK(rest.checksum == whole.checksum);
    if (!options.text) CHECK(rest.records == whole.records);
    const bool wrote_header = options.text && options.text->header && left == 0;
    if (rest.passes <= 1)
      CHECK(rest.bytes_written + rest.resumed_bytes == size - (wrote_header ? header.size() : 0));
    check_files();
  }

  // Checks the output files and removes them.
  void check_files() {
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK((read_file(files()[i]) == expected[i]));
    CHECK(folder.names().size() == paths.size() + 1);
    if (options.parts != 0)
      CHECK(std::ranges::distance(std::filesystem::directory_iterator(output)) == options.parts);
    std::filesystem::remove_all(output);
  }

  std::vector<std::filesystem::path> files() const {
    if (options.parts == 0) return {output};
    std::vector<std::filesystem::path> parts;
    for (unsigned part = 0; part < options.parts; ++part)
      parts.push_back(output / ("part-0000" + std::to_string(part)));
    return parts;
  }
  std::filesystem::path beside(std::size_t file, const char* suffix) const {
    const std::filesystem::path path = files()[file];
    return path.parent_path() / ("." + path.filename().string() + suffix);
  }

  static inline const std::string header = "number,key\n";

  TemporaryFolder folder;
  Options options;
  std::vector<std::filesystem::path> paths;
  std::filesystem::path output = folder / "output";
  std::vector<Bytes> expected;
  std::vector<Sidecar> sidecars;
  std::uint64_t size = 0;
  Stats whole;
  std::vector<std::string> notices;

 private:
  void add_run(const Bytes& run) {
    paths.push_back(folder / ("run" + std::to_string(paths.size())));
    write_file(paths.back(), run);
  }

  // Returns how much of the first `bytes` bytes a merge resumes from: whole records, but not a
  // header alone.
  std::uint64_t whole_records(std::size_t file, std::uint64_t bytes) const {
    if (!options.text) {
      const Schema out = selected(options.record, options.query.select);
      return bytes / out.record_bytes * out.record_bytes;
    }
    const auto end_of_line = [&](std::uint64_t at) {
      return std::find(expected[file].rend() - static_cast<std::ptrdiff_t>(at),
                       expected[file].rend(), std::byte{'\n'});
    };
    const auto kept = static_cast<std::uint64_t>(expected[file].rend() - end_of_line(bytes));
    return options.text->header && kept == header.size() ? 0 : kept;
  }
};

constexpr const char* policies[] = {"keep", "first", "last", "error", "reduce:sum(p)"};

void take_policy(ShapedMerging& test, unsigned policy) {
  Query& query = test.options.query;
  if (policy < std::size(policies))
    parse_on_equal(policies[policy], query);
  else
    query.on_equal = set_operations[policy - std::size(policies)];
  query.overflow = Overflow::wrap;
}
constexpr unsigned policies_of_records = std::size(policies) + std::size(set_operations);

}  // namespace

TEST_CASE("a stopped merge goes on where it stopped") {
  const std::uint64_t stops[] = {1, 5, 6, 600, 4'096, 60'000, 66'666, 119'999};
  for (const Io io : {Io::buffered, Io::direct, Io::mapped})
    for (const std::uint64_t bytes : stops) {
      Merging test;
      test.options.io = io;
      test.stop_at(std::max<std::uint64_t>(bytes, 4'096));
      // Direct I/O writes whole pages.
      if (io != Io::direct || bytes <= 4'096) std::filesystem::resize_file(test.temporary, bytes);
      const std::uint64_t left = std::filesystem::file_size(test.temporary) / 6 * 6;
      CHECK(left + 4'096 > bytes);
      CHECK(test.told("is kept"));
      const Stats stats = test.merge();
      CHECK(stats.resumed_bytes == left);
      CHECK(stats.bytes_written == 120'000 - left);
      CHECK(stats.records == 20'000);
      CHECK(test.notices.empty());
      test.check_whole(test.merged);
      CHECK(stats.checksum == check(test.output, test.options).checksum);
    }
}

TEST_CASE("a merge goes on again and again") {
  Merging test;
  for (std::uint64_t bytes = 7'000; bytes < 120'000; bytes += 7'001) test.stop_at(bytes);
  CHECK(test.merge().resumed_bytes > 110'000);
  test.check_whole(test.merged);
}

TEST_CASE("copies go on as merges do") {
  Merging test;
  test.options.copy_only = true;
  test.stop_at(70'001);
  CHECK(test.merge().resumed_bytes == 69'996);
  test.check_whole(test.copied);
}

TEST_CASE("passes before the last leave out what is written already") {
  Merging test(60, 60'000);
  test.options.memory_bytes = 500'000;
  Options afresh = test.options;
  afresh.resume = false;
  const Stats whole = merge(test.paths, test.output, afresh);
  REQUIRE(whole.passes > 1);
  std::filesystem::remove(test.output);
  test.stop_at(300'000);
  const Stats rest = test.merge();
  CHECK(rest.resumed_bytes == 300'000);
  CHECK(rest.passes == whole.passes);
  // Intermediate passes merge again the records that validate the partial output.
  CHECK(rest.bytes_written - 60'000 <= (whole.bytes_written - 360'000) * 2 / 5);
  test.check_whole(test.merged);
}

TEST_CASE("each part goes on by itself") {
  Merging test;
  test.options.parts = 3;
  test.options.memory_bytes = 3 << 20;
  test.output = test.folder / "parts";
  test.stop_at(30'001);
  // The progress of each part depends on the threads; the last part was even published.
  const std::size_t begins[] = {0, 39'996, 79'998};
  const std::size_t ends[] = {30'001, 49'999, 120'000};
  for (int i = 0; i < 3; ++i)
    write_file(test.output / (".part-0000" + std::to_string(i) + ".corank"),
               Bytes(test.merged.begin() + static_cast<std::ptrdiff_t>(begins[i]),
                     test.merged.begin() + static_cast<std::ptrdiff_t>(ends[i])));
  const auto part = [&](int i) { return test.output / ("part-0000" + std::to_string(i)); };
  std::filesystem::rename(test.output / ".part-00002.corank", part(2));
  const Stats stats = test.merge();
  CHECK(test.notices.empty());
  CHECK(stats.resumed_bytes == 30'000 + 10'002 + 40'002);
  Bytes all;
  for (int i = 0; i < 3; ++i) {
    const Bytes bytes = read_file(part(i));
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  CHECK((all == test.merged));
  CHECK(std::ranges::distance(std::filesystem::directory_iterator(test.output)) == 3);
}

TEST_CASE("parts are done when all are in place, whatever is left of what was said of them") {
  Merging test;
  test.options.parts = 3;
  test.options.memory_bytes = 3 << 20;
  test.output = test.folder / "parts";
  test.stop_at(30'001);
  const std::size_t begins[] = {0, 39'996, 79'998, 120'000};
  for (int i = 0; i < 3; ++i) {
    const std::string name = "part-0000" + std::to_string(i);
    const auto temporary = test.output / ("." + name + ".corank");
    write_file(temporary, Bytes(test.merged.begin() + static_cast<std::ptrdiff_t>(begins[i]),
                                test.merged.begin() + static_cast<std::ptrdiff_t>(begins[i + 1])));
    std::filesystem::rename(temporary, test.output / name);
    if (i > 0) std::filesystem::remove(test.output / ("." + name + ".corank-resume"));
  }
  CHECK(test.merge().resumed_bytes == 120'000);
  CHECK(std::ranges::distance(std::filesystem::directory_iterator(test.output)) == 3);
  CHECK_THROWS_AS(test.merge(), Error);
}

TEST_CASE("an output that was renamed before the merge was killed is done") {
  Merging test;
  test.stop_at(119'999);
  write_file(test.temporary, test.merged);
  std::filesystem::rename(test.temporary, test.output);
  const Stats stats = test.merge();
  CHECK(stats.bytes_written == 0);
  CHECK(stats.resumed_bytes == 120'000);
  test.check_whole(test.merged);
  // A finished output is an ordinary file: without permission it is not overwritten.
  CHECK_THROWS_AS(test.merge(), Error);
  test.check_whole(test.merged);
}

TEST_CASE("after another start of the system only what was durable is trusted") {
  Merging test;
  test.stop_at(90'000);
  Sidecar found = read_sidecar(test.sidecar);
  CHECK(found.boot == this_boot());
  CHECK(found.durable_bytes > 0);
  CHECK(found.durable_bytes < 90'000);
  found.boot += 1;
  found.durable_bytes = 66'000;
  write_text(test.sidecar, sidecar_text(found));
  Bytes lost = read_file(test.temporary);
  std::fill(lost.begin() + 66'000, lost.end(), std::byte{0});
  write_file(test.temporary, lost);
  CHECK(test.merge().resumed_bytes == 66'000);
  test.check_whole(test.merged);
}

TEST_CASE("what does not agree with the runs is not gone on with") {
  const auto check_afresh = [](const char* reason, const std::function<void(Merging&)>& change) {
    Merging test;
    test.stop_at(90'000);
    change(test);
    INFO(reason);
    CHECK(test.merge().resumed_bytes == 0);
    CHECK(test.told(reason));
    test.check_whole(test.options.keys.empty() ? test.merged : test.copied);
  };
  check_afresh("does not match the inputs", [](Merging& test) {
    Bytes bytes = read_file(test.temporary);
    bytes[90'000 - 5'000] ^= std::byte{1};
    write_file(test.temporary, bytes);
  });
  check_afresh("was written to since", [](Merging& test) {
    std::filesystem::last_write_time(test.paths[1], std::filesystem::file_time_type());
  });
  check_afresh("other runs or other options", [](Merging& test) {
    std::swap(test.paths[1], test.paths[2]);
    Bytes all;
    for (const auto& path : test.paths) {
      const Bytes run = read_file(path);
      all.insert(all.end(), run.begin(), run.end());
    }
    test.merged = stably_sorted(test.options.record, test.keys(), all);
  });
  check_afresh("its state is damaged",
               [](Merging& test) { std::filesystem::resize_file(test.sidecar, 100); });
  check_afresh("it has no sidecar", [](Merging& test) { std::filesystem::remove(test.sidecar); });
  check_afresh("longer than the whole output",
               [](Merging& test) { std::filesystem::resize_file(test.temporary, 120'001); });
  check_afresh("its file was replaced", [](Merging& test) {
    std::filesystem::copy_file(test.temporary, test.folder / "copy");
    std::filesystem::rename(test.folder / "copy", test.temporary);
  });
}

TEST_CASE("a merge of records after a header goes on by the same options only", "[resume]") {
  const Bytes header(11, std::byte{'h'});
  const auto prepare = [&](Merging& test) {
    for (const auto& path : test.paths) {
      Bytes bytes = header;
      const Bytes records = read_file(path);
      bytes.insert(bytes.end(), records.begin(), records.end());
      write_file(path, bytes);
    }
    test.options.record.header_bytes = header.size();
    test.stop_at(90'000);
  };
  const auto with_header = [&](const Bytes& records) {
    Bytes bytes = header;
    bytes.insert(bytes.end(), records.begin(), records.end());
    return bytes;
  };
  Merging test;
  prepare(test);
  const Stats stats = test.merge();
  CHECK(stats.resumed_bytes > 80'000);
  CHECK(stats.records == 20'000);
  test.check_whole(with_header(test.merged));
  CHECK(stats.checksum == check(test.output, test.options).checksum);

  Merging dropping;
  prepare(dropping);
  dropping.options.drop_header = true;
  CHECK(dropping.merge().resumed_bytes == 0);
  CHECK(dropping.told("other options"));
  dropping.check_whole(dropping.merged);

  Merging damaged;
  prepare(damaged);
  Bytes left = read_file(damaged.temporary);
  left[3] ^= std::byte{1};
  write_file(damaged.temporary, left);
  CHECK(damaged.merge().resumed_bytes == 0);
  damaged.check_whole(with_header(damaged.merged));
}

TEST_CASE("a merge of lines after a header goes on by the same options only", "[resume][text]") {
  const auto prepare = [](Merging& test, std::string& expected) {
    for (std::size_t i = 0; i < test.paths.size(); ++i) {
      std::string text = "#a\n";
      for (int line = 10'000; line < 14'000; ++line)
        text += std::to_string(line) + std::to_string(i) + "\n";
      write_text(test.paths[i], text);
    }
    expected = "#a\n";
    for (int line = 10'000; line < 14'000; ++line)
      for (std::size_t i = 0; i < test.paths.size(); ++i)
        expected += std::to_string(line) + std::to_string(i) + "\n";
    test.options.text.emplace().comment = "#";
    test.options.memory_bytes = 4 << 20;
    test.stop_at(90'000);
  };
  const auto check_afresh = [&](auto change, std::size_t dropped_bytes) {
    Merging test;
    std::string expected;
    prepare(test, expected);
    change(test.options);
    CHECK(test.merge().resumed_bytes == 0);
    CHECK(test.told("other options"));
    test.check_whole(bytes_of_text(expected.substr(dropped_bytes)));
  };
  Merging test;
  std::string expected;
  prepare(test, expected);
  CHECK(test.merge().resumed_bytes > 80'000);
  test.check_whole(bytes_of_text(expected));
  check_afresh([](Options& options) { options.text->comment = "#a"; }, 0);
  check_afresh(
      [](Options& options) {
        options.text->comment.clear();
        options.text->header_lines = 1;
      },
      0);
  check_afresh([](Options& options) { options.drop_header = true; }, 3);
}

TEST_CASE("shaped merges go on where they stopped", "[resume][shape]") {
  Random random(33);
  std::uint64_t several_passes = 0, sets_in_parts = 0, stops = 0;
  for (unsigned policy = 0; policy < policies_of_records; ++policy)
    for (unsigned round = 0; round < 12; round += exhaustive_step) {
      ShapedMerging test;
      const bool many = below(random, 3) == 0;
      const std::uint64_t choices[] = {1, 3, 60, 300, 60'000};
      const std::uint64_t values = policy == 3 ? 0 : choices[below(random, 5)];
      test.make_records(many ? 60 : 2 + round % 4, many ? 60'000 : 12'000, values, random);
      take_policy(test, policy);
      Query& query = test.options.query;
      if (below(random, 2)) query.where = parse_where("p > 900000000");
      if ((policy == 1 || policy == 2 || policy == 4) && below(random, 2))
        query.tombstone = parse_tombstone("b=1");
      const char* const selections[] = {"b,p,a", "p,a", "p"};
      if (below(random, 2)) query.select = parse_select(selections[below(random, 3)]);
      if (below(random, 4) == 0) query.from = parse_bound(Setting::from, "1", test.options);
      if (below(random, 3) == 0) query.limit = 400 + below(random, 3'000);
      if (!query.limit && below(random, 2)) test.options.parts = 1 + round % 3;
      test.options.memory_bytes = 500'000 * std::max(test.options.parts, 1u);
      test.options.threads = 1 + round % 3;
      const Io ways[] = {Io::buffered, Io::mapped, Io::direct};
      test.options.io = ways[below(random, 3)];
      INFO("policy " << policy << ", round " << round << ", values " << values << ", many " << many
                     << ", parts " << test.options.parts << ", where " << !query.where.steps.empty()
                     << ", tombstone " << query.tombstone.has_value() << ", selected "
                     << query.select.size() << ", limit " << query.limit.value_or(0));
      if (!test.learn()) continue;
      several_passes += test.whole.passes > 1;
      sets_in_parts += test.whole.passes > 1 && test.options.parts > 1 && policy > 4;
      for (int stop = 0; stop < 4; ++stop, ++stops) test.check_rest(test.leave_some(random));
    }
  CHECK(several_passes * exhaustive_step > 15);
  CHECK((sets_in_parts > 1 || exhaustive_step > 1));
  CHECK(stops * exhaustive_step > 200);
}

TEST_CASE("shaped merges go on from any byte", "[resume][shape]") {
  Random random(34);
  for (unsigned policy = 0; policy < policies_of_records; ++policy)
    for (const std::uint64_t values : {0, 2, 9}) {
      if (policy == 3 && values != 0) continue;
      ShapedMerging test;
      test.make_records(3, 300, values, random);
      test.options.memory_bytes = 1 << 20;
      take_policy(test, policy);
      if (values == 9) test.options.query.where = parse_where("p >= 7");
      if (policy == 0) test.options.query.limit = 250;
      if (!test.learn()) continue;
      INFO("policy " << policy << ", values " << values);
      for (std::uint64_t bytes = 0; bytes <= test.size; bytes += 37 * exhaustive_step)
        test.check_rest(test.leave(0, bytes));
      test.check_rest(test.leave(0, test.size));
    }
}

TEST_CASE("lines that are dropped are gone on with where they stopped", "[resume][text][shape]") {
  Random random(35);
  std::uint64_t stops = 0;
  for (const OnEqual on_equal : {OnEqual::keep, OnEqual::first, OnEqual::last, OnEqual::error,
                                 OnEqual::unite, OnEqual::intersect, OnEqual::subtract})
    for (unsigned round = exhaustive_step > 1 ? static_cast<unsigned>(on_equal) % 8 : 0; round < 8;
         round += exhaustive_step) {
      ShapedMerging test;
      const std::uint64_t choices[] = {1, 40, 3'000, 1'000'000};
      const std::uint64_t values =
          on_equal == OnEqual::error ? 0 : choices[on_equal == OnEqual::keep ? round % 4 : 2];
      const bool many = round % 4 == 0;
      test.make_lines(many ? 40 : 3, 12'000, values, below(random, 2), random);
      Query& query = test.options.query;
      query.on_equal = on_equal;
      if (on_equal == OnEqual::keep || below(random, 2)) query.limit = 100 + below(random, 8'000);
      if (below(random, 3) == 0) query.from = {"20"};
      if (below(random, 3) == 0) query.to = {"2500"};
      if ((on_equal == OnEqual::first || on_equal == OnEqual::last) && below(random, 2))
        query.tombstone = parse_tombstone("2:u64=300");
      if (below(random, 3) == 0) query.where = parse_where("2:u64 != 7 or line < '5'");
      if (below(random, 5) == 0) query.select = parse_select("2,1");
      test.options.memory_bytes = many ? 1 << 20 : 4 << 20;
      test.options.io = round % 2 == 0 ? Io::buffered : Io::mapped;
      INFO("policy " << static_cast<int>(on_equal) << ", round " << round << ", values " << values
                     << ", limit " << query.limit.value_or(0));
      if (!test.learn()) continue;
      for (int stop = 0; stop < 6; ++stop, ++stops) test.check_rest(test.leave_some(random));
    }
  CHECK(stops * exhaustive_step > 120);
}

TEST_CASE("shaped merges that are done but for their end are not merged again", "[resume][shape]") {
  Random random(36);
  ShapedMerging test;
  test.make_records(4, 12'000, 100, random);
  take_policy(test, 2);
  test.options.parts = 3;
  test.options.memory_bytes = 3 << 20;
  REQUIRE(test.learn());
  for (std::size_t in_place = 1; in_place <= 3; ++in_place) {
    for (std::size_t i = 0; i < 3; ++i) test.leave(i, test.expected[i].size(), i < in_place);
    test.check_rest(test.size);
  }
  // The merge removes the sidecars of the last parts first.
  for (std::size_t i = 0; i < 3; ++i) test.leave(i, test.expected[i].size(), true);
  std::filesystem::remove(test.beside(2, ".corank-resume"));
  test.check_rest(test.size);
}

TEST_CASE("what shaping left is gone on with by the same options only", "[resume][shape]") {
  const auto change = [](const char* what, auto use) {
    INFO(what);
    Random random(37);
    ShapedMerging test;
    test.make_records(4, 12'000, 100, random);
    parse_on_equal("reduce:sum(p)", test.options.query);
    test.options.query.overflow = Overflow::wrap;
    test.options.query.where = parse_where("p > 7");
    test.options.query.limit = 5'000;
    REQUIRE(test.learn());
    use(test.options.query);
    ShapedMerging other;
    other.paths = test.paths;
    other.options = test.options;
    other.options.resume = false;
    other.merge();
    test.leave(0, test.size / 2);
    CHECK(test.merge().resumed_bytes == 0);
    REQUIRE(test.notices.size() == 1);
    CHECK(test.notices.front().find("other options") != std::string::npos);
    CHECK((read_file(test.output) == read_file(other.output)));
  };
  change("overflow", [](Query& by) { by.overflow = Overflow::saturate; });
  change("policy", [](Query& by) { by.on_equal = OnEqual::first; });
  change("limit", [](Query& by) { by.limit = 4'999; });
  change("no limit", [](Query& by) { by.limit.reset(); });
  change("condition", [](Query& by) { by.where = parse_where("p > 8"); });
  change("comparison", [](Query& by) { by.where = parse_where("p >= 7"); });
  change("reduction",
         [](Query& by) { by.reductions.front().operation = Reduction::Operation::max; });
  change("having", [](Query& by) { by.having = parse_where("p > 9", Setting::having); });
  change("tombstone", [](Query& by) { by.tombstone = parse_tombstone("b=7"); });
  change("selection", [](Query& by) { by.select = parse_select("b,a,p"); });
  change("range", [](Query& by) { by.from = {"50"}; });
}

TEST_CASE("the description of an output has all options of text", "[resume][text]") {
  Options options;
  options.text.emplace();
  options.text->kind = TextKind::csv;
  options.text->keys = parse_text_keys("1");
  const auto description = [](const Options& of) {
    return output_description(of, {}, MergeFormat(of, {.header = {}, .columns_line = "a,b"}, false),
                              {});
  };
  const std::string plain = description(options);
  Options other = options;
  other.text->ragged = RaggedRecords::error;
  CHECK(description(other) != plain);
  other = options;
  other.query.having = parse_where("2 == 'x'", Setting::having);
  const std::string having = description(other);
  CHECK(having != plain);
  std::swap(other.query.having, other.query.where);
  CHECK(description(other) != having);
}

TEST_CASE("what shaping left is not gone on with where it is wrong", "[resume][shape]") {
  Random random(38);
  for (const bool lines : {false, true}) {
    ShapedMerging test;
    if (lines)
      test.make_lines(4, 12'000, 0, false, random);
    else
      test.make_records(4, 12'000, 0, random);
    test.options.query.on_equal = OnEqual::last;
    test.options.overwrite = true;
    REQUIRE(test.learn());
    // Validation reads the last hundredth of the partial output.
    for (const unsigned before : {400u, lines ? 3u : 8u}) {
      const std::uint64_t at = test.leave(0, test.size / 2) - before;
      Bytes wrong = read_file(test.beside(0, ".corank"));
      wrong[at] ^= std::byte{1};
      write_file(test.beside(0, ".corank"), wrong);
      CHECK(test.merge().resumed_bytes == 0);
      REQUIRE(test.notices.size() == 1);
      CHECK(test.notices.front().find("does not match the inputs") != std::string::npos);
      test.check_files();
    }
  }
}

TEST_CASE("going on reads next to nothing of what went out", "[resume][shape]") {
  Random random(39);
  ShapedMerging test;
  test.make_records(4, 60'000, 0, random);
  test.options.query.on_equal = OnEqual::last;
  test.options.io = Io::buffered;
  test.options.memory_bytes = 1 << 20;
  REQUIRE(test.learn());
  test.leave(0, test.size / 2);
  const Stats rest = test.merge();
  CHECK(rest.resumed_bytes == test.size / 2);
  CHECK(rest.bytes_read < test.whole.bytes_read * 53 / 100);
}

TEST_CASE("what was left is replaced by a merge that does not go on") {
  Merging test;
  test.stop_at(90'000);
  test.options.resume = false;
  CHECK(test.merge().resumed_bytes == 0);
  test.check_whole(test.merged);
}

TEST_CASE("an output that may not be replaced costs nothing of what was left") {
  Merging test;
  test.stop_at(90'000);
  write_file(test.output, Bytes(3));
  CHECK_THROWS_AS(test.merge(), Error);
  CHECK(read_file(test.output) == Bytes(3));
  test.options.overwrite = true;
  CHECK(test.merge().resumed_bytes == 90'000);
  test.check_whole(test.merged);
}

TEST_CASE("a run that is out of order is named by its record when a merge goes on") {
  Merging test;
  test.options.overwrite = true;
  test.stop_at(60'000);
  Bytes run = read_file(test.paths[2]);
  const auto time = std::filesystem::last_write_time(test.paths[2]);
  std::fill(run.begin() + 6 * 3'500, run.begin() + 6 * 3'500 + 2, std::byte{0});
  write_file(test.paths[2], run);
  std::filesystem::last_write_time(test.paths[2], time);
  try {
    test.merge();
    FAIL("was merged");
  } catch (const OutOfOrder& error) {
    CHECK(error.record() == 3'500);
    CHECK(error.file() == test.paths[2]);
  }
  CHECK(!std::filesystem::exists(test.temporary));
  CHECK(!std::filesystem::exists(test.sidecar));
}

TEST_CASE("of large records, too, the last one that was written is merged again") {
  const auto resumed = [](std::uint64_t partial_bytes) {
    const Resumption found = resume_at_rank(partial_bytes, 100'000);
    return std::array<std::uint64_t, 3>{found.kept_bytes, found.merged_bytes, found.rank};
  };
  CHECK(resumed(799'999) == std::array<std::uint64_t, 3>{700'000, 600'000, 6});
  CHECK(resumed(100'000) == std::array<std::uint64_t, 3>{100'000, 0, 0});
  CHECK(resumed(99'999) == std::array<std::uint64_t, 3>{0, 0, 0});
}

TEST_CASE("runs are not merged again into one of them that has them already") {
  Merging test;
  test.options.overwrite = true;
  const std::filesystem::path run = test.paths[0];
  const Bytes before = read_file(run);
  struct stat status {};
  REQUIRE(::stat(run.c_str(), &status) == 0);
  const std::filesystem::path sidecar =
      run.parent_path() / ("." + run.filename().string() + ".corank-resume");
  write_text(sidecar, sidecar_text({1, status.st_ino, this_boot(), before.size()}));
  for (const bool resumes : {true, false}) {
    test.options.resume = resumes;
    CHECK_THROWS_WITH(merge(test.paths, run, test.options), ContainsSubstring(sidecar.string()));
    CHECK(read_file(run) == before);
    REQUIRE(std::filesystem::exists(sidecar));
  }
  std::filesystem::remove(sidecar);
  merge(test.paths, run, test.options);
  CHECK(read_file(run) == test.merged);
}

TEST_CASE("a link in place of the state beside an output is refused and stays") {
  Merging test;
  std::filesystem::create_symlink("none", test.sidecar);
  for (const bool resumes : {true, false}) {
    test.options.resume = resumes;
    CHECK_THROWS_WITH(test.merge(), ContainsSubstring("is in the way"));
    CHECK(std::filesystem::is_symlink(test.sidecar));
    CHECK(!std::filesystem::exists(test.temporary));
  }
}

TEST_CASE("an output leaves the state of the next one that is written") {
  const Merging test;
  const AtomicFile::Content content{.digest = 1, .bytes = 0};
  const auto is_no_input = [](FileIdentity) { return false; };
  std::optional<AtomicFile> first(std::in_place, test.output, content, AtomicFile::Settings{},
                                  is_no_input);
  first->keep(0);
  first->commit();
  AtomicFile second(test.output, content, {.overwrite = true}, is_no_input);
  second.keep(0);
  first->forget_sidecar();
  first.reset();
  CHECK(std::filesystem::exists(test.sidecar));
}

TEST_CASE("the state beside an unfinished output is read only as it was written") {
  Random random(32);
  for (int round = 0; round < 100; ++round) {
    const Sidecar sidecar{random(), random() >> below(random, 64), random(), below(random, 3)};
    const std::string text = sidecar_text(sidecar);
    CHECK(parse_sidecar(text) == sidecar);
    CHECK(text.size() < 512);  // a disk writes this atomically
    std::string damaged = text;
    damaged[below(random, text.size())] ^= static_cast<char>(1 << below(random, 7));
    CHECK(!parse_sidecar(damaged));
    CHECK(!parse_sidecar(text.substr(0, below(random, text.size()))));
    CHECK(!parse_sidecar(text + " "));
  }
}

TEST_CASE("an output takes the mode of the file that it replaces and keeps links to it") {
  Merging test;
  test.options.resume = false;
  const mode_t mask = ::umask(027);
  const auto mode = [&](const std::filesystem::path& path) {
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_mode & 07777;
  };
  test.merge();
  CHECK(mode(test.output) == 0640);
  test.options.overwrite = true;
  REQUIRE(::chmod(test.output.c_str(), 0604) == 0);
  if (::geteuid() == 0) REQUIRE(::chown(test.output.c_str(), 1234, 4321) == 0);
  const auto link = test.folder / "link";
  std::filesystem::create_symlink("output", link);
  merge(test.paths, link, test.options);
  ::umask(mask);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(mode(test.output) == 0604);
  struct stat status {};
  REQUIRE(::stat(test.output.c_str(), &status) == 0);
  CHECK(status.st_uid == (::geteuid() == 0 ? 1234 : ::geteuid()));
  std::filesystem::remove(link);
  test.check_whole(test.merged);

  std::filesystem::create_symlink("nothing", link);
  CHECK_THROWS_AS(merge(test.paths, link, test.options), Error);
  CHECK(std::filesystem::is_symlink(link));
}
