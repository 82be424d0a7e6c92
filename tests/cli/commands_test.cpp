// Tests of the program from the user's side: exit codes, messages, and the files on disk
// afterwards.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// Holds runs of `key:u64` whose keys interleave, and an output from an earlier merge.
class Folder {
 public:
  explicit Folder(std::size_t count = 3, std::uint64_t records = 1000) {
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<std::uint64_t> keys(records);
      for (std::uint64_t r = 0; r < records; ++r) keys[r] = r * count + i;
      add(keys);
    }
    write_file(old(), Bytes(5));
  }

  std::string add(const std::vector<std::uint64_t>& keys) {
    const auto* begin = reinterpret_cast<const std::byte*>(keys.data());
    return add_bytes(Bytes(begin, begin + 8 * keys.size()));
  }
  std::string add_bytes(const Bytes& bytes) {
    runs.push_back(folder / ("run" + std::to_string(runs.size())));
    write_file(runs.back(), bytes);
    return runs.back();
  }

  std::filesystem::path old() const { return folder / "output"; }
  bool old_untouched() const { return text_of(old()) == std::string(5, '\0'); }

  Strings merge(const Strings& options = {}) const {
    Strings all{"merge", "-r", "key:u64", "-f", "-o", old(), "--backend", "cpu"};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), runs.begin(), runs.end());
    return all;
  }

  // Checks a clean failure: the exit code, one line of error that contains all of `parts`, and an
  // unchanged folder.
  void check_refusal(const Strings& arguments, int code, const Strings& parts,
                     const Environment& setting = {}) const {
    const auto before = folder.names();
    const Result result = run(arguments, setting);
    INFO(result.err);
    CHECK(result.code == code);
    CHECK(result.err.starts_with("corank: "));
    CHECK(std::ranges::count(result.err, '\n') == 1);
    for (const std::string& part : parts) {
      INFO(part);
      CHECK(holds(result.err, part));
    }
    CHECK(old_untouched());
    CHECK(folder.names() == before);
  }

  TemporaryFolder folder;
  Strings runs;
};

}  // namespace

TEST_CASE("bad input: a run out of order") {
  Folder test;
  const std::string bad = test.add({1, 2, 3, 7, 6, 8, 5});
  test.check_refusal(test.merge(), 1, {bad + ": record 4 (byte 32) is out of order"});
  test.check_refusal({"check", "-r", "key:u64", bad}, 1,
                     {bad + ": record 4 (byte 32) is out of order"});
}

TEST_CASE("errors and warnings are JSON on request") {
  const TemporaryFolder folder;
  const std::string file = folder / "a\nb";
  std::ofstream(file) << "b\na\n";
  const Result disorder = run({"check", "--log-json", "--lines", file});
  CHECK(disorder.code == 1);
  const auto error = nlohmann::json::parse(disorder.err);
  CHECK(error["level"] == "error");
  CHECK(error["code"] == "out_of_order");
  CHECK(error["exit_code"] == 1);
  CHECK(error["file"] == file);
  CHECK(error["record"] == 1);
  CHECK(error["byte"] == 2);
  CHECK(holds(error["message"], "is out of order"));
  CHECK(std::ranges::count(disorder.err, '\n') == 1);

  const Result wrong = run({"--log-json", "merge", "--nonsense"});
  CHECK(wrong.code == 2);
  CHECK(holds(nlohmann::json::parse(wrong.err)["message"], "--nonsense"));
  for (const Strings& options : {Strings{"--nonsense"},
                                 {"-t", "xx"},
                                 {"-m", "x"},
                                 {"--csv"},
                                 {"--partition", "0"},
                                 {"--bad", "oops"},
                                 {"--stats", "-", "-o", "-"},
                                 {"--where", "1 ="},
                                 {"--trace", "-"}}) {
    const auto usage =
        nlohmann::json::parse(run(Strings{"merge", "--log-json", "--lines", file} + options).err);
    INFO(usage);
    CHECK(usage["code"] == "options");
  }
  const std::string missing = folder / "missing\xff";
  const auto unread = nlohmann::json::parse(run({"merge", "--lines", "--log-json", missing}).err);
  CHECK(unread["code"] == "system");
  CHECK(run({"merge", "--lines", "--", "--log-json"}).code == 2);  // a name
}

TEST_CASE("progress is JSON on request") {
  Folder test;
  const Result merged = run(test.merge({"--progress", "--log-json"}));
  REQUIRE(merged.code == 0);
  std::istringstream lines(merged.err);
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) {
    last = nlohmann::json::parse(line);
    CHECK(last["level"] == "progress");
  }
  CHECK(last["bytes_done"] > 0);
  CHECK(last["bytes_done"] == last["bytes_total"]);
}

TEST_CASE("bad input: a file that does not hold whole records") {
  Folder test;
  const std::string bad = test.add_bytes(Bytes(8 * 10 + 3));
  test.check_refusal(test.merge(), 2, {bad, "83 bytes", "8 bytes"});
}

TEST_CASE("standard input is a run") {
  Folder test;
  const std::string last = test.runs.back();
  test.runs.back() = "-";
  Environment setting;
  setting.in = text_of(last);
  REQUIRE(run(test.merge(), setting).code == 0);
  const Result merged = run({"check", "-r", "key:u64", "--checksum", test.old()});
  const Result runs =
      run({"check", "-r", "key:u64", "--checksum", test.runs[0], test.runs[1], last});
  CHECK(merged.out.substr(0, 22) == runs.out.substr(runs.out.find("3000 "), 22));
}

TEST_CASE("a run out of order that comes through a pipe") {
  Folder test;
  Environment setting;
  setting.in = std::string(16, '\0');
  setting.in[0] = 1;
  test.runs.push_back("-");
  test.check_refusal(test.merge(), 1, {"standard input: record 1 (byte 8) is out of order"},
                     setting);
}

TEST_CASE("bad input: a run that is missing, unreadable, a folder, a device") {
  {
    Folder test;
    test.runs.push_back(test.folder / "nowhere");
    test.check_refusal(test.merge(), 2, {test.folder / "nowhere", "No such file"});
  }
  {
    Folder test;
    std::filesystem::create_directory(test.folder / "folder");
    test.runs.push_back(test.folder / "folder");
    test.check_refusal(test.merge(), 2, {test.folder / "folder", "folder"});
  }
  {
    Folder test;
    test.runs.push_back("/dev/zero");
    test.check_refusal(test.merge(), 2, {"/dev/zero", "neither a file nor a pipe"});
  }
  {
    Folder test;
    test.runs.push_back("-");
    test.runs.push_back("-");
    test.check_refusal(test.merge(), 2, {"named more than once"});
  }
  {
    Folder test;
    const std::string pipe = test.folder / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    test.runs.push_back(pipe);
    test.runs.push_back(test.folder / "./pipe");
    test.check_refusal(test.merge(), 2, {test.folder / "./pipe", "named more than once"});
  }
  {
    Folder test;
    ::chmod(test.runs[1].c_str(), 0);
    ::chmod(test.folder.path().c_str(), 0755);
    Environment as_nobody;  // root may read everything
    as_nobody.before_exec = [] {
      if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(126);
    };
    // The check is meaningful only if that user can run the program.
    if (run({"--version"}, as_nobody).code == 0)
      test.check_refusal(test.merge(), 2, {test.runs[1], "Permission denied"}, as_nobody);
    else
      WARN("not checked: an unprivileged user cannot run the program where it stands");
    ::chmod(test.runs[1].c_str(), 0600);
  }
}

TEST_CASE("bad input: a run that shrinks, grows or is written to while it is read") {
  struct Change {
    std::uintmax_t bytes;
    const char* told;
  };
  // The output is a pipe that is not drained until the run has changed.
  for (const Change change : {Change{8'000, "became shorter"},
                              {9'000'000, "changed its size"},
                              {8'000'000, "written to"}})
    for (const char* io : {"buffered", "direct", "mapped"}) {
      Folder test(2, 1'000'000);
      // A timestamp has a resolution of milliseconds, so a recent one might not show the write.
      std::filesystem::last_write_time(test.runs[1], {});
      const std::string pipe = test.folder / "pipe";
      REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
      Strings arguments{"merge", "-r",        "key:u64", "-o",   pipe, "-m",
                        "800K",  "--backend", "cpu",     "--io", io};
      arguments.insert(arguments.end(), test.runs.begin(), test.runs.end());
      Environment setting;
      setting.while_running = [&](pid_t) {
        const int reader = ::open(pipe.c_str(), O_RDONLY);
        char block[4096];
        CHECK(::read(reader, block, sizeof block) > 0);
        std::filesystem::resize_file(test.runs[1], change.bytes);
        std::fstream(test.runs[1]).put('\0');
        while (::read(reader, block, sizeof block) > 0) continue;
        ::close(reader);
      };
      const Result result = run(arguments, setting);
      INFO(result.err);
      CHECK(result.code == 2);
      CHECK(holds(result.err, test.runs[1]));
      // A mapped file that is truncated while it is read may read as zeros; the size check at the
      // end then reports it.
      CHECK((holds(result.err, change.told) || holds(result.err, "changed its size")));
    }
}

TEST_CASE("bad input: a mapped file that shrinks while it is sorted") {
  const Folder test(1, 1'000'000);
  const std::string pipe = test.folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  Environment setting;
  setting.while_running = [&](pid_t) {
    std::ofstream file(pipe);
    // When this many bytes were taken, all inputs are open.
    const std::string bytes(std::size_t{2} << 20, 'a');
    file << bytes << std::flush;
    std::filesystem::resize_file(test.runs[0], 8'000);
  };
  const Result result = run({"sort", "-r", "key:u64", "-m", "4M", "--backend", "cpu", "--io",
                             "mapped", "-o", test.folder / "sorted", pipe, test.runs[0]},
                            setting);
  INFO(result.err);
  CHECK(result.code == 2);
  CHECK((holds(result.err, "shorter") || holds(result.err, "changed its size")));
}

TEST_CASE("statistics name a bound that is not UTF-8") {
  const Folder test(2, 100'000);
  const std::string pipe = test.folder / "out\xff", statistics = test.folder / "stats.json";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  Environment setting;
  setting.while_running = [&](pid_t) {
    std::ifstream file(pipe);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // so that writing is the bound
    while (file.ignore(1 << 20)) continue;
  };
  Strings arguments{"merge", "-r", "key:u64", "--stats", statistics, "-o", pipe};
  arguments.insert(arguments.end(), test.runs.begin(), test.runs.end());
  const Result result = run(arguments, setting);
  INFO(result.err);
  CHECK(result.code == 0);
  std::ifstream file(statistics);
  CHECK(nlohmann::json::parse(file).at("records") == 200'000);
}

TEST_CASE("bad input: a schema or keys that mean nothing") {
  Folder test;
  test.check_refusal({"merge", "-r", "key:u65", "-f", "-o", test.old(), test.runs[0]}, 2,
                     {"key:u65", "character 5", "u8 u16 u32 u64"});
  test.check_refusal(test.merge({"-b", "kye"}), 2, {"kye", "character 1", "key"});
  test.check_refusal(test.merge({"-b", "key:up"}), 2, {"character 5", "asc desc"});
}

TEST_CASE("bad input: shapes that mean nothing or contradict the records") {
  Folder test;
  test.check_refusal(test.merge({"--on-equal", "newest"}), 2, {"--on-equal", "first last error"});
  test.check_refusal(test.merge({"--on-equal", "reduce:sum(key)"}), 2,
                     {"--on-equal", "field key is a key"});
  test.check_refusal(test.merge({"--where", "key >"}), 2, {"--where", "character 6"});
  test.check_refusal(test.merge({"--tombstone", "key=1"}), 2, {"--tombstone", "--on-equal"});
  test.check_refusal(test.merge({"--select", "kye"}), 2, {"--select", "kye"});
  test.check_refusal(test.merge({"--from", "x"}), 2, {"--from", "u64"});
  test.check_refusal(test.merge({"--limit", "-1"}), 2, {"--limit"});
  test.add({7, 7});
  for (const char* io : {"buffered", "direct", "mapped"})
    test.check_refusal(test.merge({"--on-equal", "error", "--io", io}), 2,
                       {test.runs[1], "record 2 (byte 16)", test.runs[3], "key=7"});
}

TEST_CASE("bad input: a sum of a field of text") {
  const Folder test;
  test.check_refusal({"merge", "-r", "key:u32,name:bytes4", "-f", "-o", test.old(), test.runs[0],
                      "--on-equal", "reduce:sum(name)"},
                     2, {"--on-equal", "field name is bytes4", "first and last"});
}

TEST_CASE("bad input: a sum that its field cannot hold") {
  Folder test(0);
  // Two records of a four-byte key and a four-byte number: key 7 and the maximum number.
  for (int i = 0; i < 2; ++i) test.add({7 | 0xffff'ffffull << 32});
  test.check_refusal({"merge", "-r", "key:u32,n:u32", "-f", "-o", test.old(), test.runs[0],
                      test.runs[1], "--on-equal", "reduce:sum(n)"},
                     2, {"key=7", "field n", "8589934590", "--overflow"});
}

TEST_CASE("bad input: options that contradict one another") {
  const Folder test;
  test.check_refusal(test.merge({"--copy-only", "--where", "key > 5"}), 2, {"--copy-only"});
  test.check_refusal(test.merge({"--copy-only", "--on-equal", "first"}), 2, {"--copy-only"});
  test.check_refusal(test.merge({"--on-equal", "error", "--tombstone", "key=1"}), 2,
                     {"--tombstone"});
  for (const Strings& explain : {Strings{}, Strings{"--explain"}})
    test.check_refusal(test.merge(Strings{"--resume", "--compress", "zstd"} + explain), 2,
                       {"--resume"});
  test.check_refusal({"merge", "-r", "key:u64", "--limit", "5", "--parts", "2", "--resume",
                      "--where", "key > 5", "-o", test.folder / "parts", test.runs[0]},
                     2, {"--resume", "--limit", "--parts", "--where"});
  test.check_refusal({"merge", "-r", "key:u64", "-o", "-", "--stats", "-", test.runs[0]}, 2,
                     {"--output", "--stats"});
  test.check_refusal({"merge", "-r", "key:u64", "--parts", "2", "-o", "-", test.runs[0]}, 2,
                     {"--output", "name a folder"});
  for (const auto& [options, cause] : std::vector<std::pair<Strings, std::string>>{
           {{"--kv"}, "pairs"},
           {{"--csv"}, "CSV"},
           {{"--lines", "--parts", "2"}, "--parts of lines"},
           {{"--lines", "--copy-only"}, "--copy-only of lines"},
           {{"--lines", "-t", ",", "--on-equal", "reduce:count()"}, "--on-equal reduce"},
           {{"--lines", "-b", "1:u64", "-t", ",", "--bad", "skip"}, "--bad skip"}})
    test.check_refusal(Strings{"merge", "--resume", "-f", "-o", test.old(), test.runs[0]} + options,
                       2, {"--resume is not possible with " + cause + "; drop --resume"});
}

TEST_CASE("bad input: sizes that are none") {
  const Folder test;
  for (const char* size :
       {"1.5G", "much", "M", "5X", "-1", "0", "99999999999G", "18446744073709551616"})
    test.check_refusal(test.merge({"-m", size}), 2, {"--memory", size, "is not a size"});
}

TEST_CASE("bad input: statistics or a trace in place of what is merged") {
  const Folder test;
  const std::string list = test.folder / "list", other = test.folder / "other";
  write_file(list, bytes_of_text(test.runs[0] + '\0'));
  for (const std::string option : {"--stats", "--trace"}) {
    test.check_refusal(test.merge({option, test.runs[1]}), 2, {option, "is a run"});
    test.check_refusal(test.merge({option, test.old()}), 2, {option, "is the output"});
    test.check_refusal(test.merge({option, list, "--files0-from", list}), 2,
                       {option, "is the list of runs"});
  }
  test.check_refusal(test.merge({"--stats", other, "--trace", other}), 2, {"--trace", "--stats"});
  test.check_refusal(
      {"merge", "-r", "key:u64", "-o", other, "--stats", test.folder / "./other", test.runs[0]}, 2,
      {"--stats", "is the output"});
  test.check_refusal(test.merge({"--trace", "-"}), 2, {"--trace", "not a file"});
  const std::string part = test.folder / "parts/part-00001", link = test.folder / "link";
  for (const std::string folder : {"parts", "parts/"})
    test.check_refusal({"merge", "-r", "key:u64", "--parts", "2", "-o", test.folder / folder,
                        "--trace", part, test.runs[0]},
                       2, {"--trace", "is a part of the output"});
  std::filesystem::create_symlink("other", link);
  test.check_refusal({"merge", "-r", "key:u64", "-o", other, "--stats", link, test.runs[0]}, 2,
                     {"--stats", "is a link to nothing"});
  write_file(other, bytes_of_text("12345678"));
  Environment from_file;
  from_file.before_exec = [&] { ::dup2(::open(other.c_str(), O_RDONLY), 0); };
  CHECK(holds(
      run({"merge", "-r", "key:u64", "-o", test.folder / "out", "--stats", other}, from_file).err,
      "is a run"));
  Environment into_file;
  into_file.before_exec = [&] { ::dup2(::open(other.c_str(), O_WRONLY | O_CREAT, 0600), 1); };
  for (const std::string option : {"--stats", "--trace"})
    CHECK(holds(run({"merge", "-r", "key:u64", option, other, test.runs[0]}, into_file).err,
                "is the output"));
  CHECK(run({"merge", "-r", "key:u64", "--parts", "2", "-o", test.folder / "parts", "--stats",
             test.folder / "parts/part-times.json", test.runs[0]})
            .code == 0);
  CHECK(run(test.merge({"--stats", list, "--trace", other})).code == 0);
  CHECK(run(test.merge({"--stats", "/dev/null", "--trace", "/dev/null"})).code == 0);
}

TEST_CASE("bad input: words that an option does not know") {
  const Folder test;
  test.check_refusal(test.merge({"--io", "fast"}), 2, {"--io", "fast is none of auto, buffered"});
  test.check_refusal(test.merge({"--backend", "1"}), 2, {"--backend", "1 is none of auto, cpu"});
  test.check_refusal(test.merge({"--overflow", "up"}), 2, {"--overflow", "error, saturate, wrap"});
  test.check_refusal(test.merge({"--compressed", "gzip"}), 2, {"--compressed", "auto, none"});
  for (const char* number : {"0x10", "18446744073709551617", "-1", "1.5", ""})
    test.check_refusal(test.merge({"--limit", number}), 2,
                       {"--limit", "not a whole number from 0 on"});
  test.check_refusal(test.merge({"-T", "5000"}), 2, {"--threads", "from 1 to 4096"});
  test.check_refusal(test.merge({"--compress", "gzip:0"}), 2, {"gzip:0", "1 to 9"});
  test.check_refusal({"gen", "--records", "1", "--runs", "1", "-o", test.folder / "gen"}, 2,
                     {"--record", "--lines"});
}

TEST_CASE("shapes from the command line") {
  Folder test;
  test.add({5, 5, 2999});
  const auto keys = [&](const Strings& options) {
    Strings all = options;
    all.insert(all.begin(), {"--stats", "-"});
    const Result result = run(test.merge(all));
    INFO(result.err);
    REQUIRE(result.code == 0);
    const Bytes bytes = read_file(test.old());
    std::vector<std::uint64_t> found(bytes.size() / 8);
    std::memcpy(found.data(), bytes.data(), bytes.size());
    CHECK(nlohmann::json::parse(result.out)["records_written"] == found.size());
    return found;
  };
  using Keys = std::vector<std::uint64_t>;
  CHECK(keys({"--limit", "8"}) == Keys{0, 1, 2, 3, 4, 5, 5, 5});
  CHECK(keys({"--limit", "010", "-m", "08M"}).size() == 10);
  CHECK(keys({"--on-equal", "first", "--limit", "7"}) == Keys{0, 1, 2, 3, 4, 5, 6});
  CHECK(keys({"--from", "5", "--to", "7"}) == Keys{5, 5, 5, 6});
  CHECK(keys({"--where", "key > 2997 or key == 5", "--on-equal", "last"}) == Keys{5, 2998, 2999});
  CHECK(keys({"--on-equal", "first", "--tombstone", "key=5", "--to", "7"}) ==
        Keys{0, 1, 2, 3, 4, 6});
}

TEST_CASE("bad input: a budget that is too small") {
  Folder test(200, 500);
  const Result several = run(test.merge({"-m", "700K", "--stats", "-"}));
  INFO(several.err);
  REQUIRE(several.code == 0);
  CHECK(nlohmann::json::parse(several.out)["passes"] > 1);
  CHECK(run({"check", "-r", "key:u64", test.old()}).code == 0);
  CHECK(std::filesystem::file_size(test.old()) == 200 * 500 * 8);

  Folder small;
  small.check_refusal(small.merge({"-m", "10K"}), 2, {"--memory 10240", "smallest budget"});
  const std::string refusal = run(small.merge({"-m", "10K"})).err;
  const auto digits = refusal.find_first_of("0123456789", refusal.find("works is"));
  const std::string least = refusal.substr(digits, refusal.find(' ', digits) - digits);
  CHECK(run(small.merge({"-m", least})).code == 0);
}

TEST_CASE("bad input: more runs than open files are allowed") {
  Folder test(300, 20);
  Environment few_files;
  few_files.before_exec = [] {
    const struct rlimit limit { 32, 32 };
    ::setrlimit(RLIMIT_NOFILE, &limit);
  };
  const Result result = run(test.merge(), few_files);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(std::filesystem::file_size(test.old()) == 300 * 20 * 8);
  CHECK(run({"check", "-r", "key:u64", test.old()}).code == 0);
}

TEST_CASE("bad input: no room for the output") {
  Folder test(3, 100'000);
  Environment small_files;
  small_files.before_exec = [] {
    const struct rlimit limit { 1'000'000, 1'000'000 };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
  };
  test.check_refusal(test.merge(), 2, {test.old(), "cannot write", "File too large"}, small_files);
  test.check_refusal({"merge", "-r", "key:u64", "-o", "/dev/full", test.runs[0]}, 2,
                     {"/dev/full", "No space left", "free some space"});
  test.check_refusal({"merge", "-r", "key:u64", "-o", test.folder / "no/output", test.runs[0]}, 2,
                     {"no/output", "No such file or directory"});
}

TEST_CASE("bad input: no runs, and runs without records") {
  Folder none(0);
  Strings listed = none.merge();
  listed.insert(listed.end(), {"--files0-from", "-"});
  none.check_refusal(listed, 2, {"no runs are named"});
  Folder empty(3, 0);
  const Result result = run(empty.merge());
  CHECK(result.code == 0);
  CHECK(std::filesystem::file_size(empty.old()) == 0);
}

TEST_CASE("bad input: a CUDA backend that cannot be had") {
  Folder test;
  Environment no_device;
  no_device.before_exec = [] { ::setenv("CUDA_VISIBLE_DEVICES", "", 1); };
  Strings arguments = test.merge();
  std::ranges::replace(arguments, "cpu", "cuda");
  test.check_refusal(arguments, 2, {"--backend cuda", "--backend cpu"}, no_device);

  std::ranges::replace(arguments, "cuda", "auto");
  arguments.insert(arguments.end(), {"--stats", "-"});
  const Result result = run(arguments, no_device);
  REQUIRE(result.code == 0);
  const auto stats = nlohmann::json::parse(result.out);
  CHECK(stats["backend"] == "cpu");
  CHECK(stats["verified"] == true);
  arguments.insert(arguments.end(), {"--no-verify", "-f"});
  CHECK(nlohmann::json::parse(run(arguments, no_device).out)["verified"] == false);
  const auto reason = stats["backend_reason"].get<std::string>();
  const bool too_little = holds(reason, "hold too little to start a device");
  CHECK(too_little != holds(run({"info"}, no_device).out, reason));
}

TEST_CASE("an output that exists is replaced only by force, even if it is a run") {
  Folder test;
  Strings arguments = test.merge();
  std::erase(arguments, "-f");
  test.check_refusal(arguments, 2, {test.old(), "exists already", "--force"});

  const auto all =
      run({"check", "-r", "key:u64", "--checksum", test.runs[0], test.runs[1], test.runs[2]});
  Strings onto_run = test.merge();
  std::ranges::replace(onto_run, test.old().string(), test.runs[1]);
  REQUIRE(run(onto_run).code == 0);
  const auto merged = run({"check", "-r", "key:u64", "--checksum", test.runs[1]});
  CHECK(merged.out.substr(merged.out.find("total") - 22) ==
        all.out.substr(all.out.find("total") - 22));
}

TEST_CASE("what a killed merge left is replaced by the next") {
  Folder test;
  const Strings before = test.folder.names();
  write_file(test.folder / ".output.corank", Bytes(1'000'000));
  CHECK(run(test.merge()).code == 0);
  CHECK(test.folder.names() == before);
  CHECK(std::filesystem::file_size(test.old()) == 24'000);
}

TEST_CASE("an interrupted merge ends with 130, and leaves nothing") {
  for (const auto& [number, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    Folder test(4, 4'000'000);
    Environment setting;
    setting.before_exec = give_way;
    setting.while_running = [&, signal_number = number](pid_t child) {
      wait_until([&] {
        return std::filesystem::exists(test.folder / ".output.corank") || has_ended(child);
      });
      ::kill(child, signal_number);
    };
    const Strings before = test.folder.names();
    const Result result = run(test.merge({"-m", "700K"}), setting);
    INFO(result.err);
    CHECK(result.code == code);
    CHECK(test.old_untouched());
    CHECK(test.folder.names() == before);
  }
}

TEST_CASE("names of runs come from a file or standard input") {
  Folder test;
  std::string names;
  for (const std::string& path : test.runs) names += path + '\0';
  const Strings start{"merge", "-r", "key:u64", "-f", "-o", test.old(), "--files0-from"};
  Strings twice = start;
  twice.insert(twice.end(), {"-", "-"});
  test.check_refusal(twice, 2, {"--files0-from", "standard input"});
  Strings from_input = start;
  from_input.push_back("-");
  Environment setting;
  setting.in = names;
  CHECK(run(from_input, setting).code == 0);
  CHECK(std::filesystem::file_size(test.old()) == 24'000);
  write_file(test.folder / "names",
             Bytes(reinterpret_cast<const std::byte*>(names.data()),
                   reinterpret_cast<const std::byte*>(names.data()) + names.size()));
  Strings from_file = start;
  from_file.push_back(test.folder / "names");
  CHECK(run(from_file).code == 0);
  from_file.back() = test.folder / "nothing";
  CHECK(run(from_file).code == 2);
}

TEST_CASE("standard output holds the records and nothing else") {
  Folder test;
  Strings arguments{"merge", "-r", "key:u64", "-o", "-", "--progress"};
  arguments.insert(arguments.end(), test.runs.begin(), test.runs.end());
  const Result to_output = run(arguments);
  REQUIRE(to_output.code == 0);
  REQUIRE(run(test.merge()).code == 0);
  CHECK(to_output.out == text_of(test.old()));
  CHECK(holds(to_output.err, "100.0%"));
  CHECK(run(test.merge()).err.empty());
}

TEST_CASE("parts are files that hold the output one after another") {
  Folder test;
  const std::string parts = test.folder / "parts";
  const auto into_parts = [&](const Strings& options) {
    Strings all{"merge", "-r", "key:u64", "-o", parts, "--backend", "cpu"};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), test.runs.begin(), test.runs.end());
    return all;
  };
  REQUIRE(run(test.merge()).code == 0);
  REQUIRE(run(into_parts({"--parts", "4"})).code == 0);
  std::string all;
  for (int i = 0; i < 4; ++i) {
    const std::string part = text_of(parts + "/part-0000" + std::to_string(i));
    CHECK(part.size() == 6000);
    all += part;
  }
  CHECK(all == text_of(test.old()));
  write_file(test.old(), Bytes(5));

  test.check_refusal(into_parts({"--parts", "4"}), 2, {parts + "/part-00000: exists already"});
  test.check_refusal(into_parts({"--parts", "3", "-f"}), 2, {parts + "/part-00003", "remove it"});
  CHECK(run(into_parts({"--parts", "4", "-f"})).code == 0);
  test.check_refusal(test.merge({"--parts", "2"}), 2, {test.old(), "is not a folder"});
  test.check_refusal(test.merge({"--parts", "0"}), 2, {});
}

TEST_CASE("parts by key hold the records of a key together") {
  Folder test(0);
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 0; key < 5; ++key) keys.insert(keys.end(), 200, key);
  test.add(keys);
  test.add(keys);
  const auto parts_of = [&](const Strings& options) {
    const std::string folder = test.folder / ("parts" + std::to_string(options.size()));
    Strings all{"merge", "-r", "key:u64", "-o", folder, "--backend", "cpu", "--parts", "4"};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), test.runs.begin(), test.runs.end());
    CHECK(run(all).code == 0);
    std::vector<std::uint64_t> records;
    for (int i = 0; i < 4; ++i)
      records.push_back(std::filesystem::file_size(folder + "/part-0000" + std::to_string(i)) / 8);
    return records;
  };
  CHECK(parts_of({}) == std::vector<std::uint64_t>{500, 500, 500, 500});
  CHECK(parts_of({"--parts-by-key"}) == std::vector<std::uint64_t>{800, 400, 400, 400});
}

TEST_CASE("a trace has one row for each thread of each stage") {
  Folder test(3, 100'000);
  const std::string trace = test.folder / "trace";
  REQUIRE(run(test.merge({"--trace", trace, "-m", "2M"})).code == 0);
  const auto events = nlohmann::json::parse(text_of(trace));
  std::map<std::string, int> count;
  std::map<int, std::string> rows;
  std::map<int, double> end;
  for (const auto& event : events) {
    if (event["ph"] != "X") continue;
    const std::string stage = event["name"];
    ++count[stage];
    CHECK(rows.try_emplace(event["tid"], stage).first->second == stage);
    CHECK(event["ts"] >= end[event["tid"]]);  // spans of one track do not overlap
    end[event["tid"]] = event["ts"].get<double>() + event["dur"].get<double>() - 0.002;
  }
  for (const char* stage : {"read", "cut", "merge", "write"}) CHECK(count[stage] > 1);
  const Result untold = run(test.merge({"--trace", test.folder / "no/where"}));
  CHECK(untold.code == 2);
  CHECK(holds(untold.err, "no/where: cannot write the trace; the merge itself is done"));
}

TEST_CASE("several passes are told of") {
  Folder test(200, 10);
  const Result told = run(test.merge({"-m", "700K"}));
  CHECK(told.code == 0);
  CHECK(holds(told.err, "passes, which write"));
  CHECK(std::ranges::count(told.err, '\n') == 1);
  CHECK(run(test.merge({"-m", "700K", "-q"})).err.empty());
  const auto parts = (test.folder / "parts").string();
  std::vector<std::string> merge{"merge", "-r",   "key:u64", "--parts", "2",
                                 "-m",    "700K", "-o",      parts};
  merge.insert(merge.end(), test.runs.begin(), test.runs.end());
  CHECK(holds(run(merge).err, "bytes more, to " + parts));
}

TEST_CASE("a file's name with a newline makes no second line") {
  Folder test;
  const std::filesystem::path bad = test.folder / "two\nlines";
  write_file(bad, Bytes(3));
  test.runs.push_back(bad);
  test.check_refusal(test.merge(), 2, {"two\\x0alines"});
}

TEST_CASE("the sum of the runs' checksums is the output's") {
  const TemporaryFolder folder;
  for (const char* distribution : {"uniform", "equal", "disjoint", "zipf", "interleaved"}) {
    const std::string runs = folder / distribution;
    const Strings schema{"-r", "a:u16,b:f32be,c:bytes5", "-b", "b:desc,a"};
    const auto with = [&schema](Strings first, const Strings& last) {
      first.insert(first.end(), schema.begin(), schema.end());
      first.insert(first.end(), last.begin(), last.end());
      return run(first);
    };
    CHECK(with({"gen"},
               {"--records", "10001", "--runs", "4", "--distribution", distribution, "-o", runs})
              .code == 0);
    Strings files;
    for (int i = 0; i < 4; ++i) files.push_back(runs + "/run-0000" + std::to_string(i) + ".bin");
    Strings merge_tail{"-o", runs + ".out", "--stats", "-"};
    merge_tail.insert(merge_tail.end(), files.begin(), files.end());
    CHECK_FALSE(nlohmann::json::parse(with({"merge"}, merge_tail).out).contains("checksum"));
    merge_tail.insert(merge_tail.end(), {"--checksum", "--force"});
    const Result merged = with({"merge"}, merge_tail);
    REQUIRE(merged.code == 0);
    files.insert(files.begin(), "--checksum");
    const std::string of_runs = with({"check"}, files).out;
    const std::string of_output = with({"check"}, {"--checksum", runs + ".out"}).out;
    const std::string checksum = nlohmann::json::parse(merged.out)["checksum"];
    CHECK(holds(of_runs, "10001 " + checksum + " total"));
    CHECK(holds(of_output, "10001 " + checksum + " " + runs + ".out"));
  }
}

TEST_CASE("many files are checked side by side, and told in their order") {
  const TemporaryFolder folder;
  const auto text_of = [](int file, bool is_sorted) {
    std::string text = is_sorted ? "" : "z\n";
    for (int line = 0; line <= file * 1000; ++line) text += "a\n";
    return text;
  };
  Strings files{"check", "--lines", "--checksum", "-T", "8"};
  for (int file = 0; file < 40; ++file) {
    files.push_back(folder / ("file" + std::to_string(file)));
    write_file(files.back(), bytes_of_text(text_of(39 - file, file != 7 && file != 30)));
  }
  files.push_back(folder / "absent");
  const Result found = run(files);
  CHECK(found.code == 2);
  Strings order;
  for (int file = 0; file < 40; ++file)
    if (file != 7 && file != 30) order.push_back(std::to_string((39 - file) * 1000 + 1) + " ");
  std::size_t at = 0;
  for (const std::string& records : order) {
    INFO(records << found.out);
    CHECK(found.out.substr(at, records.size()) == records);
    at = found.out.find('\n', at) + 1;
  }
  CHECK(at == found.out.size());  // no total
  const std::size_t first = found.err.find("file7: line 2"), second = found.err.find("file30: ");
  CHECK(first < second);
  CHECK(second < found.err.find("absent: cannot open"));
}

TEST_CASE("the same seed gives the same bytes") {
  const TemporaryFolder folder;
  const auto checksum = [&](const std::string& name, const std::string& seed) {
    const std::string runs = folder / name;
    REQUIRE(run({"gen", "-r", "k:u64,v:bytes3", "--records", "20000", "--runs", "3", "--seed", seed,
                 "-o", runs})
                .code == 0);
    return text_of(runs + "/run-00001.bin");
  };
  CHECK(checksum("a", "7") == checksum("b", "7"));
  CHECK(checksum("c", "7") != checksum("d", "8"));
  CHECK(run({"gen", "-r", "k:u64", "--records", "5", "--runs", "1", "-o", folder / "a"}).code == 2);
  const Result vast = run({"gen", "-r", "k:u64", "--records", "18446744073709551615", "--runs", "1",
                           "--distribution", "interleaved", "-o", folder / "vast"});
  CHECK(vast.code == 2);
  CHECK(holds(vast.err, "bytes are free"));
  CHECK(!std::filesystem::exists((folder / "vast") / "run-00000.bin"));

  // The generated data is the same on every machine; these checksums were recorded once.
  const Strings schema{"-r", "k:u64,f:f32be,b:bytes5", "-b", "f:desc,b"};
  for (const auto& [distribution, total] :
       {std::pair{"uniform", "c180388844b29ba3"}, {"zipf", "84da512a6984e8d9"}}) {
    Strings generate{"gen",
                     "--records",
                     "10000",
                     "--runs",
                     "3",
                     "--seed",
                     "42",
                     "--distribution",
                     distribution,
                     "-o",
                     folder / distribution};
    generate.insert(generate.end(), schema.begin(), schema.end());
    REQUIRE(run(generate).code == 0);
    Strings check{"check", "--checksum"};
    check.insert(check.end(), schema.begin(), schema.end());
    for (int i = 0; i < 3; ++i)
      check.push_back((folder / distribution) / ("run-0000" + std::to_string(i) + ".bin"));
    CHECK(holds(run(check).out, std::string("10000 ") + total + " total"));
  }
}

TEST_CASE("a wrong command line is refused in one line") {
  Folder test;
  for (const Strings& arguments :
       {Strings{"marge"}, Strings{"merge"}, Strings{"union", "-r", "a:u8"},
        test.merge({"-m", "12Q"}), test.merge({"-m", "-5"}), test.merge({"--backend", "gpu"}),
        test.merge({"-T", "0"}), test.merge({"--nonsense"}),
        Strings{"gen", "-r", "a:u8", "--records", "1", "--runs", "0", "-o", "x"}})
    test.check_refusal(arguments, 2, {});
}

TEST_CASE("help and version") {
  CHECK(run({"--version"}).out.starts_with("corank 0."));
  for (const char* command :
       {"merge", "union", "intersect", "subtract", "check", "gen", "info", "bench"}) {
    const Result help = run({command, "--help"});
    CHECK(help.code == 0);
    CHECK(holds(help.out, "Example"));
    CHECK(holds(help.out, std::string("corank ") + command));
  }
}

TEST_CASE("help groups the options and fits 80 columns") {
  const std::string help = run({"merge", "--help"}).out;
  const std::string options = help.substr(0, help.find("\n\nRecords with equal keys"));
  CHECK(options.size() < help.size());
  std::size_t at = 0;
  for (const char* heading :
       {"Input", "Keys", "Output", "Duplicates", "Filtering", "Performance", "Diagnostics"}) {
    INFO(heading);
    at = options.find(std::string("\n\n") + heading + ":\n  -", at);
    REQUIRE(at != std::string::npos);
  }
  std::istringstream lines(options);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    const auto characters =
        std::ranges::count_if(line, [](char byte) { return (byte & 0xc0) != 0x80; });
    CHECK(characters <= 80);
  }
}

TEST_CASE("an interrupted merge that may go on leaves what it has and says so") {
  Folder test(4, 4'000'000);
  Environment setting;
  setting.before_exec = give_way;
  setting.while_running = [&](pid_t child) {
    wait_until([&] {
      std::error_code error;
      const auto bytes = std::filesystem::file_size(test.folder / ".output.corank", error);
      return (!error && bytes > 1'000'000) || has_ended(child);
    });
    ::kill(child, SIGTERM);
  };
  const Strings before = test.folder.names();
  const Result stopped = run(test.merge({"--resume", "-m", "700K"}), setting);
  INFO(stopped.err);
  REQUIRE(stopped.code == 143);
  CHECK(holds(stopped.err, "what was written is kept"));
  CHECK(test.old_untouched());
  const Result whole = run(test.merge({"--resume", "--stats", "-"}));
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  CHECK(nlohmann::json::parse(whole.out)["resumed_bytes"] >= 1'000'000);
  CHECK(test.folder.names() == before);
  std::vector<std::uint64_t> keys(16'000'000);
  const std::string bytes = text_of(test.old());
  REQUIRE(bytes.size() == 8 * keys.size());
  std::memcpy(keys.data(), bytes.data(), bytes.size());
  std::uint64_t next = 0;
  CHECK(std::ranges::all_of(keys, [&](std::uint64_t key) { return key == next++; }));
}

TEST_CASE("waiting for a pipe ends when it is asked to") {
  // Waits for a reader to open the pipe, then for one to drain it.
  for (const bool opened : {false, true}) {
    Folder test(2, 100'000);
    const std::string pipe = test.folder / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    const int reader = opened ? ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK) : -1;
    Environment setting;
    setting.while_running = [](pid_t child) {
      wait_until([=] { return has_started(child); });
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for it to come to the pipe
      ::kill(child, SIGINT);
    };
    const Result result =
        run({"merge", "-r", "key:u64", "-o", pipe, "--backend", "cpu", test.runs[0], test.runs[1]},
            setting);
    if (opened) ::close(reader);
    INFO(result.err);
    CHECK(result.code == 130);
  }
}

TEST_CASE("a pipe that is closed ends a merge as it ends other programs") {
  for (const bool ignored : {false, true}) {
    Folder test(2, 100'000);
    Strings arguments{"merge", "-r", "key:u64", "-o", "-", "--backend", "cpu"};
    arguments.insert(arguments.end(), test.runs.begin(), test.runs.end());
    const Result result = run(arguments, without_reader(ignored));
    INFO(result.err);
    CHECK(result.code == (ignored ? 2 : 128 + SIGPIPE));
    CHECK(holds(result.err, "Broken pipe") == ignored);
  }
}

TEST_CASE("bad input: a device, a link to nothing, a stream to go on with") {
  Folder test;
  test.check_refusal(test.merge({"/proc/self/status"}), 2, {"/proc/self/status", "size of 0"});
  test.runs.push_back("/dev/zero");
  test.check_refusal(test.merge(), 2, {"/dev/zero", "neither a file nor a pipe"});
  test.runs.back() = test.folder / "link";
  std::filesystem::create_symlink("nowhere", test.runs.back());
  test.check_refusal(test.merge(), 2, {test.runs.back(), "No such file"});
  test.check_refusal({"merge", "-r", "key:u64", "-o", test.runs.back(), test.runs[0]}, 2,
                     {test.runs.back(), "link to nothing"});
  test.check_refusal({"merge", "-r", "key:u64", "--resume", "-o", "-", test.runs[0]}, 2,
                     {"not a file that can be resumed"});
}

TEST_CASE("runs longer than the address of a 32-bit number cost no memory") {
  // Sparse runs, far larger than memory and disk: the budget holds, and the full device ends the
  // merge.
  for (const std::uint64_t bytes :
       {std::uint64_t{1} << 31, (std::uint64_t{1} << 32) + 8, std::uint64_t{1} << 43}) {
    Folder test(2, 10);
    const std::string sparse = test.add_bytes({});
    if (::truncate(sparse.c_str(), static_cast<off_t>(bytes)) != 0) {
      WARN("not checked: no file of " << bytes << " bytes can be made here");
      continue;
    }
    for (const char* io : {"buffered", "mapped", "auto"}) {
      const Result result = run({"merge", "-r", "key:u64", "-o", "/dev/full", "-m", "4M", "--io",
                                 io, "--backend", "cpu", test.runs[0], sparse});
      INFO(bytes << " bytes, " << io << ": " << result.err);
      CHECK(result.code == 2);
      CHECK(holds(result.err, "/dev/full: cannot write"));
    }
    // With one byte more, the last record is incomplete.
    REQUIRE(::truncate(sparse.c_str(), static_cast<off_t>(bytes + 1)) == 0);
    const Result odd = run({"merge", "-r", "key:u64", "-o", "/dev/full", sparse});
    CHECK(odd.code == 2);
    CHECK(holds(odd.err, std::to_string(bytes) + ": check the file"));
  }
}

TEST_CASE("a merge is explained and not done", "[plan]") {
  const TemporaryFolder folder;
  const std::string a = folder / "a", b = folder / "b", out = folder / "out";
  write_file(a, bytes_of_text("a\nc\n"));
  write_file(b, bytes_of_text("b\n"));
  const Result result = run({"merge", "--lines", "--explain", "-T", "2", "-m", "64M", "--backend",
                             "cpu", "--io", "buffered", "-o", out, a, b});
  CHECK(result.code == 0);
  CHECK(holds(result.out, "merge 2 runs, 6 bytes, lines\npass 1 of 1  merge 2 runs: 6 bytes -> "));
  CHECK(!std::filesystem::exists(out));
  const Result set = run({"subtract", "--lines", "--explain", "-o", "-", a, b});
  CHECK(set.code == 0);
  CHECK(holds(set.out, "operators  subtraction\n"));
}
