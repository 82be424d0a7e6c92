// Shared test support: temporary folders, random records, and a reference order of records that
// shares no code with the library.
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

#include "corank/compression.hpp"
#include "corank/options.hpp"
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
  std::vector<std::string> names() const;  // names of the files in the folder, sorted

 private:
  std::filesystem::path path_;
};

void write_file(const std::filesystem::path& path, const Bytes& bytes);
Bytes read_file(const std::filesystem::path& path);

Bytes bytes_of_text(std::string_view text);
Bytes frame_of(const Compression& compression, std::span<const std::byte> bytes);  // compressed
std::string text_of(std::span<const std::byte> bytes);
std::string text_of(const std::filesystem::path& path);             // content of the file
std::string pair_of(std::string_view key, std::string_view value);  // a pair in the format of --kv

inline std::span<const std::byte> span_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}
inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// All codecs that compress.
inline constexpr Codec codecs[] = {Codec::gzip, Codec::zstd, Codec::bzip2, Codec::xz, Codec::lz4};

inline constexpr OnEqual set_operations[] = {OnEqual::unite, OnEqual::intersect, OnEqual::subtract};

std::vector<BackendChoice> usable_backends();  // of this machine

Bytes random_bytes(std::size_t count, Random& random);

inline std::uint64_t below(Random& random, std::uint64_t bound) {
  return random() % bound;
}

// Step of exhaustive tests. A sanitizer makes each case much slower, and a sample of the cases
// suffices for the faults that it detects.
#ifdef CORANK_SANITIZED
inline constexpr unsigned exhaustive_step = 11;
#else
inline constexpr unsigned exhaustive_step = 1;
#endif

// How many distinct values random fields have.
enum class Values { any, few, one };

// Schemas and keys: records of all widths and keys of all types.
extern const std::vector<std::pair<const char*, const char*>> schemas_and_keys;

// Returns random records; floats include both zeros, both infinities and several NaNs.
Bytes random_records(const Schema& schema, std::uint64_t count, Values values, Random& random);

// Compares two records by the decoded values of their key fields.
bool reference_less(const Schema& schema, const std::vector<KeyField>& keys, const std::byte* a,
                    const std::byte* b);

// Returns `records` sorted by std::stable_sort with reference_less().
Bytes stably_sorted(const Schema& schema, const std::vector<KeyField>& keys, const Bytes& records);

}  // namespace corank::test
