// Tests of merges whose runs are pipes that one program feeds in turn, as tee does. Such a program
// waits for the reader of one pipe while the others get nothing.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/ignored_signal.hpp"
#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// The input of one pipe: `text`, of which it gets a block in each turn.
struct Feed {
  std::string path, text;
  std::size_t block_bytes;
};

// Opens a pipe once it has a reader; returns an empty descriptor if there is none within a minute.
FileDescriptor open_pipe(const std::string& path) {
  for (int attempt = 0; attempt < 6'000; ++attempt) {
    FileDescriptor pipe(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
    if (pipe) return pipe;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

// Returns false if the pipe takes nothing for a minute: then the merge waits for ever.
bool put(const FileDescriptor& pipe, std::string_view block) {
  while (!block.empty()) {
    struct pollfd room {
      pipe.get(), POLLOUT, 0
    };
    if (::poll(&room, 1, 60'000) <= 0) return false;
    const ssize_t put = ::write(pipe.get(), block.data(), block.size());
    if (put <= 0) return false;
    block.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

// Writes a block to each pipe in turn, as often as it takes.
void feed(std::span<const Feed> feeds) {
  std::vector<FileDescriptor> pipes;
  std::vector<std::string_view> rest;
  for (const Feed& to : feeds) {
    pipes.push_back(open_pipe(to.path));
    rest.push_back(to.text);
  }
  while (std::ranges::any_of(pipes, &FileDescriptor::operator bool))
    for (std::size_t i = 0; i < feeds.size(); ++i) {
      const std::string_view block = rest[i].substr(0, feeds[i].block_bytes);
      if (pipes[i] && !put(pipes[i], block)) return;
      rest[i].remove_prefix(block.size());
      if (rest[i].empty()) pipes[i] = FileDescriptor();
    }
}

std::string numbers(unsigned count, unsigned step = 1) {
  std::string text;
  for (unsigned i = 0; i < count; i += step) {
    const std::string number = std::to_string(i);
    text += std::string(8 - number.size(), '0') + number + '\n';
  }
  return text;
}

// Returns the lines of all texts in order.
std::string merged(const std::vector<std::string>& texts) {
  std::vector<std::string_view> lines;
  for (const std::string_view text : texts)
    for (std::size_t at = 0; at < text.size(); at += 9) lines.push_back(text.substr(at, 9));
  std::ranges::sort(lines);
  std::string all;
  for (const std::string_view line : lines) all += line;
  return all;
}

void check_merge(std::vector<Feed> feeds, const Strings& options, const std::string& expected) {
  const TemporaryFolder folder;
  Strings arguments{"merge", "-o", folder / "output"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  for (Feed& to : feeds) {
    to.path = folder / to.path;
    REQUIRE(::mkfifo(to.path.c_str(), 0600) == 0);
    arguments.push_back(to.path);
  }
  const IgnoredSignal ignored(SIGPIPE);
  const std::jthread feeder([&] { feed(feeds); });
  const Result result = run(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK((text_of(folder / "output") == expected));
}

}  // namespace

TEST_CASE("pipes that are fed in turn are all read at a time", "[pipes]") {
  const std::string text = numbers(100'000), header = "number  \n";
  const std::vector<Feed> feeds{{"first", text, 8192}, {"second", text, 8192}};
  for (const Strings& options : {Strings{"--lines"}, {"--lines", "-T", "1"}, {"-r", "line:bytes9"}})
    check_merge(feeds, options, merged({text, text}));
  const std::vector<Feed> with_header{{"first", header + text, 9}, {"second", header + text, 9}};
  check_merge(with_header, {"--lines", "--header"}, header + merged({text, text}));
}

TEST_CASE("headers of pipes that are fed in turn are read whichever comes first", "[pipes]") {
  // A block does not fit into a pipe, so the second pipe has nothing before much of the first one
  // is taken.
  const std::string text = numbers(100'000), number = "number  \n";
  const auto feeds = [&](const std::string& header) {
    return std::vector<Feed>{{"first", header + text, 500'000}, {"second", header + text, 500'000}};
  };
  check_merge(feeds(number), {"--lines", "--header"}, number + merged({text, text}));
  const std::string comment = "# made by a program\n";
  check_merge(feeds(comment), {"--lines", "--comment", "#"}, comment + merged({text, text}));
  check_merge(feeds(number), {"--lines", "--header-lines", "1"}, number + merged({text, text}));
  check_merge(feeds(number), {"-r", "line:bytes9", "--skip-bytes", "9"},
              number + merged({text, text}));
}

TEST_CASE("any number of pipes that are fed in turn are read by one thread", "[pipes]") {
  std::vector<Feed> feeds;
  for (unsigned pipe = 0; pipe < 100; ++pipe)
    feeds.push_back({"pipe" + std::to_string(pipe), numbers(20'000), 100'000});
  check_merge(feeds, {"--lines", "-T", "1"}, merged(Strings(100, numbers(20'000))));
}

TEST_CASE("a pipe that gets little is not waited for while another one is full", "[pipes]") {
  // The second pipe gets 1,000 lines for each line of the first one. A chunk of the first therefore
  // comes with more lines of the second than the merge has memory for.
  const std::string few = numbers(800'000, 1000), many = numbers(800'000);
  const std::vector<Feed> feeds{{"first", few, 9}, {"second", many, 9000}};
  for (const Strings& options : {Strings{"--lines", "-m", "4M"}, {"-r", "line:bytes9", "-m", "4M"}})
    check_merge(feeds, options, merged({few, many}));
}

TEST_CASE("compressed pipes that are fed in turn are all read at a time", "[pipes]") {
  const TemporaryFolder folder;
  const std::string text = numbers(300'000);
  write_file(folder / "plain", bytes_of_text(text));
  for (const std::string suffix : {"gz", "zst"}) {
    const std::string file = folder / ("packed." + suffix);
    REQUIRE(run({"merge", "--lines", "-o", file, folder / "plain"}).code == 0);
    const std::string packed = text_of(file);
    check_merge({{"first", packed, 5000}, {"second", packed, 5000}}, {"--lines"},
                merged({text, text}));
  }
}

TEST_CASE("a disorder in a pipe shows both keys, the line and the cause, as in a file") {
  const TemporaryFolder folder;
  const auto error_of = [&](const Strings& options, const std::string& text) {
    write_file(folder / "file", bytes_of_text(text));
    Environment piped;
    piped.in = text;
    const Strings merge = Strings{"merge", "-o", folder / "output"} + options;
    const Result of_pipe = run(merge + Strings{"-"}, piped);
    std::string of_file = run(merge + Strings{folder / "file"}).err;
    INFO(of_file);
    CHECK(of_pipe.code == 1);
    const std::string file = folder / "file", pipe = "standard input";
    of_file.replace(of_file.find(file), file.size(), "standard input");
    CHECK(of_pipe.err == of_file);
    return of_pipe.err;
  };
  CHECK(holds(error_of({"--lines"}, "a\nc\nb\nd\n"), "line 3"));
  CHECK(holds(error_of({"--lines", "--header"}, "h\na\nc\nb\n"), "line 4"));
  CHECK(holds(error_of({"--lines"}, "9\n10\n"), "u64"));
  error_of({"-r", "key:bytes2"}, "aabbddcc");
  // In another chunk, and far from its ends.
  std::string text = numbers(200'000);
  std::swap(text[9 * 150'000 + 7], text[9 * 150'001 + 7]);
  CHECK(holds(error_of({"--lines"}, text), "line 150002"));
}
