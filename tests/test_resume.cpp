// Merges that stop and go on, and what a replaced output keeps of the old one.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "catch.hpp"
#include "corank/check.hpp"
#include "corank/merge.hpp"
#include "sidecar.hpp"
#include "small_files.hpp"
#include "support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Runs, their merge, and what is said while it is made.
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
    options.notice = [this](const std::string& text) { notices.push_back(text); };
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
  // Stops where every file of the output has grown to `bytes`.
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

}  // namespace

TEST_CASE("a stopped merge goes on where it stopped") {
  const std::uint64_t stops[] = {1, 5, 6, 600, 4'096, 60'000, 66'666, 119'999};
  for (const Io io : {Io::buffered, Io::direct, Io::mapped})
    for (const std::uint64_t bytes : stops) {
      Merging test;
      test.options.io = io;
      test.stop_at(std::max<std::uint64_t>(bytes, 4'096));
      // Direct writing ends at a page.
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
      CHECK(stats.checksum == check(test.output, test.options.record, test.keys(), true).checksum);
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
  CHECK(rest.bytes_written - 60'000 <= (whole.bytes_written - 360'000) / 4);
  test.check_whole(test.merged);
}

TEST_CASE("each part goes on by itself") {
  Merging test;
  test.options.parts = 3;
  test.options.memory_bytes = 3 << 20;
  test.output = test.folder / "parts";
  test.stop_at(30'001);
  // How far each part came is up to its threads; the last one was even renamed.
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
  // Now it is an output as any other.
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
  check_afresh("does not hold what the runs do", [](Merging& test) {
    Bytes bytes = read_file(test.temporary);
    bytes[90'000 - 5'000] ^= std::byte{1};
    write_file(test.temporary, bytes);
  });
  check_afresh("other runs or other options", [](Merging& test) {
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
  check_afresh("nothing tells what it is",
               [](Merging& test) { std::filesystem::remove(test.sidecar); });
  check_afresh("longer than the whole output",
               [](Merging& test) { std::filesystem::resize_file(test.temporary, 120'001); });
  check_afresh("its file was replaced", [](Merging& test) {
    std::filesystem::copy_file(test.temporary, test.folder / "copy");
    std::filesystem::rename(test.folder / "copy", test.temporary);
  });
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

TEST_CASE("the state beside an unfinished output is read only as it was written") {
  Random random(32);
  for (int round = 0; round < 100; ++round) {
    const Sidecar sidecar{random(), random() >> below(random, 64), random(), below(random, 3)};
    const std::string text = sidecar_text(sidecar);
    CHECK(parse_sidecar(text) == sidecar);
    CHECK(text.size() < 512);  // what a disk writes at once
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
