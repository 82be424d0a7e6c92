// Compares merges and sorts of lines with GNU `sort`, byte for byte: random lines, runs, and
// options that both programs have.
//
// Usage: gnu-sort-test [--cases N] [--seed N]
//
// Case i of seed s is case 0 of seed s + i.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "support/support.hpp"
#include "support/text_reference.hpp"

extern char** environ;

using namespace corank::test;

namespace {

constexpr int skipped = 77;  // exit code that CTest counts as skipped

int run(const Strings& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  if (::posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ) != 0) return 127;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  write_file(path, Bytes(begin, begin + text.size()));
}

// Holds one sort order as the options of both programs.
struct Order {
  Strings gnu;
  Strings ours;
  std::vector<bool> numeric;  // true for columns of integers; empty if lines have no columns
  char delimiter = 0;
  char terminator = '\n';
};

Order random_order(Random& random) {
  Order order;
  if (below(random, 4) == 0) {
    order.terminator = '\0';
    order.gnu.push_back("-z");
    order.ours.push_back("-z");
  }
  std::string by;
  const auto add_key = [&](const std::string& gnu_key, const std::string& column, bool numeric) {
    std::string gnu = gnu_key, ours = column;
    if (numeric) {
      gnu += 'n';
      ours += ":i64";
    } else if (below(random, 4) == 0) {
      gnu += 'f';
      ours += ":nocase";
    }
    if (below(random, 3) == 0) {
      gnu += 'r';
      ours += ":desc";
    }
    order.gnu.insert(order.gnu.end(), {"-k", gnu});
    by += (by.empty() ? "" : ",") + ours;
  };
  if (below(random, 3) == 0) {
    if (below(random, 2)) add_key("1", "line", false);
  } else {
    constexpr std::string_view delimiters = ",\t| x";
    order.delimiter = delimiters[below(random, delimiters.size())];
    order.gnu.insert(order.gnu.end(), {"-t", std::string(1, order.delimiter)});
    order.ours.insert(order.ours.end(), {"-t", std::string(1, order.delimiter)});
    for (std::uint64_t columns = 1 + below(random, 5); columns > 0; --columns)
      order.numeric.push_back(below(random, 3) == 0);
    for (std::uint64_t keys = 1 + below(random, 3); keys > 0; --keys) {
      // A column past the last one of a line is an empty string.
      const std::uint64_t column = 1 + below(random, order.numeric.size() + 1);
      add_key(fmt::format("{0},{0}", column), std::to_string(column),
              column <= order.numeric.size() && order.numeric[column - 1]);
      if (below(random, 5) == 0) add_key("1", "line", false);
    }
  }
  if (!by.empty()) order.ours.insert(order.ours.end(), {"-b", by});
  if (below(random, 3) == 0) {
    order.gnu.push_back("-u");
    order.ours.insert(order.ours.end(), {"--on-equal", "first"});
  }
  return order;
}

std::string random_line(const Order& order, Random& random, std::uint64_t max_bytes) {
  const auto text = [&](std::uint64_t bytes) {
    // Few distinct characters, so that lines are equal or share prefixes; sometimes any byte.
    const bool any = below(random, 8) == 0;
    std::string made(below(random, bytes + 1), ' ');
    for (char& c : made) {
      c = any ? static_cast<char>(below(random, 256)) : "aabABz\xe9_"[below(random, 8)];
      if (c == order.terminator) c = order.terminator == '\n' ? '\0' : '\n';
      if (!order.numeric.empty() && c == order.delimiter) c = 'y';
    }
    return made;
  };
  if (order.numeric.empty()) return text(max_bytes);
  std::string line;
  for (std::size_t column = 0; column < order.numeric.size(); ++column) {
    // Lines may end early, but not before their last number.
    const auto numbers_left = std::find(order.numeric.begin() + static_cast<std::ptrdiff_t>(column),
                                        order.numeric.end(), true);
    if (numbers_left == order.numeric.end() && below(random, 6) == 0) break;
    if (column != 0) line += order.delimiter;
    if (!order.numeric[column]) {
      line += text(max_bytes / order.numeric.size());
      continue;
    }
    const auto number = static_cast<std::int64_t>(random()) >> below(random, 64);
    if (below(random, 6) == 0 && order.delimiter != ' ') line += ' ';
    line += std::to_string(number);
  }
  return line;
}

// Runs both programs, which write to the two files. Returns true if both succeed and their outputs
// are equal.
bool agree(std::uint64_t seed, const Strings& theirs, const std::filesystem::path& their_output,
           const Strings& ours, const std::filesystem::path& our_output) {
  const int their_code = run(theirs), our_code = run(ours);
  if (their_code == 0 && our_code == 0) {
    const std::string expected = text_of(their_output), got = text_of(our_output);
    if (expected == got) return true;
    const auto differ = std::ranges::mismatch(expected, got);
    fmt::print(stderr, "differ from byte {} on, of {} and {}\n", differ.in1 - expected.begin(),
               expected.size(), got.size());
  }
  fmt::print(stderr, "case {}: codes {} and {}\n  {}\n  {}\n", seed, their_code, our_code,
             fmt::join(theirs, " "), fmt::join(ours, " "));
  return false;
}

// Returns true if merges and sorts by both programs agree.
bool same(std::uint64_t seed, const std::string& program) {
  Random random(seed);
  const Order order = random_order(random);
  const TemporaryFolder folder;

  // GNU sort sorts all lines, which are then dealt to the runs.
  const std::uint64_t lines = below(random, 10) == 0 ? 20'000 : below(random, 1500);
  const std::uint64_t max_bytes = below(random, 4) == 0 ? 200 : below(random, 40);
  std::string all;
  for (std::uint64_t i = 0; i < lines; ++i)
    all += random_line(order, random, below(random, 3000) == 0 ? 100'000 : max_bytes) +
           order.terminator;
  write_text(folder / "all", all);
  Strings sort{"sort", "-s", "-o", folder / "sorted"};
  for (const std::string& option : order.gnu)
    if (option != "-u") sort.push_back(option);
  sort.push_back(folder / "all");
  if (run(sort) != 0) return false;
  std::vector<std::string> runs(1 + below(random, 50));
  const std::string sorted = text_of(folder / "sorted");
  for (std::size_t at = 0; at < sorted.size();) {
    const std::size_t end = sorted.find(order.terminator, at) + 1;
    // Some runs stay empty.
    const std::uint64_t to = below(random, runs.size());
    runs[to == 3 ? 0 : to] += sorted.substr(at, end - at);
    at = end;
  }
  Strings names;
  for (std::string& text : runs) {
    if (text.size() > 1 && below(random, 4) == 0) text.pop_back();
    names.push_back(folder / ("run" + std::to_string(names.size())));
    write_text(names.back(), text);
  }
  // Every key column must exist in the first line of some run.
  std::string whole = "1";
  for (std::size_t column = 0; column < order.numeric.size(); ++column)
    whole += std::string(1, order.delimiter) + '1';
  names.push_back(folder / "whole");
  write_text(names.back(), whole + order.terminator);

  Strings theirs{"sort", "-m", "-s", "--batch-size=64", "-o", folder / "theirs"};
  theirs.insert(theirs.end(), order.gnu.begin(), order.gnu.end());
  Strings ours{program, "merge", "--lines", "-q", "--backend", "cpu", "-o", folder / "ours"};
  ours.insert(ours.end(), order.ours.begin(), order.ours.end());
  if (below(random, 3) == 0) ours.insert(ours.end(), {"-m", "4M"});
  if (below(random, 3) == 0) ours.insert(ours.end(), {"-T", "1"});
  if (below(random, 5) == 0) ours.push_back("--no-verify");
  ours.insert(ours.end(), {"--io", below(random, 2) ? "buffered" : "mapped"});
  for (Strings* const command : {&theirs, &ours})
    command->insert(command->end(), names.begin(), names.end());
  if (!agree(seed, theirs, folder / "theirs", ours, folder / "ours")) return false;

  Strings their_sort{"sort", "-s", "-o", folder / "theirs"};
  their_sort.insert(their_sort.end(), order.gnu.begin(), order.gnu.end());
  Strings our_sort{program, "sort", "--lines", "-q", "-f", "-o", folder / "ours"};
  our_sort.insert(our_sort.end(), order.ours.begin(), order.ours.end());
  if (below(random, 2) == 0) our_sort.insert(our_sort.end(), {"-m", "5M"});
  our_sort.insert(our_sort.end(), {"--io", below(random, 2) ? "buffered" : "mapped"});
  for (Strings* const command : {&their_sort, &our_sort})
    command->insert(command->end(), {folder / "all", folder / "whole"});
  return agree(seed, their_sort, folder / "theirs", our_sort, folder / "ours");
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t cases = 1000, seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--cases") cases = std::stoull(argv[i + 1]);
    if (option == "--seed") seed = std::stoull(argv[i + 1]);
  }
  ::setenv("LC_ALL", "C", 1);
  if (run({"sh", "-c", "sort --version | grep -q GNU"}) != 0) {
    fmt::print("skipped: sort is not GNU's\n");
    return skipped;
  }
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "corank";
  std::uint64_t differing = 0;
  for (std::uint64_t i = 0; i < cases; ++i) differing += !same(seed + i, program);
  fmt::print("{} cases from seed {} on, {} differ\n", cases, seed, differing);
  return differing != 0;
}
