// What several tests need: folders that vanish, random records, and an order of records that shares
// nothing with the code under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corank/record.hpp"

namespace corank::test {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::vector<std::string> names() const;  // of what is in it, sorted

 private:
  std::filesystem::path path_;
};

void write_file(const std::filesystem::path& path, const Bytes& bytes);
Bytes read_file(const std::filesystem::path& path);

Bytes bytes_of_text(std::string_view text);
std::string text_of(std::span<const std::byte> bytes);
std::string text_of(const std::filesystem::path& path);             // of what the file holds
std::string pair_of(std::string_view key, std::string_view value);  // as --kv reads it

inline std::uint64_t below(Random& random, std::uint64_t bound) {
  return random() % bound;
}

// Tests that try all there is take steps of this. A sanitizer makes each trial many times slower,
// and what it is there to find shows in some of them.
#ifdef __SANITIZE_ADDRESS__
inline constexpr unsigned exhaustive_step = 11;
#else
inline constexpr unsigned exhaustive_step = 1;
#endif

// Which of a small or large set of values fields take.
enum class Values { any, few, one };

// Records of all widths and keys of all kinds.
extern const std::vector<std::pair<const char*, const char*>> schemas_and_keys;

// Floats include both zeros, both infinities and several NaNs.
Bytes random_records(const Schema& schema, std::uint64_t count, Values values, Random& random);

// The order of records, field by field, from the decoded values.
bool reference_less(const Schema& schema, const std::vector<KeyField>& keys, const std::byte* a,
                    const std::byte* b);

// `records` in the order of std::stable_sort.
Bytes stably_sorted(const Schema& schema, const std::vector<KeyField>& keys, const Bytes& records);

}  // namespace corank::test
