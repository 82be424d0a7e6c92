// `corank sort --resume`: what a sort that was stopped in any of its passes leaves, and how the
// next one goes on.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>

#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// A sort of a file that is several times as large as its memory.
class StoppedSort {
 public:
  explicit StoppedSort(bool lines) : lines_(lines) {
    Random random(7);
    std::string text;
    while (text.size() < bytes) {
      const std::uint64_t number = random();
      text += lines ? std::to_string(number) + "\n"
                    : std::string(reinterpret_cast<const char*>(&number), sizeof number);
    }
    if (!lines) text.resize(bytes);
    write_file(input(), bytes_of_text(text));
    CHECK(run(arguments("whole", {})).code == 0);
    whole_read_ = number("bytes_read");
    expected_ = text_of(folder_ / "whole");
  }

  std::filesystem::path input() const { return folder_ / "input"; }
  std::filesystem::path output() const { return folder_ / "output"; }

  Strings arguments(const std::string& output, const Strings& options) const {
    Strings all{"sort",          "-m", "5M", "-T", "2", "--stats", folder_ / "stats", "-o",
                folder_ / output};
    const Strings format = lines_ ? Strings{"--lines"} : Strings{"-r", "key:u64,value:u64"};
    all.insert(all.end(), format.begin(), format.end());
    all.insert(all.end(), options.begin(), options.end());
    all.push_back(input());
    return all;
  }

  // Starts the sort, and sends it a signal once `is_there`.
  void stop(int signal, const std::function<bool()>& is_there, const Strings& options = {}) const {
    Environment setting;
    setting.before_exec = give_way;
    setting.while_running = [&](pid_t child) {
      wait_until([&] { return is_there() || has_ended(child); });
      ::kill(child, signal);
    };
    CHECK(run(arguments("output", Strings{"--resume"} + options), setting).code == 128 + signal);
    CHECK(!std::filesystem::is_regular_file(output()));
  }
  // Returns the files of temporary runs.
  Strings kept() const {
    Strings runs;
    for (const std::string& name : folder_.names())
      if (name.starts_with(".output.corank-run-")) runs.push_back(folder_ / name);
    return runs;
  }
  bool has_kept(std::size_t runs) const { return kept().size() > runs; }
  bool has_output() const {
    std::error_code error;
    const auto size = std::filesystem::file_size(folder_ / ".output.corank", error);
    return !error && size != 0;
  }

  // Resumes; the output must be right, and nothing else be left.
  Result resume(const Strings& options = {}) { return resume_to("output", options); }
  // Resumes with another spelling of the output's name.
  Result resume_to(const std::string& name, const Strings& options = {}) {
    Result result = run(arguments(name, Strings{"--resume"} + options));
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK((text_of(output()) == expected_));
    CHECK(names() == Strings{"input", "output", "stats", "whole"});
    return result;
  }
  Strings names() const { return folder_.names(); }
  std::uint64_t whole_read() const { return whole_read_; }
  // Returns a number of the statistics of the last sort.
  std::uint64_t number(const std::string& name) const {
    const std::string stats = text_of(folder_ / "stats");
    return std::stoull(stats.substr(stats.find("\"" + name + "\": ") + name.size() + 4));
  }
  const std::string& expected() const { return expected_; }
  void expect(std::string text) { expected_ = std::move(text); }

 private:
  static constexpr std::size_t bytes = 24 << 20;

  TemporaryFolder folder_;
  bool lines_;
  std::uint64_t whole_read_ = 0;
  std::string expected_;
};

}  // namespace

TEST_CASE("a sort that is killed while it forms runs goes on after them", "[sort][resume]") {
  for (const bool lines : {false, true}) {
    StoppedSort sort(lines);
    sort.stop(SIGKILL, [&] { return sort.has_kept(2); });
    const Result result = sort.resume();
    CHECK(result.err.find("starting over") == std::string::npos);
    CHECK(sort.number("bytes_read") < sort.whole_read());
  }
}

TEST_CASE("a sort that is killed twice leaves nothing", "[sort][resume]") {
  StoppedSort sort(true);
  sort.stop(SIGKILL, [&] { return sort.has_kept(1); });
  sort.stop(SIGKILL, [&] { return sort.has_kept(2); });
  // A kill may leave the next list beside the old one.
  write_file(sort.output().parent_path() / ".output.corank-runs.new",
             bytes_of_text("corank-runs-"));
  CHECK(sort.resume().err.find("starting over") == std::string::npos);
}

TEST_CASE("a merge to the output of a killed sort removes what the sort kept", "[sort][resume]") {
  StoppedSort sort(true);
  sort.stop(SIGKILL, [&] { return sort.has_kept(1); });
  const std::filesystem::path folder = sort.output().parent_path();
  const auto merge = [&](const std::string& output) {
    CHECK(run({"merge", "--lines", "-o", folder / output, folder / "whole"}).code == 0);
  };
  merge("other");
  CHECK(sort.has_kept(0));
  std::filesystem::remove(folder / "other");
  merge("output");
  CHECK(sort.names() == Strings{"input", "output", "stats", "whole"});
}

TEST_CASE("a sort that is stopped in its last pass goes on in it", "[sort][resume]") {
  for (const bool lines : {false, true})
    for (const int signal : {SIGKILL, SIGTERM}) {
      StoppedSort sort(lines);
      sort.stop(signal, [&] { return sort.has_output(); });
      sort.resume();
      CHECK(sort.number("resumed_bytes") > 0);
      CHECK(sort.number("bytes_read") < sort.whole_read() * 3 / 4);
    }
}

TEST_CASE("a sort goes on if its output is spelled in another way", "[sort][resume]") {
  StoppedSort sort(true);
  sort.stop(SIGKILL, [&] { return sort.has_kept(2); });
  const std::filesystem::path folder = sort.output().parent_path();
  sort.resume_to(folder / ".." / folder.filename() / "." / "output");
  CHECK(sort.number("bytes_read") < sort.whole_read());
}

TEST_CASE("a sort goes on to parts of which one is lost", "[sort][resume]") {
  StoppedSort sort(false);
  const Strings parts{"--parts", "2"};
  const auto part = [&](const std::string& name) { return sort.output() / name; };
  const auto is_begun = [&] {
    std::error_code error;
    const auto size = std::filesystem::file_size(part(".part-00001.corank"), error);
    return !error && size > 200'000;
  };
  sort.stop(SIGTERM, is_begun, parts);
  for (const char* name : {".part-00000.corank", ".part-00000.corank-resume"})
    CHECK(std::filesystem::remove(part(name)));
  const Result result = run(sort.arguments("output", Strings{"--resume"} + parts));
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(sort.number("resumed_bytes") > 0);
  CHECK((text_of(part("part-00000")) + text_of(part("part-00001")) == sort.expected()));
}

TEST_CASE("parts of a sort are not resumed as parts that begin elsewhere", "[sort][resume]") {
  // Operators tell from the last record of a part where it is resumed, so its bytes are not
  // compared with others.
  StoppedSort sort(false);
  const auto with_memory = [&](const char* memory, const Strings& options) {
    Strings all = sort.arguments("output", Strings{"--resume"} + options);
    *(std::ranges::find(all, "-m") + 1) = memory;
    return all;
  };
  // Writes up to 512 KiB of each part: how much of one, when the other fails, is up to the threads.
  const auto begin = [&](const Strings& options) {
    Environment setting;
    setting.before_exec = [] {
      const struct rlimit limit { 512 << 10, 512 << 10 };
      ::setrlimit(RLIMIT_FSIZE, &limit);
    };
    CHECK(run(with_memory("200M", options), setting).code == 2);
  };
  const auto text_of_parts = [&](int parts) {
    std::string text;
    for (int part = 0; part < parts; ++part)
      text += text_of(sort.output() / ("part-0000" + std::to_string(part)));
    return text;
  };
  SECTION("another number of parts") {
    const Strings having{"--having", "value >= 0"};
    begin(having + Strings{"--parts", "2"});
    CHECK(run(with_memory("200M", having + Strings{"--parts", "3"})).code == 0);
    CHECK((text_of_parts(3) == sort.expected()));
  }
  SECTION("other loads, in which equal keys are combined") {
    // The first half of the input has few keys, which sort after most others.
    std::string text = text_of(sort.input());
    for (std::size_t i = 0; i < text.size() / 2; i += 16)
      text.replace(i, 8, std::string(5, '\0') + text[i] + text[i + 1] + '\xff');
    write_file(sort.input(), bytes_of_text(text));
    const Strings first{"--on-equal", "first"};
    REQUIRE(run(sort.arguments("whole", Strings{"-f"} + first)).code == 0);
    begin(first + Strings{"--parts", "2"});
    CHECK(run(with_memory("5M", first + Strings{"--parts", "2"})).code == 0);
    CHECK((text_of_parts(2) == text_of(sort.output() / "../whole")));
  }
}

TEST_CASE("what a stopped sort left is no input of a sort that would remove it", "[sort][resume]") {
  const TemporaryFolder folder;
  const std::string output = folder / "output", list = folder / ".output.corank-runs";
  write_file(list, bytes_of_text("b\na\n"));
  for (const std::string command : {"sort", "merge"}) {
    const Result result = run({command, "--lines", "-o", output, list});
    CHECK(result.code == 2);
    CHECK(holds(result.err, list + ": is what a stopped sort to " + output + " left"));
    CHECK(text_of(list) == "b\na\n");
  }
  CHECK(run({"sort", "--lines", "-o", folder / "other", list}).code == 0);
  write_file(list + ".new", bytes_of_text("b\na\n"));
  CHECK(run({"sort", "--lines", "--resume", "-o", output, list + ".new"}).code == 2);
  CHECK(text_of(list + ".new") == "b\na\n");
}

TEST_CASE("a sort to a file that it may not replace reads nothing", "[sort][resume]") {
  const TemporaryFolder folder;
  const std::string file = folder / "file", output = folder / "output";
  write_file(file, bytes_of_text("x\n"));  // not a number
  write_file(output, bytes_of_text("old"));
  for (const Strings& options : {Strings{}, Strings{"--resume"}}) {
    const Result result =
        run(Strings{"sort", "--lines", "-b", "line:u64", "-o", output} + options + Strings{file});
    CHECK(result.code == 2);
    CHECK(holds(result.err, output + ": exists already"));
    CHECK(text_of(output) == "old");
  }
}

TEST_CASE("a sort finds a damaged temporary run, and sorts its part again", "[sort][resume]") {
  for (const bool lines : {false, true}) {
    StoppedSort sort(lines);
    sort.stop(SIGKILL, [&] { return sort.has_kept(2); });
    const Strings kept = sort.kept();
    REQUIRE(kept.size() > 2);
    Bytes run = read_file(kept[1]);
    run[run.size() / 2 / 16 * 16 + 9] ^= std::byte{1};
    const FileDescriptor file(::open(kept[1].c_str(), O_WRONLY | O_CLOEXEC));
    write_all(file, run, kept[1]);
    CHECK(holds(sort.resume().err, "does not hold what was written to it"));
  }
}

TEST_CASE("a sort of changed files starts over, and one without --resume, too", "[sort][resume]") {
  StoppedSort sort(true);
  sort.stop(SIGKILL, [&] { return sort.has_kept(2); });
  std::string text = text_of(sort.input());
  write_file(sort.input(), bytes_of_text(text + " \n"));
  CHECK(run(sort.arguments("whole", {"-f"})).code == 0);
  sort.expect(text_of(sort.output().parent_path() / "whole"));
  CHECK(holds(sort.resume().err, "the temporary files are of other inputs or options, or older"));

  std::filesystem::remove(sort.output());
  sort.stop(SIGKILL, [&] { return sort.has_kept(2); });
  CHECK(run(sort.arguments("output", {})).code == 0);
  CHECK(sort.kept().empty());
  CHECK(sort.number("bytes_read") >= sort.whole_read());
}

TEST_CASE("a sort refuses to resume what it cannot", "[sort][resume]") {
  const TemporaryFolder folder;
  const std::string file = folder / "file";
  write_file(file, bytes_of_text("b\na\n"));
  const auto err_of = [&](const Strings& options, const std::string& in) {
    Strings all{"sort", "--lines", "--resume", "-o", folder / "output"};
    all.insert(all.end(), options.begin(), options.end());
    all.push_back(in);
    const Result result = run(all, {.in = "a\n"});
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK(holds(err_of({}, "-"), "is a pipe, in which --resume can't find its way"));
  for (const Strings& option :
       {Strings{"--limit", "1"}, {"--from", "a"}, {"--compress-spill", "lz4"}})
    CHECK(holds(err_of(option, file), "--resume of a sort keeps whole temporary files"));
  CHECK(folder.names() == Strings{"file"});
}
