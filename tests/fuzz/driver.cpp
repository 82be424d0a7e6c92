// Runs a fuzzing target without libFuzzer: first every file of a corpus, then random mutations of
// them.
//
// Usage: fuzz-TARGET CORPUS [--runs N] [--seconds S] [--seed N]
//
// The inputs depend only on the seed and the number of runs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "fuzz/target.hpp"

namespace {

using FuzzInput = std::vector<std::uint8_t>;
using Random = std::mt19937_64;

constexpr std::size_t max_input_bytes = 4096;

std::size_t below(Random& random, std::size_t bound) {
  return random() % bound;
}

void change(FuzzInput& input, const FuzzInput& other, Random& random) {
  const std::size_t at = below(random, input.size() + 1);
  const auto here = input.begin() + static_cast<std::ptrdiff_t>(at);
  const auto some = static_cast<std::ptrdiff_t>(below(random, input.size() - at + 1));
  switch (below(random, 6)) {
    case 0:
      if (here != input.end()) *here ^= static_cast<std::uint8_t>(1u << below(random, 8));
      break;
    case 1:
      if (here != input.end()) *here = static_cast<std::uint8_t>(random());
      break;
    case 2:
      input.insert(here, 1 + below(random, 8), static_cast<std::uint8_t>(random()));
      break;
    case 3:
      input.erase(here, here + std::min<std::ptrdiff_t>(some, 8));
      break;
    case 4: {
      const FuzzInput copy(here, here + some);
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(below(random, input.size() + 1)),
                   copy.begin(), copy.end());
      break;
    }
    default:
      input.erase(here, input.end());
      input.insert(input.end(),
                   other.begin() + static_cast<std::ptrdiff_t>(std::min(at, other.size())),
                   other.end());
  }
  if (input.size() > max_input_bytes) input.resize(max_input_bytes);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t runs = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t seed = 1;
  double seconds = runs;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--runs") runs = std::stoull(argv[i + 1]);
    if (option == "--seconds") seconds = std::stod(argv[i + 1]);
    if (option == "--seed") seed = std::stoull(argv[i + 1]);
  }
  std::vector<FuzzInput> corpus;
  if (argc > 1) {
    const std::filesystem::directory_iterator folder(argv[1]);
    for (const std::set<std::filesystem::path> paths(begin(folder), end(folder));
         const auto& path : paths) {
      std::ifstream file(path, std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  if (corpus.empty()) {
    fmt::print(stderr, "usage: {} CORPUS [--runs N] [--seconds S] [--seed N]\n", argv[0]);
    return 2;
  }
  for (const FuzzInput& input : corpus) corank::fuzz(input);

  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Random random(seed);
  std::uint64_t run = 0;
  for (; run < runs && (run % 64 != 0 || elapsed() < seconds); ++run) {
    FuzzInput input = corpus[below(random, corpus.size())];
    for (std::size_t changes = 1 + below(random, 8); changes > 0; --changes)
      change(input, corpus[below(random, corpus.size())], random);
    corank::fuzz(input);
  }
  fmt::print("{} inputs of seed {} in {:.1f} s, no finding\n", run + corpus.size(), seed,
             elapsed());
}
