// A minimal user of the installed library: merges two runs of numbers and checks the result.
#include <corank/check.hpp>
#include <corank/merge.hpp>
#include <corank/version.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

using Numbers = std::vector<std::uint64_t>;

static void write(const std::filesystem::path& file, const Numbers& numbers) {
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof numbers[0]));
}

static Numbers read(const std::filesystem::path& file) {
  Numbers numbers(std::filesystem::file_size(file) / sizeof(std::uint64_t));
  std::ifstream(file, std::ios::binary)
      .read(reinterpret_cast<char*>(numbers.data()),
            static_cast<std::streamsize>(numbers.size() * sizeof numbers[0]));
  return numbers;
}

int main() {
  write("odd.bin", {1, 3, 5, 7, 9, 1'000'000'000'000});
  write("even.bin", {0, 2, 4, 6});

  corank::Options options;
  options.record = corank::Schema::parse("number:u64");
  options.overwrite = true;
  const std::vector<std::filesystem::path> runs{"odd.bin", "even.bin"};
  const corank::Stats stats = corank::merge(runs, "merged.bin", options);

  const Numbers expected{0, 1, 2, 3, 4, 5, 6, 7, 9, 1'000'000'000'000};
  const corank::CheckResult check = corank::check("merged.bin", options);
  if (stats.records != expected.size() || check.records != expected.size() ||
      read("merged.bin") != expected) {
    std::fprintf(stderr, "corank %s merged wrongly\n", corank::version);
    return 1;
  }
  return 0;
}
