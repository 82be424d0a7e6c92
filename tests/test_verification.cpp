// What finds wrong bytes: fingerprints and the order of what was merged. Both in merges on whose
// way something goes wrong: test_injection.cpp.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "catch.hpp"
#include "corank/merge.hpp"
#include "cuda_backend.hpp"
#include "fingerprint.hpp"
#include "order.hpp"
#include "output_verifier.hpp"
#include "support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

void flip(std::byte* bytes, std::uint64_t bit) {
  bytes[bit / 8] ^= std::byte{1} << bit % 8;
}

Bytes bytes_of(std::uint64_t count, Random& random, unsigned values) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(below(random, values));
  return bytes;
}

}  // namespace

TEST_CASE("a fingerprint depends on the records and not on their order") {
  Random random(31);
  for (const FingerprintSum sum : fingerprint_sums())
    for (const std::uint32_t record_bytes : {1u, 3u, 7u, 8u, 9u, 16u, 17u, 32u, 100u, 4'099u}) {
      const std::uint64_t records = 50 + below(random, 10);
      Bytes bytes = bytes_of(records * record_bytes, random, 256);
      const std::uint64_t all = sum(bytes, record_bytes);
      std::uint64_t apart = 0;
      for (std::span<const std::byte> rest = bytes; !rest.empty();) {
        const auto block =
            rest.first(std::min<std::uint64_t>(1 + below(random, 9), rest.size() / record_bytes) *
                       record_bytes);
        apart += sum(block, record_bytes);
        rest = rest.subspan(block.size());
      }
      CAPTURE(record_bytes);
      CHECK(apart == all);
      for (std::uint64_t i = 0; i < records; ++i)
        std::swap_ranges(&bytes[i * record_bytes], &bytes[i * record_bytes] + record_bytes,
                         &bytes[below(random, records) * record_bytes]);
      CHECK(sum(bytes, record_bytes) == all);
    }
}

TEST_CASE("every bit that is flipped and every exchange of bytes changes a fingerprint") {
  Random random(32);
  for (const FingerprintSum sum : fingerprint_sums())
    for (std::uint32_t record_bytes = 1; record_bytes <= 130; record_bytes += exhaustive_step)
      for (const unsigned values : {1u, 2u, 256u}) {
        const Bytes bytes = bytes_of(std::uint64_t{4} * record_bytes, random, values);
        const std::uint64_t right = sum(bytes, record_bytes);
        std::uint64_t missed = 0;
        for (std::uint64_t bit = 0; bit < 8 * bytes.size(); ++bit) {
          Bytes wrong = bytes;
          flip(wrong.data(), bit);
          missed += sum(wrong, record_bytes) == right;
        }
        // A record twice and another not at all; the same bytes elsewhere in a record; bytes of two
        // records at the same place exchanged.
        const auto records_of = [&](const Bytes& from) {
          std::multiset<std::string> records;
          for (std::uint64_t at = 0; at < from.size(); at += record_bytes)
            records.emplace(reinterpret_cast<const char*>(&from[at]), record_bytes);
          return records;
        };
        const auto changed = [&](const Bytes& wrong) {
          missed += records_of(wrong) != records_of(bytes) && sum(wrong, record_bytes) == right;
        };
        Bytes twice = bytes;
        std::copy_n(&bytes[0], record_bytes, &twice[record_bytes]);
        changed(twice);
        for (std::uint32_t at = 1; at < record_bytes; ++at) {
          Bytes turned = bytes;
          std::rotate(&turned[0], &turned[at], &turned[0] + record_bytes);
          changed(turned);
          Bytes exchanged = bytes;
          std::swap_ranges(&exchanged[0], &exchanged[at], &exchanged[record_bytes]);
          changed(exchanged);
          std::swap(exchanged[0], exchanged[at]);
          changed(exchanged);
        }
        CAPTURE(record_bytes, values);
        CHECK(missed == 0);
      }
}

TEST_CASE("records that exchange any of their bytes change a fingerprint") {
  Random random(34);
  for (const FingerprintSum sum : fingerprint_sums())
    for (const std::uint32_t record_bytes : {8u, 16u, 17u, 32u, 100u})
      for (const unsigned values : {2u, 256u}) {
        std::uint64_t missed = 0, tried = 0;
        for (int i = 0; i < 20'000; ++i) {
          const Bytes bytes = bytes_of(std::uint64_t{2} * record_bytes, random, values);
          Bytes exchanged = bytes;
          // Now and then those that one round of AES puts into one column.
          const int turn = i % 16;
          const std::uint64_t column = (0x8421u << turn | 0x8421u >> (16 - turn)) & 0xffff;
          const std::uint64_t which = i % 4 == 0 ? column : random();
          for (std::uint32_t at = 0; at < record_bytes; ++at)
            if (which >> at % 64 & 1) std::swap(exchanged[at], exchanged[record_bytes + at]);
          const auto sorted = [&](const Bytes& of) {
            const auto middle = of.begin() + record_bytes;
            return std::minmax({Bytes(of.begin(), middle), Bytes(middle, of.end())});
          };
          if (sorted(bytes) == sorted(exchanged)) continue;
          ++tried;
          missed += sum(bytes, record_bytes) == sum(exchanged, record_bytes);
        }
        CAPTURE(record_bytes, values);
        CHECK(tried > 5'000);
        CHECK(missed == 0);
      }
}

TEST_CASE("the first descent is found wherever it is") {
  Random random(33);
  std::uint64_t looked_in_one_go = 0;
  auto cases = schemas_and_keys;
  cases.push_back({"p:u64,a:i64", "a:desc"});
  cases.push_back({"p:u32,a:u64,q:bytes60", "a"});
  for (const auto& [text, by] : cases) {
    const Schema schema = Schema::parse(text);
    const auto keys = parse_keys(by, schema);
    const KeyEncoding encoding(schema, keys);
    const std::uint32_t record_bytes = schema.record_bytes;
    for (const Values values : {Values::any, Values::few}) {
      const std::uint64_t count = 700;
      Bytes sorted = stably_sorted(schema, keys, random_records(schema, count, values, random));
      const auto at = [&](std::uint64_t i) { return &sorted[i * record_bytes]; };
      const auto in_one_go = [&](std::uint64_t n) {
        return fingerprint_in_order(fingerprint_sums()[0], encoding.layout(),
                                    std::span(sorted).first(n * record_bytes));
      };
      std::uint64_t missed = 0, planted = 0;
      for (std::uint64_t n = 0; n <= count; ++n) {
        missed += first_descent(encoding.layout(), sorted.data(), n) != n;
        const auto sum = n == 0 ? std::nullopt : in_one_go(n);
        looked_in_one_go += sum.has_value();
        missed += sum && *sum != fingerprint_sums()[0](std::span(sorted).first(n * record_bytes),
                                                       record_bytes);
      }
      for (std::uint64_t i = 0; i + 1 < count; ++i) {
        if (!reference_less(schema, keys, at(i), at(i + 1))) continue;
        ++planted;
        std::swap_ranges(at(i), at(i + 1), at(i + 1));
        missed += first_descent(encoding.layout(), sorted.data(), count) != i + 1;
        missed += in_one_go(count).has_value();
        std::swap_ranges(at(i), at(i + 1), at(i + 1));
      }
      CAPTURE(text, by);
      CHECK(planted > 0);
      CHECK(missed == 0);
    }
  }
  if (fingerprint_sums().size() > 2) CHECK(looked_in_one_go > 4'000);
}
