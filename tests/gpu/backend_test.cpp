// Tests of the CUDA backend through the Backend interface, against std::stable_sort. Tests tagged
// [sanitize] are small enough to run under compute-sanitizer.
#include "backend/backend.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <ranges>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "corank/error.hpp"
#include "corank/key.hpp"
#include "corank/sort.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "util/buffer_pool.hpp"
#include "verify/fingerprint.hpp"

namespace corank {
namespace {

using test::below;
using test::Bytes;
using test::Random;

constexpr std::byte poison{0xa5};

// Holds a schema, a backend for it, and pinned memory for one unit at a time and its output.
class Rig {
 public:
  struct Sizes {
    std::uint64_t unit_records, chunk_records, chunks;
    unsigned tokens = 1;
    bool sorts = false;
  };

  Rig(const std::string& schema, const std::string& keys, const Sizes& sizes)
      : schema_(Schema::parse(schema)),
        encoding_(schema_, parse_keys(keys, schema_)),
        chunk_records_(sizes.chunk_records),
        backend_(make_cuda_backend(
            0, {&encoding_, sizes.unit_records, sizes.tokens, 4, true, sizes.sorts})),
        chunks_(round_up((sizes.chunk_records + 2) * record_bytes(), page_bytes()), sizes.chunks,
                backend_->pin_memory()),
        outputs_(round_up(sizes.unit_records * record_bytes() + 1, page_bytes()), sizes.tokens + 1,
                 backend_->pin_memory()) {}

  std::uint32_t record_bytes() const { return schema_.record_bytes; }
  Backend& backend() { return *backend_; }
  Buffer output() { return outputs_.lease(); }

  bool less(const std::byte* a, const std::byte* b) const {
    return record_less(encoding_.layout(), a, b);
  }

  Bytes sorted(const Bytes& records) const {
    std::vector<const std::byte*> order;
    for (std::size_t at = 0; at < records.size(); at += record_bytes())
      order.push_back(records.data() + at);
    std::stable_sort(order.begin(), order.end(),
                     [this](const std::byte* a, const std::byte* b) { return less(a, b); });
    Bytes result;
    result.reserve(records.size());
    for (const std::byte* record : order)
      result.insert(result.end(), record, record + record_bytes());
    return result;
  }

  // Returns records in any order. If `values` is small, each key byte has one of few values; other
  // bytes are random.
  Bytes random_records(Random& random, std::uint64_t records, unsigned values) const {
    static constexpr unsigned char few[] = {0x00, 0xff, 0x80, 0x7f, 0xf0};
    Bytes run(records * record_bytes());
    for (std::byte& byte : run) byte = static_cast<std::byte>(random());
    if (values <= std::size(few))
      for (std::size_t at = 0; at < run.size(); at += record_bytes())
        for (const KeyPiece& piece : encoding_.pieces())
          for (unsigned i = 0; i < piece.bytes; ++i)
            run[at + piece.offset + i] = std::byte{few[below(random, values)]};
    return run;
  }
  Bytes random_run(Random& random, std::uint64_t records, unsigned values) const {
    return sorted(random_records(random, records, values));
  }

  // Returns a unit of all records of `runs`, none of which is empty, in chunks cut at random. Some
  // chunks hold a record before or after their segment, which must not affect the merge.
  WorkUnit unit_of(const std::vector<Bytes>& runs, Random& random) {
    WorkUnit unit;
    unit.sequence = random();
    for (std::uint32_t run = 0; run < runs.size(); ++run) {
      const std::uint64_t records = runs[run].size() / record_bytes();
      unit.records += records;
      for (std::uint64_t first = 0; first < records;) {
        const std::uint64_t count = std::min(1 + below(random, chunk_records_), records - first);
        const std::uint64_t before = below(random, 2), behind = below(random, 2);
        auto chunk = std::make_shared<Chunk>();
        chunk->run = 3 * run + 1;
        chunk->first = chunk->number = 1000 + first;
        chunk->count = before + count + behind;
        chunk->buffer = chunks_.lease();
        std::byte* to = chunk->buffer.bytes().data();
        std::memset(to, static_cast<int>(random()), chunk->buffer.bytes().size());
        std::memcpy(to + before * record_bytes(), runs[run].data() + first * record_bytes(),
                    count * record_bytes());
        unit.segments.push_back({std::move(chunk), before, count});
        first += count;
      }
    }
    unit.bytes = unit.records * record_bytes();
    return unit;
  }

  Bytes expected(const std::vector<Bytes>& runs) const {
    Bytes all;
    for (const Bytes& run : runs) all.insert(all.end(), run.begin(), run.end());
    return sorted(all);
  }

  // Return true if the merge or the sort yields `expected` with matching fingerprints and leaves
  // the rest of the output untouched.
  bool merges_to(const WorkUnit& unit, const Bytes& expected) {
    return yields(unit, expected, [&](std::byte* output, std::uint64_t fingerprint) {
      const MergedUnit merged = backend_->merge(unit, output);
      return merged.proof && merged.proof->read == fingerprint &&
             merged.proof->written == fingerprint;
    });
  }
  bool sorts_to(const WorkUnit& unit, const Bytes& expected) {
    return yields(unit, expected, [&](std::byte* output, std::uint64_t fingerprint) {
      return backend_->sort(unit, output) == fingerprint;
    });
  }

  bool sorts(const std::vector<Bytes>& records, Random& random) {
    return sorts_to(unit_of(records, random), expected(records));
  }

  bool merges(const std::vector<Bytes>& runs, Random& random) {
    return merges_to(unit_of(runs, random), expected(runs));
  }

 private:
  template <class Run>
  bool yields(const WorkUnit& unit, const Bytes& expected, Run run) {
    const Buffer output = this->output();
    const auto bytes = output.bytes();
    std::fill(bytes.begin(), bytes.end(), poison);
    const bool looked = run(bytes.data(), portable_fingerprint(expected, record_bytes()));
    return (looked || unit.records == 0) && unit.records * record_bytes() == expected.size() &&
           std::equal(expected.begin(), expected.end(), bytes.begin()) &&
           std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(expected.size()), bytes.end(),
                       [](std::byte byte) { return byte == poison; });
  }

  Schema schema_;
  KeyEncoding encoding_;
  std::uint64_t chunk_records_;
  std::unique_ptr<Backend> backend_;
  BufferPool chunks_, outputs_;
};

struct Kind {
  std::string schema, keys;
};

// Key widths of one, two and four words, with and without tails; records of all alignments.
const Kind kinds[] = {
    {"a:u8", ""},
    {"a:u16be,b:bytes1", "a:desc"},
    {"a:f32,b:u32", "a"},
    {"a:f32be,b:f32", "b:desc"},
    {"a:u64", "a:desc"},
    {"a:u64,b:u64", ""},
    {"a:u8,b:u64,c:i64", "c,b:desc"},
    {"a:i64,b:bytes5", "a:desc"},
    {"a:f64,b:u64", "a,b:desc"},
    {"a:u32,b:u64,c:i16be", "c,a:desc,b"},
    {"a:bytes10,b:bytes90", ""},
    {"a:bytes20,b:u32,c:f64", "c,b,a"},
    {"a:bytes33", ""},
    {"a:bytes70,b:u64", "a,b:desc"},
    {"a:bytes9,b:u64,c:bytes61", "c:desc,b"},
    {"a:bytes1000", ""},
    {"a:u32,b:bytes4092", ""},
};

// Returns `k` random runs of up to `records` records each.
std::vector<Bytes> random_runs(const Rig& rig, Random& random, std::uint64_t k,
                               std::uint64_t records, unsigned values) {
  std::vector<Bytes> runs;
  for (std::uint64_t run = 0; run < k; ++run)
    runs.push_back(rig.random_run(random, 1 + below(random, records), values));
  return runs;
}

// Returns 16-byte records whose u64 keys start at `low` and grow by less than `step` each.
Bytes growing_run(Random& random, std::uint64_t records, std::uint64_t low, std::uint64_t step) {
  Bytes run(16 * records);
  for (std::uint64_t i = 0; i < records; ++i) {
    const std::uint64_t words[] = {low, random()};
    std::memcpy(&run[16 * i], words, 16);
    low += below(random, step);
  }
  return run;
}

// Returns every sorted run of up to four records over three keys, the empty run first.
std::vector<std::string> small_runs() {
  std::vector<std::string> runs{""};
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (runs[i].size() < 4)
      for (char key = runs[i].empty() ? 0 : runs[i].back(); key < 3; ++key)
        runs.push_back(runs[i] + key);
  return runs;
}

}  // namespace

TEST_CASE("the CUDA backend merges every unit of up to three small runs", "[gpu]") {
  const std::vector<std::string> small = small_runs();
  REQUIRE(small.size() == 35);
  Rig rig("key:u8,id:u16", "key", {12, 4, 12});
  Random random(1);
  std::uint64_t wrong = 0;
  for (const auto& a : small)
    for (const auto& b : small)
      for (const auto& c : small) {
        std::vector<Bytes> runs;
        for (const std::string& keys : {a, b, c}) {
          Bytes run;
          for (const char key : keys)
            run.insert(run.end(), {static_cast<std::byte>(key), static_cast<std::byte>(random()),
                                   static_cast<std::byte>(random())});
          if (!run.empty()) runs.push_back(run);
        }
        wrong += !rig.merges(runs, random);
      }
  CHECK(wrong == 0);
}

TEST_CASE("the CUDA backend merges every four small runs, side by side in one unit", "[gpu]") {
  // The first field is the number of the case: all cases with the same first run form one unit.
  const std::vector<std::string> small = small_runs();
  const std::uint64_t cases = small.size() * small.size() * small.size();
  Rig rig("which:u32,key:u8,id:u32", "which,key", {16 * cases, 10'000, 300});
  Random random(2);
  for (const auto& first : small) {
    std::vector<Bytes> runs(4);
    std::uint32_t which = 0;
    for (const auto& b : small)
      for (const auto& c : small)
        for (const auto& d : small) {
          const std::string* keys[] = {&first, &b, &c, &d};
          for (std::size_t r = 0; r < 4; ++r)
            for (const char key : *keys[r]) {
              const auto id = static_cast<std::uint32_t>(random());
              std::byte record[9];
              std::memcpy(record, &which, 4);
              std::memcpy(record + 4, &key, 1);
              std::memcpy(record + 5, &id, 4);
              runs[r].insert(runs[r].end(), record, record + 9);
            }
          ++which;
        }
    std::erase(runs, Bytes());
    CHECK(rig.merges(runs, random));
  }
}

TEST_CASE("the CUDA backend merges records of every kind", "[gpu]") {
  Random random(3);
  for (const Kind& kind : kinds) {
    const std::uint64_t record_bytes = Schema::parse(kind.schema).record_bytes;
    const std::uint64_t unit_records = 600'000 / record_bytes + 2'000;
    Rig rig(kind.schema, kind.keys, {unit_records, unit_records / 40 + 2, 1'000});
    for (const unsigned values : {1u, 2u, 5u, 256u})
      for (const std::uint64_t k : {1u, 2u, 3u, 7u, 64u, 257u}) {
        CAPTURE(kind.schema, kind.keys, values, k);
        CHECK(rig.merges(random_runs(rig, random, k, unit_records / k, values), random));
      }
  }
}

TEST_CASE("the CUDA backend merges small units of every kind", "[gpu][sanitize]") {
  Random random(4);
  for (const Kind& kind : kinds) {
    Rig rig(kind.schema, kind.keys, {2'000, 150, 400});
    for (const unsigned values : {2u, 256u})
      for (const std::uint64_t k : {1u, 2u, 5u, 100u}) {
        CAPTURE(kind.schema, kind.keys, values, k);
        CHECK(rig.merges(random_runs(rig, random, k, 2'000 / k, values), random));
      }
  }
}

TEST_CASE("the CUDA backend merges thousands of runs", "[gpu]") {
  Random random(5);
  for (const Kind& kind : {Kind{"a:u64,b:u64", ""}, Kind{"a:bytes40,b:u8", ""}}) {
    // The last unit has more segments than a backend allocates for at first.
    Rig rig(kind.schema, kind.keys, {400'000, 100, 20'000});
    for (const std::uint64_t k : {500u, 1'000u, 1'999u, 2'000u, 9'000u}) {
      CAPTURE(kind.schema, k);
      CHECK(rig.merges(random_runs(rig, random, k, 80'000 / k, 3), random));
    }
  }
}

TEST_CASE("the CUDA backend merges records of every size up to 4,096 bytes", "[gpu]") {
  Random random(6);
  for (std::uint32_t bytes = 1; bytes <= 4096; ++bytes) {
    CAPTURE(bytes);
    Rig rig(bytes == 1 ? "key:u8" : "key:u8,rest:bytes" + std::to_string(bytes - 1), "",
            {120, 20, 60});
    CHECK(rig.merges(random_runs(rig, random, 3, 40, 5), random));
  }
}

TEST_CASE("the CUDA backend merges records of up to 1 MiB", "[gpu]") {
  Random random(7);
  for (const std::uint32_t bytes : {65'535u, 65'536u, 65'537u, 1u << 20}) {
    CAPTURE(bytes);
    Rig rig("key:u8,rest:bytes" + std::to_string(bytes - 1), "", {20, 3, 20});
    CHECK(rig.merges(random_runs(rig, random, 4, 5, 2), random));
  }
}

TEST_CASE("the CUDA backend merges runs of every distribution", "[gpu]") {
  constexpr std::uint64_t records = 1'000'000, k = 50;
  Rig rig("key:u64,id:u64", "key", {records, 9'000, 1'000});
  Random random(8);
  std::vector<Bytes> runs;
  SECTION("all equal, the greatest key there is") {
    for (std::uint64_t run = 0; run < k; ++run)
      runs.push_back(growing_run(random, records / k, ~0ull, 1));
  }
  SECTION("each run before the next") {
    for (std::uint64_t run = 0; run < k; ++run)
      runs.push_back(growing_run(random, records / k, run << 40, 1'000));
  }
  SECTION("each run behind the next") {
    for (std::uint64_t run = 0; run < k; ++run)
      runs.push_back(growing_run(random, records / k, (k - run) << 40, 1'000));
  }
  SECTION("interleaved, with equal keys") {
    for (std::uint64_t run = 0; run < k; ++run)
      runs.push_back(growing_run(random, records / k, run, 2));
  }
  SECTION("nearly all in one run") {
    for (std::uint64_t run = 0; run < k; ++run)
      runs.push_back(growing_run(random, run == 20 ? records / 2 : 1 + below(random, 30),
                                 below(random, 1'000'000), 3));
  }
  SECTION("one run") {
    runs.push_back(growing_run(random, records, 0, 3));
  }
  CHECK(rig.merges(runs, random));
}

TEST_CASE("the CUDA backend sorts records of every kind", "[gpu][sort]") {
  Random random(14);
  for (const Kind& kind : kinds) {
    const std::uint64_t record_bytes = Schema::parse(kind.schema).record_bytes;
    const std::uint64_t unit_records = 600'000 / record_bytes + 2'000;
    Rig rig(kind.schema, kind.keys, {unit_records, unit_records / 4 + 2, 1'000, 1, true});
    for (const unsigned values : {1u, 2u, 5u, 256u})
      for (const std::uint64_t records : {std::uint64_t{1}, std::uint64_t{2}, unit_records}) {
        CAPTURE(kind.schema, kind.keys, values, records);
        CHECK(rig.sorts({rig.random_records(random, records, values)}, random));
      }
  }
}

TEST_CASE("the CUDA backend sorts small units of every kind", "[gpu][sanitize][sort]") {
  Random random(15);
  for (const Kind& kind : kinds) {
    Rig rig(kind.schema, kind.keys, {2'000, 700, 400, 1, true});
    for (const unsigned values : {1u, 2u, 256u})
      for (const std::uint64_t files : {1u, 2u, 5u}) {
        std::vector<Bytes> inputs;
        for (std::uint64_t file = 0; file < files; ++file)
          inputs.push_back(rig.random_records(random, 1 + below(random, 2'000 / files), values));
        CAPTURE(kind.schema, kind.keys, values, files);
        CHECK(rig.sorts(inputs, random));
      }
    CHECK(rig.sorts({}, random));
  }
}

TEST_CASE("the CUDA backend sorts keys of every distribution", "[gpu][sort]") {
  constexpr std::uint64_t records = 3'000'000;
  Rig rig("key:u64,id:u64", "key", {records, 1'000'000, 20, 1, true});
  Random random(16);
  Bytes input;
  SECTION("all equal, the greatest key there is") {
    input = growing_run(random, records, ~0ull, 1);
  }
  SECTION("sorted") {
    input = growing_run(random, records, 0, 1'000);
  }
  SECTION("descending") {
    input = growing_run(random, records, 0, 1'000);
    for (std::uint64_t i = 0; i < records / 2; ++i)
      std::swap_ranges(&input[16 * i], &input[16 * i] + 16, &input[16 * (records - 1 - i)]);
  }
  SECTION("half of them equal") {
    input = rig.random_records(random, records, 256);
    for (std::uint64_t i = 0; i < records; i += 2) std::memset(&input[16 * i], 7, 8);
  }
  SECTION("small numbers") {
    input = rig.random_records(random, records, 256);
    for (std::uint64_t i = 0; i < records; ++i) std::memset(&input[16 * i + 2], 0, 6);
  }
  SECTION("one bit") {
    input = growing_run(random, records, 0, 1);
    for (std::uint64_t i = 0; i < records; ++i)
      input[16 * i + 7] = static_cast<std::byte>(random() % 2 << 7);
  }
  CHECK(rig.sorts({input}, random));
}

TEST_CASE("a unit is sorted in pieces, stably", "[gpu][sanitize][sort]") {
  const Kind divided[] = {{"a:u64,b:u64", "a"}, {"a:bytes10,b:bytes90", "a"}, {"a:bytes33", ""}};
  constexpr std::uint64_t unit_bytes = 40 << 20;  // of pieces of 16 MiB
  Random random(23);
  for (const Kind& kind : divided) {
    const std::uint64_t records = unit_bytes / Schema::parse(kind.schema).record_bytes;
    Rig rig(kind.schema, kind.keys, {records, records / 4, 40, 1, true});
    // Files end within pieces, and pieces within files. With 2 values, many keys are equal.
    for (const unsigned values : {2u, 256u}) {
      CAPTURE(kind.schema, values);
      CHECK(rig.sorts({rig.random_records(random, records / 2 + 7, values),
                       rig.random_records(random, records / 3, 256)},
                      random));
    }
  }
}

TEST_CASE("records of every kind are sorted where they are, at any address",
          "[gpu][sanitize][sort]") {
  Random random(18);
  for (const Kind& kind : kinds) {
    Options options;
    options.backend = BackendChoice::cuda;
    options.record = Schema::parse(kind.schema);
    options.keys = parse_keys(kind.keys, options.record);
    Rig rig(kind.schema, kind.keys, {1, 1, 1});
    for (const unsigned offset : {0u, 1u, 8u}) {
      const Bytes records = rig.random_records(random, 1 + below(random, 2'000), 3);
      Bytes memory(offset + records.size() + 1, poison);
      std::ranges::copy(records, memory.begin() + offset);
      const Stats stats = sort(std::span(memory).subspan(offset, records.size()), options);
      CAPTURE(kind.schema, kind.keys, offset);
      CHECK(stats.units == 1);
      CHECK(stats.device_fault == "");
      CHECK(std::ranges::equal(rig.sorted(records),
                               std::span(memory).subspan(offset, records.size())));
      CHECK(std::ranges::count(memory, poison) == offset + 1 + std::ranges::count(records, poison));
    }
  }
}

TEST_CASE("more than 4 GiB in memory are sorted at once", "[gpu][sort][large]") {
  constexpr std::uint64_t count = (std::uint64_t{5} << 30) / 16;
  struct Record {
    std::uint64_t key, number;
    auto operator<=>(const Record&) const = default;
  };
  // Multiplication by an odd number permutes the keys, so that each is there once, in no order.
  std::vector<Record> records(count);
  const auto key_of = [](std::uint64_t i) { return i * 0x9e3779b97f4a7c15 % (1ull << 40); };
  for (std::uint64_t i = 0; i < count; ++i) records[i] = {key_of(i), i};
  Options options;
  options.backend = BackendChoice::cuda;
  options.record = Schema::parse("key:u64,number:u64");
  const Stats stats = sort(std::as_writable_bytes(std::span(records)), options);
  CHECK(stats.units == 1);
  CHECK(std::ranges::is_sorted(records));
  CHECK(std::ranges::all_of(records, [&](const Record& r) { return r.key == key_of(r.number); }));
  std::uint64_t sum = 0;
  for (const Record& record : records) sum += record.number;
  CHECK(sum == count / 2 * (count - 1));
}

TEST_CASE("one CUDA backend sorts many units at once", "[gpu][sanitize][sort]") {
  constexpr unsigned tokens = 3, callers = 6;
  Rig rig("a:u16,b:u64,c:bytes3", "b,a", {5'000, 2'000, 100, tokens, true});
  Random random(17);
  std::vector<WorkUnit> work;
  std::vector<Bytes> expected;
  for (unsigned i = 0; i < callers; ++i) {
    const std::vector<Bytes> records{rig.random_records(random, 5'000 - i, i % 2 ? 3 : 256)};
    work.push_back(rig.unit_of(records, random));
    expected.push_back(rig.expected(records));
  }
  std::atomic<unsigned> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned caller = 0; caller < callers; ++caller)
      threads.emplace_back([&, caller] {
        for (unsigned i = 0; i < 2 * callers; ++i) {
          const unsigned which = (caller + i) % callers;
          wrong += !rig.sorts_to(work[which], expected[which]);
        }
      });
  }
  CHECK(wrong == 0);
}

TEST_CASE("the CUDA backend names the first record that is out of order",
          "[gpu][sanitize][disorder]") {
  Random random(9);
  // The last byte of each record is the last byte of its key.
  for (const char* schema :
       {"b:u64,a:u64be", "b:u8,a:bytes12", "b:u16,a:bytes25", "b:u8,a:bytes40"}) {
    Rig rig(schema, "a", {3'000, 400, 100});
    for (int trial = 0; trial < 30; ++trial) {
      const auto runs = random_runs(rig, random, 1 + below(random, 5), 600, trial % 2 ? 1 : 2);
      WorkUnit unit = rig.unit_of(runs, random);
      const Segment& segment = unit.segments[below(random, unit.segments.size())];
      const auto record = [&](std::uint64_t i) {
        return segment.chunk->buffer.bytes().data() + (segment.first + i) * rig.record_bytes();
      };
      const std::uint64_t moved = below(random, segment.count);
      std::memset(record(moved), 0, rig.record_bytes());
      // If all keys are zero, setting the last byte makes a record greater than its successor.
      if (trial % 2) record(moved)[rig.record_bytes() - 1] = std::byte{1};

      std::vector<std::pair<std::uint32_t, std::uint64_t>> offenders;
      for (std::uint64_t i = 1; i < segment.count; ++i)
        if (rig.less(record(i), record(i - 1)))
          offenders.emplace_back(segment.chunk->run, segment.chunk->first + segment.first + i);
      CAPTURE(schema, trial, moved);
      try {
        rig.backend().merge(unit, rig.output().bytes().data());
        CHECK(offenders.empty());
      } catch (const DeviceError&) {
        // The backend checks the order within segments only. An error between segments shows in
        // its output.
        CHECK(offenders.empty());
        CHECK((moved == 0 || moved + 1 == segment.count));
      } catch (const RunOutOfOrder& out_of_order) {
        REQUIRE_FALSE(offenders.empty());
        CHECK(out_of_order.run == offenders.front().first);
        CHECK(out_of_order.record == offenders.front().second);
      }
    }
    CHECK(rig.merges(random_runs(rig, random, 4, 600, 256), random));  // the backend still works
  }
}

TEST_CASE("the CUDA backend survives units that are not sorted at all",
          "[gpu][sanitize][disorder]") {
  Random random(10);
  for (const std::uint64_t k : {1u, 2u, 40u, 300u}) {
    Rig rig("a:u64,b:u64", "", {20'000, 2'000, 700});
    WorkUnit unit = rig.unit_of(random_runs(rig, random, k, 20'000 / k, 256), random);
    bool noisy = false;
    for (const Segment& segment : unit.segments) {
      noisy |= segment.count > 20;
      for (std::byte& byte : segment.chunk->buffer.bytes()) byte = static_cast<std::byte>(random());
    }
    REQUIRE(noisy);
    CHECK_THROWS_AS(rig.backend().merge(unit, rig.output().bytes().data()), RunOutOfOrder);
  }
}

TEST_CASE("one CUDA backend merges many units at once", "[gpu][sanitize]") {
  constexpr unsigned tokens = 3, callers = 8, units = 6;
  Rig rig("a:u16,b:u64,c:bytes3", "a", {5'000, 300, 1'000, tokens});
  Random random(11);
  std::vector<WorkUnit> work;
  std::vector<Bytes> expected;
  for (unsigned i = 0; i < units; ++i) {
    const auto runs = random_runs(rig, random, 1 + 5 * i, 5'000 / (1 + 5 * i), 4);
    work.push_back(rig.unit_of(runs, random));
    expected.push_back(rig.expected(runs));
  }
  std::atomic<unsigned> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned caller = 0; caller < callers; ++caller)
      threads.emplace_back([&, caller] {
        for (unsigned i = 0; i < 2 * units; ++i) {
          const unsigned which = (caller + i) % units;
          wrong += !rig.merges_to(work[which], expected[which]);
        }
      });
  }
  CHECK(wrong == 0);
}

TEST_CASE("the CUDA backend refuses what it cannot do", "[gpu][sanitize]") {
  const Schema schema = Schema::parse("a:bytes1048576");
  const KeyEncoding encoding(schema, {});
  CHECK_THROWS_AS(make_cuda_backend(0, {&encoding, 4096, 1, 1}), Error);  // over 4 GiB in a unit
  for (const int device : {-1, 1000}) {
    CHECK_FALSE(find_cuda_device(device).usable);
    CHECK(find_cuda_device(device).description.find(std::to_string(device)) != std::string::npos);
    CHECK_THROWS_AS(make_cuda_backend(device, {&encoding, 1, 1, 1}), Error);
  }
  const CudaDevice first = find_cuda_device(0);
  CHECK(first.usable);
  CHECK(make_cuda_backend(0, {&encoding, 1, 1, 1})->device() == first.description);
}

// Hidden by default: a measurement that needs the device for itself.
TEST_CASE("units in flight overlap", "[.][overlap]") {
  constexpr std::uint64_t records = 4u << 20, units = 64;
  constexpr unsigned tokens = 4;
  for (const std::uint64_t k : {16u, 256u}) {
    Rig rig("key:u64,value:u64", "key", {records, 1u << 16, 700, tokens});
    Random random(13);
    std::vector<Bytes> runs;
    for (std::uint64_t run = 0; run < k; ++run)
      runs.push_back(growing_run(random, records / k, below(random, 1'000), 1u << 20));
    const WorkUnit unit = rig.unit_of(runs, random);
    REQUIRE(rig.merges_to(unit, rig.expected(runs)));

    const auto bytes_per_second = [&](unsigned callers) {
      const auto start = std::chrono::steady_clock::now();
      {
        std::vector<std::jthread> threads;
        for (unsigned caller = 0; caller < callers; ++caller)
          threads.emplace_back([&] {
            for (std::uint64_t i = 0; i < units / callers; ++i)
              rig.backend().merge(unit, rig.output().bytes().data());
          });
      }
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      return static_cast<double>(units * records * 16) / seconds.count();
    };
    bytes_per_second(tokens);  // warm-up
    const double alone = bytes_per_second(1), together = bytes_per_second(tokens);
    std::printf("k=%3d, units of 64 MiB: one at a time %.1f GB/s, %u at once %.1f GB/s\n",
                static_cast<int>(k), alone * 1e-9, tokens, together * 1e-9);
    CHECK(together > 1.3 * alone);
  }
}

}  // namespace corank
