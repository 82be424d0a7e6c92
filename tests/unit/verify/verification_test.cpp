// Tests of verification: fingerprints, and the order of the output.
// tests/unit/exec/injection_test.cpp injects errors into whole merges.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "corank/merge.hpp"
#include "format/framing.hpp"
#include "format/key_order.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "verify/checksum.hpp"
#include "verify/fingerprint.hpp"
#include "verify/output_verifier.hpp"

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

TEST_CASE("a checksum is the sum of the XXH64 of each record") {
  Random random(64);
  std::vector<std::byte> bytes(40 * 70 + 1);
  for (std::byte& byte : bytes) byte = std::byte(below(random, 256));
  for (std::uint32_t record_bytes = 1; record_bytes <= 40; ++record_bytes)
    for (std::size_t count = 0; count < 70; ++count) {
      const auto records = std::span(bytes).subspan(1, count * record_bytes);  // not aligned
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < count; ++i)
        sum += records_checksum(records.subspan(i * record_bytes, record_bytes), record_bytes);
      CHECK(records_checksum(records, record_bytes) == sum);
    }
  // Values of the reference implementation.
  const auto checksum_of = [](std::string_view record) {
    return records_checksum(std::as_bytes(std::span(record)),
                            static_cast<std::uint32_t>(record.size()));
  };
  CHECK(checksum_of("abcdefgh") == 0x3ad351775b4634b7);
  CHECK(checksum_of("abcdefghijklmnop") == 0x71ce8137ca2dd53d);
}

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

TEST_CASE("implementations of fingerprints differ for a record of 256 zeros, as kept runs assume") {
  const Bytes example(256);
  std::set<std::uint64_t> values;
  for (const FingerprintSum sum : fingerprint_sums()) values.insert(sum(example, 256));
  CHECK(values.size() == fingerprint_sums().size());
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
        // Changed record sets: one record repeated and another lost; bytes moved within a record;
        // bytes exchanged between two records.
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
          // Sometimes exchanges the bytes that one AES round moves into one column.
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
  std::uint64_t looked_in_one_go = 0, looked_strictly = 0;
  auto cases = schemas_and_keys;
  cases.push_back({"p:u64,a:i64", "a:desc"});
  cases.push_back({"p:u32,a:u64,q:bytes60", "a"});
  // Keys of two words, which are compared as whole words.
  cases.push_back({"p:u16,a:bytes10,q:bytes9", "a"});
  cases.push_back({"a:bytes16,q:u8", "a:desc"});
  cases.push_back({"p:u32,a:i64,b:bytes3", "a:desc,b"});
  cases.push_back({"p:u32,a:i64,b:bytes8", "a,b:desc"});
  cases.push_back({"p:u64,a:bytes3,b:u64", "b,a"});
  cases.push_back({"a:bytes3,b:u64", "b,a"});
  for (const auto& [text, by] : cases) {
    const Schema schema = Schema::parse(text);
    const auto keys = parse_keys(by, schema);
    const KeyEncoding encoding(schema, keys);
    const std::uint32_t record_bytes = schema.record_bytes;
    for (const Values values : {Values::any, Values::few}) {
      const std::uint64_t count = 700;
      Bytes sorted = stably_sorted(schema, keys, random_records(schema, count, values, random));
      const auto at = [&](std::uint64_t i) { return &sorted[i * record_bytes]; };
      const auto in_one_go = [&](std::uint64_t n, bool strict) {
        return sum_and_order(fingerprint_sums()[0], encoding.layout(),
                             std::span(sorted).first(n * record_bytes), strict);
      };
      std::uint64_t missed = 0, planted = 0;
      for (std::uint64_t n = 0; n <= count; ++n) {
        missed += first_descent(encoding.layout(), sorted.data(), n) != n;
        for (const bool strict : {false, true}) {
          const auto look = n == 0 ? std::nullopt : in_one_go(n, strict);
          (strict ? looked_strictly : looked_in_one_go) += look && look->ascends;
          missed +=
              look && look->sum != fingerprint_sums()[0](std::span(sorted).first(n * record_bytes),
                                                         record_bytes);
          missed += look && look->ascends && strict &&
                    first_descent(encoding.layout(), sorted.data(), n, true) != n;
        }
      }
      std::uint64_t level = 1;
      while (level < count && reference_less(schema, keys, at(level - 1), at(level))) ++level;
      missed += first_descent(encoding.layout(), sorted.data(), count, true) != level;
      for (std::uint64_t i = 0; i + 1 < count; ++i) {
        if (!reference_less(schema, keys, at(i), at(i + 1))) continue;
        ++planted;
        std::swap_ranges(at(i), at(i + 1), at(i + 1));
        missed += first_descent(encoding.layout(), sorted.data(), count) != i + 1;
        missed += first_descent(encoding.layout(), at(i), 2) != 1;
        for (const bool strict : {false, true}) {
          const auto look = in_one_go(count, strict);
          missed += look && look->ascends;
        }
        std::swap_ranges(at(i), at(i + 1), at(i + 1));
        const Bytes next(at(i + 1), at(i + 1) + record_bytes);
        std::copy_n(at(i), record_bytes, at(i + 1));
        missed +=
            first_descent(encoding.layout(), sorted.data(), count, true) != std::min(level, i + 1);
        const auto look = in_one_go(count, true);
        missed += look && look->ascends;
        std::ranges::copy(next, at(i + 1));
      }
      CAPTURE(text, by);
      CHECK(planted > 0);
      CHECK(missed == 0);
    }
  }
  if (fingerprint_sums().size() > 2) {
    CHECK(looked_in_one_go > 4'000);
    CHECK(looked_strictly > 2'000);
  }
}

TEST_CASE("lines are summed and their first descent is found in one go") {
  const std::vector<std::string> parts{"", "a", "b", "\xff", std::string(1, '\0'), "0123456", "ab"};
  Random random(37);
  std::vector<std::string> lines(800);
  for (std::string& line : lines)
    for (auto left = below(random, 5); left > 0; --left) line += parts[below(random, parts.size())];
  std::ranges::sort(lines);
  const TextEncoding encoding(TextFormat{});
  const FingerprintSum sum = fingerprint_sums()[0];
  // Verifies in two steps, the first of which takes `first` lines. Returns whether the lines
  // ascend; empty if this processor cannot check that while it computes fingerprints.
  const auto ascend = [&](std::size_t first, bool strict) -> std::optional<bool> {
    std::string text;
    std::vector<std::uint32_t> ends;
    for (const std::string& line : lines) {
      text += line + '\n';
      ends.push_back(static_cast<std::uint32_t>(text.size() - 1));
    }
    const Bytes bytes = bytes_of_text(text);
    std::vector<PrefixRef> entries(lines.size());
    REQUIRE(index_records(encoding.layout(), bytes, true, entries).records == lines.size());
    std::string_view last;
    const auto ends_of_first = std::span(ends).first(first);
    const auto head = sum_and_order(sum, bytes.data(), ends_of_first, strict, last);
    if (!head || !head->ascends) return head ? std::optional(false) : std::nullopt;
    CHECK(last == (first == 0 ? "" : lines[first - 1]));
    const std::size_t begin = first == 0 ? 0 : ends[first - 1] + 1;
    ends.erase(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(first));
    for (std::uint32_t& end : ends) end -= static_cast<std::uint32_t>(begin);
    const auto tail = sum_and_order(sum, bytes.data() + begin, ends, strict, last);
    if (tail->ascends)
      CHECK(head->sum + tail->sum == prefix_refs_fingerprint(sum, encoding.layout(), entries));
    return tail->ascends;
  };
  if (!ascend(0, false)) return;
  std::uint64_t missed = 0, planted = 0;
  for (std::size_t i = 0; i + 1 < lines.size(); i += exhaustive_step) {
    missed += !*ascend(i, false);
    if (lines[i] == lines[i + 1]) continue;
    ++planted;
    std::swap(lines[i], lines[i + 1]);
    missed += *ascend(below(random, lines.size()), false) + *ascend(i + 1, false);
    std::swap(lines[i], lines[i + 1]);
  }
  CHECK(planted > 200 / exhaustive_step);
  CHECK(missed == 0);
  // An empty line equals the empty key that stands for a missing predecessor.
  CHECK_FALSE(*ascend(0, true));
  const auto repeated = std::ranges::unique(lines);
  lines.erase(repeated.begin(), repeated.end());
  lines.erase(lines.begin());
  CHECK(*ascend(0, true));
  for (std::size_t i = 0; i + 1 < lines.size(); i += exhaustive_step) {
    const std::string next = std::exchange(lines[i + 1], lines[i]);
    missed += *ascend(below(random, lines.size()), true) + *ascend(i + 1, true);
    lines[i + 1] = next;
  }
  CHECK(missed == 0);
}

TEST_CASE("what is merged is looked at across the edges of pieces and parts") {
  const Schema schema = Schema::parse("a:u64,p:u64");
  const KeyEncoding encoding(schema, {});
  std::vector<std::uint64_t> words;
  for (std::uint64_t i = 0; i < 100'000; ++i) words.insert(words.end(), {i, ~i});
  const auto records = [&](std::uint64_t first, std::uint64_t count) {
    return std::as_bytes(std::span(words)).subspan(first * 16, count * 16);
  };
  const auto add = [&](OutputVerifier& to, std::uint64_t sequence, std::uint64_t first,
                       std::uint64_t count, unsigned threads = 1) {
    const auto piece = records(first, count);
    to.verify({&piece, 1}, sequence, 16 * first, threads);
  };
  const OutputOrder rising{&encoding, OutputOrder::Kind::rising};
  OutputVerifier whole(rising, portable_fingerprint), pieces(rising, portable_fingerprint),
      rest(rising, portable_fingerprint);
  CHECK(whole.empty());
  add(whole, 0, 0, 100'000, 3);
  CHECK_FALSE(whole.empty());
  for (std::uint64_t first = 0; first < 60'000; first += 6'000)
    add(pieces, first / 6'000, first, 6'000);
  add(rest, 0, 60'000, 40'000);
  CHECK(whole.fingerprint() == pieces.fingerprint() + rest.fingerprint());
  CHECK_NOTHROW(pieces.check_edge(rest));
  CHECK_THROWS_AS(rest.check_edge(pieces), Corrupted);
  CHECK_THROWS_AS(add(pieces, 10, 59'998, 3), Corrupted);

  OutputVerifier unordered({&encoding, OutputOrder::Kind::none}, portable_fingerprint);
  for (const std::uint64_t first : {50'000u, 0u}) add(unordered, first == 0, first, 50'000);
  CHECK(unordered.fingerprint() == whole.fingerprint());
  CHECK_NOTHROW(unordered.check_edge(unordered));

  // The checksum is summed up whether the records are verified here, elsewhere or not at all.
  const auto all = records(0, 100'000);
  OutputVerifier here(rising, portable_fingerprint, true),
      elsewhere(rising, portable_fingerprint, true), nowhere(rising, nullptr, true);
  add(here, 0, 0, 100'000, 2);
  elsewhere.take({.read = 0, .written = 1, .last_offset = all.size() - 16}, all, 0, 0, 2);
  for (const std::uint64_t first : {50'000u, 0u}) add(nowhere, first == 0, first, 50'000);
  for (const OutputVerifier* const verifier : {&here, &elsewhere, &nowhere})
    CHECK(verifier->checksum() == records_checksum(all, 16));
  CHECK(elsewhere.fingerprint() == 1);
  CHECK(whole.checksum() == 0);

  // One at a time, at varying positions in the task and in the block.
  std::uint64_t named = 0, planted = 0;
  for (std::uint64_t i = 1; i < 100'000; i += 487, ++planted) {
    std::swap(words[2 * i], words[2 * i - 2]);
    OutputVerifier looks(rising, portable_fingerprint);
    try {
      add(looks, 0, 0, 10);
      add(looks, 1, 10, 99'990, 1 + i % 3);
    } catch (const Corrupted& found) {
      named += std::string(found.what()).find("record at byte " + std::to_string(16 * i) + " of") !=
               std::string::npos;
    }
    std::swap(words[2 * i], words[2 * i - 2]);
  }
  CHECK(named == planted);
}

TEST_CASE("an inversion is found wherever it is planted and its file and record are named") {
  // A chunk has 40 records, a unit a few hundred.
  const Schema schema = Schema::parse("p:bytes44,a:u64,q:bytes48");
  const auto keys = parse_keys("a", schema);
  constexpr std::uint64_t runs = 3, records = 400, record_bytes = 100;
  Random random(34);
  const TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  std::vector<Bytes> sorted;
  for (std::uint64_t run = 0; run < runs; ++run) {
    sorted.push_back(
        stably_sorted(schema, keys, random_records(schema, records, Values::any, random)));
    paths.push_back(folder / ("run" + std::to_string(run)));
    write_file(paths.back(), sorted.back());
  }
  for (const BackendChoice backend : {BackendChoice::cpu, BackendChoice::cuda}) {
    if (backend == BackendChoice::cuda && !find_cuda_device(0).usable) continue;
    Options options;
    options.record = schema;
    options.keys = keys;
    options.backend = backend;
    options.memory_bytes = 500'000;
    options.overwrite = true;
    options.threads = 1;
    REQUIRE(merge(paths, folder / "output", options).units >= 4);
    std::uint64_t missed = 0;
    // A device starts slowly, so fewer records are moved; the step still reaches every edge.
    for (std::uint64_t at = 0; at < runs * (records - 1);
         at += backend == BackendChoice::cuda ? 13 : exhaustive_step) {
      const std::uint64_t run = at / (records - 1), record = at % (records - 1);
      Bytes wrong = sorted[run];
      std::byte* const moved = &wrong[record * record_bytes];
      REQUIRE(reference_less(schema, keys, moved, moved + record_bytes));
      std::swap_ranges(moved, moved + record_bytes, moved + record_bytes);
      write_file(paths[run], wrong);
      try {
        merge(paths, folder / "output", options);
        ++missed;
      } catch (const OutOfOrder& found) {
        missed += found.file() != paths[run] || found.record() != record + 1;
      }
      write_file(paths[run], sorted[run]);
    }
    CHECK(missed == 0);
  }
}

TEST_CASE("a temporary file that changes on its disk is noticed") {
  const Schema schema = Schema::parse("a:u64,p:u64");
  Random random(36);
  const TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  for (int run = 0; run < 300; ++run) {
    paths.push_back(folder / ("run" + std::to_string(run)));
    write_file(paths.back(),
               stably_sorted(schema, {{0}}, random_records(schema, 2'000, Values::any, random)));
  }
  Options options;
  options.record = schema;
  options.memory_bytes = 700 << 10;
  // Progress is reported at most ten times a second.
  options.notice = [](const Message&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  };
  bool flipped = false;
  options.progress = [&](const Progress&) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string name = std::filesystem::read_symlink(entry.path(), gone);
      if (flipped || !name.starts_with(folder.path().string()) || !name.ends_with(" (deleted)"))
        continue;
      // Flips a bit in the payload of the last written record, which is read last.
      const int file = ::open(entry.path().c_str(), O_RDWR);
      const off_t end = ::lseek(file, 0, SEEK_END);
      char byte = 0;
      if (end >= 16 && ::pread(file, &byte, 1, end - 1) == 1) {
        byte ^= 1;
        flipped = ::pwrite(file, &byte, 1, end - 1) == 1;
      }
      ::close(file);
    }
  };
  SECTION("verified") {
    CHECK_THROWS_AS(merge(paths, folder / "output", options), Corrupted);
    CHECK(flipped);
    CHECK_FALSE(std::filesystem::exists(folder / "output"));
  }
  SECTION("unless nothing is to be verified") {
    options.verify = false;
    const Stats stats = merge(paths, folder / "output", options);
    CHECK(flipped);
    CHECK(stats.passes > 1);
    CHECK_FALSE(stats.verified);
  }
}

TEST_CASE("copies and merges in memory are verified as well") {
  const Schema schema = Schema::parse("a:u32,p:u32");
  Random random(37);
  std::vector<Bytes> runs;
  for (int run = 0; run < 5; ++run)
    runs.push_back(
        stably_sorted(schema, {{0}}, random_records(schema, 100'000, Values::any, random)));
  const std::vector<std::span<const std::byte>> spans(runs.begin(), runs.end());
  Bytes output(5 * runs[0].size());
  Options options;
  options.record = schema;
  for (const bool copy_only : {false, true}) {
    options.copy_only = copy_only;
    const Stats stats = merge(spans, output, options);
    CHECK(stats.verified);
    // A device verifies while it merges.
    CHECK((stats.busy.verify > 0 || stats.backend == "cuda"));
  }
}
