#include "support/support.hpp"

#include <stdlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "codec/codec.hpp"
#include "kernels/backend/cuda_backend.hpp"

namespace corank::test {
namespace {

// The reference sort spends much of its time here.
std::uint64_t load(const std::byte* at, const Field& field) {
  std::uint64_t value = 0;
  auto* const bytes = reinterpret_cast<std::byte*>(&value);
  std::memcpy(field.big_endian ? bytes + sizeof(value) - field.bytes : bytes, at, field.bytes);
  return field.big_endian ? __builtin_bswap64(value) : value;
}

void store(std::byte* at, std::uint64_t value, const Field& field) {
  for (std::uint32_t i = 0; i < field.bytes; ++i, value >>= 8)
    at[field.big_endian ? field.bytes - 1 - i : i] = static_cast<std::byte>(value);
}

double real(const std::byte* at, const Field& field) {
  const std::uint64_t bits = load(at, field);
  return field.bytes == 8 ? std::bit_cast<double>(bits)
                          : std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

std::int64_t integer(const std::byte* at, const Field& field) {
  const unsigned unused = 64 - 8 * field.bytes;
  return static_cast<std::int64_t>(load(at, field) << unused) >> unused;
}

template <class T>
int compare(T x, T y) {
  return x < y ? -1 : y < x ? 1 : 0;
}

int compare(const std::byte* a, const std::byte* b, const Field& field) {
  const std::byte* x = a + field.offset;
  const std::byte* y = b + field.offset;
  switch (field.kind) {
    case FieldKind::unsigned_integer:
      return compare(load(x, field), load(y, field));
    case FieldKind::signed_integer:
      return compare(integer(x, field), integer(y, field));
    case FieldKind::bytes:
      return std::memcmp(x, y, field.bytes);
    case FieldKind::floating: {
      const double u = real(x, field);
      const double v = real(y, field);
      if (std::isnan(u) || std::isnan(v)) return compare(std::isnan(u), std::isnan(v));
      return compare(u, v);
    }
  }
  throw std::logic_error("no such kind");
}

std::uint64_t special_float(const Field& field, Random& random) {
  static const double values[] = {0.0,
                                  -0.0,
                                  1.5,
                                  -1.5,
                                  std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN(),
                                  -std::numeric_limits<double>::quiet_NaN()};
  const std::uint64_t pick = below(random, std::size(values) + 1);
  if (pick == std::size(values))  // a NaN with a payload
    return field.bytes == 8 ? 0xfff0000000000000u | (1 + below(random, 100))
                            : 0xff800000u | (1 + below(random, 100));
  return field.bytes == 8 ? std::bit_cast<std::uint64_t>(values[pick])
                          : std::bit_cast<std::uint32_t>(static_cast<float>(values[pick]));
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "corank-test-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

void write_file(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  Bytes bytes(std::filesystem::file_size(path));
  in.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes));
  return bytes;
}

Bytes random_records(const Schema& schema, std::uint64_t count, Values values, Random& random) {
  Bytes records(count * schema.record_bytes);
  for (std::uint64_t i = 0; i < count; ++i)
    for (const Field& field : schema.fields) {
      std::byte* const at = records.data() + i * schema.record_bytes + field.offset;
      if (field.kind == FieldKind::bytes) {
        for (std::uint32_t b = 0; b < field.bytes; ++b)
          at[b] = static_cast<std::byte>(values == Values::any ? below(random, 256)
                                         : values == Values::few && b + 1 == field.bytes
                                             ? below(random, 3) * 127
                                             : 7);
        continue;
      }
      std::uint64_t value = values == Values::any   ? random()
                            : values == Values::few ? below(random, 5) - 2
                                                    : 3;
      if (field.kind == FieldKind::floating && values != Values::one && below(random, 2) == 0)
        value = special_float(field, random);
      store(at, value, field);
    }
  return records;
}

bool reference_less(const Schema& schema, const std::vector<KeyField>& keys, const std::byte* a,
                    const std::byte* b) {
  for (const KeyField& key : keys) {
    const int order = compare(a, b, schema.fields[key.field]);
    if (order != 0) return (order < 0) != key.descending;
  }
  return false;
}

Bytes stably_sorted(const Schema& schema, const std::vector<KeyField>& keys, const Bytes& records) {
  std::vector<const std::byte*> order;
  for (std::size_t at = 0; at < records.size(); at += schema.record_bytes)
    order.push_back(records.data() + at);
  std::ranges::stable_sort(order, [&](const std::byte* a, const std::byte* b) {
    return reference_less(schema, keys, a, b);
  });
  Bytes sorted(records.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    std::memcpy(sorted.data() + i * schema.record_bytes, order[i], schema.record_bytes);
  return sorted;
}

std::vector<BackendChoice> usable_backends() {
  std::vector<BackendChoice> all{BackendChoice::cpu};
  if (find_cuda_device(0).usable) all.push_back(BackendChoice::cuda);
  return all;
}

Bytes random_bytes(std::size_t count, Random& random) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Bytes bytes_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Bytes frame_of(const Compression& compression, std::span<const std::byte> bytes) {
  const Encoder encoder = make_encoder(compression);
  Bytes frame(encoder.bound(bytes.size()));
  frame.resize(encoder.encode(bytes, frame));
  return frame;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string text_of(const std::filesystem::path& path) {
  return text_of(read_file(path));
}

std::string pair_of(std::string_view key, std::string_view value) {
  std::string pair;
  for (const std::string_view text : {key, value})
    for (unsigned shift = 0; shift < 32; shift += 8)
      pair += static_cast<char>(text.size() >> shift & 0xff);
  return pair.append(key).append(value);
}

const std::vector<std::pair<const char*, const char*>> schemas_and_keys{
    {"a:u8,p:u8", "a"},
    {"a:u16be", "a:desc"},
    {"a:u32,p:u32", "a"},
    {"a:i32be,p:u8", "a"},
    {"a:u64", "a"},
    {"a:u64be", "a:desc"},
    {"a:u64,p:u64", "a"},
    {"p:u64,a:u64be", "a"},
    {"a:i64,p:u64", "a:desc"},
    {"a:u64be,p:bytes3", "a"},
    {"a:f64,p:u64", "a"},
    {"a:f32be,p:u64", "a:desc"},
    {"a:bytes16", "a"},
    {"a:u8,b:u64,c:i64", "c,b:desc"},
    {"a:bytes25,p:u8", "a"},
    {"a:bytes39,p:u8", "a"},
    {"a:bytes10,p:bytes90", "a"},
};

}  // namespace corank::test
