// Tests of the CPU backend against std::stable_sort, and of parallel_for().
#include "backend/cpu_backend.hpp"

#include <tbb/parallel_for.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "corank/error.hpp"
#include "support/catch.hpp"
#include "util/parallel_for.hpp"

namespace corank {
namespace {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

// Holds sorted runs, the unit that merges them, and the expected output: a stable sort of their
// concatenation.
class Fixture {
 public:
  Fixture(const std::string& schema, const std::string& keys)
      : schema_(Schema::parse(schema)),
        encoding_(schema_, parse_keys(keys, schema_)),
        layout_(encoding_.layout()) {}

  std::uint32_t record_bytes() const { return layout_.record_bytes; }

  // Adds `records`, sorted, as run `run` in chunks of up to `chunk_records`. Each chunk holds a
  // record before and one after its segment; these are random and not part of the unit.
  void add_run(std::uint32_t run, Bytes records, std::uint64_t chunk_records) {
    records = sorted(records);
    const std::uint64_t count = records.size() / record_bytes();
    for (std::uint64_t first = 0; first < count; first += chunk_records) {
      const std::uint64_t in_chunk = std::min(chunk_records, count - first);
      Chunk chunk{};
      chunk.run = run;
      chunk.first = chunk.number = first;
      chunk.count = in_chunk + 2;
      pools_.push_back(std::make_unique<BufferPool>(
          round_up((in_chunk + 2) * record_bytes(), page_bytes()), 1, nullptr));
      chunk.buffer = pools_.back()->lease();
      std::byte* to = chunk.buffer.bytes().data();
      std::memset(to, first % 2 ? 0xff : 0, chunk.buffer.bytes().size());
      std::memcpy(to + record_bytes(), records.data() + first * record_bytes(),
                  in_chunk * record_bytes());
      segments_.push_back({std::make_shared<const Chunk>(std::move(chunk)), 1, in_chunk});
    }
    concatenated_.insert(concatenated_.end(), records.begin(), records.end());
  }

  WorkUnit unit() const { return {7, concatenated_.size() / record_bytes(), segments_}; }
  Bytes expected() const { return sorted(concatenated_); }
  std::byte* record(std::size_t segment, std::uint64_t index) {
    return segments_[segment].chunk->buffer.bytes().data() + (1 + index) * record_bytes();
  }
  const std::vector<Segment>& segments() const { return segments_; }
  bool less(const std::byte* a, const std::byte* b) const { return record_less(layout_, a, b); }

  std::unique_ptr<Backend> backend() const {
    return make_cpu_backend({&encoding_, concatenated_.size() / record_bytes(), 4, 2});
  }

  Bytes merged(Backend& backend) const {
    BufferPool pool(round_up(concatenated_.size() + 1, page_bytes()), 1, nullptr);
    const Buffer output = pool.lease();
    backend.merge(unit(), output.bytes().data());
    const std::byte* begin = output.bytes().data();
    return Bytes(begin, begin + concatenated_.size());
  }
  Bytes merged() const { return merged(*backend()); }

 private:
  Bytes sorted(const Bytes& records) const {
    std::vector<const std::byte*> order;
    for (std::size_t at = 0; at < records.size(); at += record_bytes())
      order.push_back(records.data() + at);
    std::stable_sort(order.begin(), order.end(), [this](const std::byte* a, const std::byte* b) {
      return record_less(layout_, a, b);
    });
    Bytes result;
    for (const std::byte* record : order)
      result.insert(result.end(), record, record + record_bytes());
    return result;
  }

  Schema schema_;
  KeyEncoding encoding_;
  KeyLayout layout_;
  std::vector<std::unique_ptr<BufferPool>> pools_;
  std::vector<Segment> segments_;
  Bytes concatenated_;
};

// Returns `count` records of bytes less than `values`; few values make many equal keys.
Bytes random_records(Random& random, std::uint64_t count, std::uint32_t record_bytes, int values) {
  std::uniform_int_distribution<int> byte(0, values - 1);
  Bytes records(count * record_bytes);
  for (std::byte& b : records) b = static_cast<std::byte>(byte(random));
  return records;
}

}  // namespace

TEST_CASE("the CPU backend merges all units of up to three small segments", "[cpu]") {
  // Every sorted run of one to four records over three keys; payloads are distinct.
  std::vector<std::string> runs;
  const auto extend = [&](auto&& self, const std::string& run) -> void {
    if (!run.empty()) runs.push_back(run);
    if (run.size() == 4) return;
    for (char key = run.empty() ? 'a' : run.back(); key <= 'c'; ++key) self(self, run + key);
  };
  extend(extend, "");
  REQUIRE(runs.size() == 34);

  std::uint64_t wrong = 0;
  const auto check = [&](std::initializer_list<std::size_t> chosen) {
    Fixture fixture("key:u8,id:u8", "key");
    std::uint8_t id = 0;
    for (std::size_t run : chosen) {
      Bytes records;
      for (char key : runs[run]) {
        records.push_back(static_cast<std::byte>(key));
        records.push_back(std::byte{id++});
      }
      fixture.add_run(id, records, 4);
    }
    wrong += fixture.merged() != fixture.expected();
  };
  for (std::size_t a = 0; a < runs.size(); ++a) {
    check({a});
    for (std::size_t b = 0; b < runs.size(); ++b) {
      check({a, b});
      for (std::size_t c = 0; c < runs.size(); ++c) check({a, b, c});
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("the CPU backend merges records of every kind", "[cpu]") {
  struct Kind {
    std::string schema, keys;
  };
  const Kind kinds[] = {
      {"a:u8", ""},
      {"a:u16be,b:bytes1", "a:desc"},
      {"a:f32,b:u32", "a"},
      {"a:u64", "a:desc"},
      {"a:u64,b:u64", ""},
      {"a:u64,b:i64be", "b"},
      {"a:i64,b:bytes5", "a:desc"},
      {"a:f64,b:u64", "a,b:desc"},
      {"a:u32,b:u64,c:i16be", "c,a:desc,b"},
      {"a:bytes10,b:bytes90", ""},
      {"a:bytes20,b:u32,c:f64", "c,b,a"},
      {"a:bytes33", ""},
      {"a:bytes70,b:u64", "a,b:desc"},
      {"a:bytes9,b:u64,c:bytes61", "c:desc,b"},
      {"a:bytes1000", ""},
      {"a:bytes4096", ""},
  };
  Random random(1);
  for (const Kind& kind : kinds) {
    for (const int values : {1, 2, 256}) {
      for (const std::size_t k : {1u, 2u, 3u, 17u, 130u}) {
        CAPTURE(kind.schema, kind.keys, values, k);
        Fixture fixture(kind.schema, kind.keys);
        const std::uint64_t most = 200'000 / fixture.record_bytes() / k + 3;
        for (std::uint32_t run = 0; run < k; ++run)
          fixture.add_run(
              run, random_records(random, random() % most + 1, fixture.record_bytes(), values),
              random() % most + 1);
        CHECK(fixture.merged() == fixture.expected());
      }
    }
  }
}

TEST_CASE("the CPU backend merges large, wide, skewed and disjoint units", "[cpu]") {
  Random random(2);
  Fixture fixture("key:u64,id:u64", "key");
  std::uint64_t id = 0;
  const auto add = [&](std::uint32_t run, std::uint64_t count, std::uint64_t low,
                       std::uint64_t range, std::uint64_t chunk_records) {
    std::vector<std::uint64_t> records;
    for (std::uint64_t i = 0; i < count; ++i) {
      records.push_back(low + random() % range);
      records.push_back(id++);
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(records.data());
    fixture.add_run(run, Bytes(bytes, bytes + 16 * count), chunk_records);
  };

  SECTION("one segment") {
    add(0, 300'000, 0, ~0ull, 300'000);
  }
  SECTION("several segments of one run") {
    add(0, 300'000, 0, 1000, 77'777);
  }
  SECTION("two runs, one of them tiny") {
    add(0, 1, 500, 1, 1);
    add(1, 300'000, 0, 1000, 300'000);
  }
  SECTION("disjoint runs") {
    for (std::uint32_t run = 0; run < 30; ++run) add(run, 10'000, (30 - run) * 1000, 999, 10'000);
  }
  SECTION("equal keys, the greatest there is") {
    for (std::uint32_t run = 0; run < 30; ++run) add(run, 10'000, ~0ull, 1, 3'000);
  }
  SECTION("few and extreme keys") {
    for (std::uint32_t run = 0; run < 30; ++run) add(run, 10'000, ~0ull - 2, 5, 3'000);
  }
  SECTION("3,000 segments of very different lengths") {
    for (std::uint32_t run = 0; run < 3'000; ++run)
      add(run, 1 + (random() % 64 == 0 ? random() % 8'000 : random() % 50), 0, ~0ull, 5'000);
  }
  CHECK(fixture.merged() == fixture.expected());
}

TEST_CASE("the CPU backend merges records of 1 MiB", "[cpu]") {
  Random random(3);
  Fixture fixture("a:bytes7,b:bytes1048569", "b:desc,a");
  for (std::uint32_t run = 0; run < 5; ++run)
    fixture.add_run(run, random_records(random, 2, fixture.record_bytes(), run == 2 ? 2 : 1), 2);
  CHECK(fixture.merged() == fixture.expected());
}

TEST_CASE("the CPU backend finds the record that is out of order", "[cpu]") {
  struct Kind {
    std::string schema, keys;
  };
  const Kind kinds[] = {{"a:u64be,b:u64", ""},   // one word
                        {"a:bytes16", ""},       // two
                        {"a:bytes25", ""},       // four
                        {"a:bytes39,b:u8", ""},  // four; keys differ in the tail only
                        {"a:u32,b:bytes12", "b"}};
  Random random(4);
  for (const Kind& kind : kinds) {
    for (int trial = 0; trial < 40; ++trial) {
      Fixture fixture(kind.schema, kind.keys);
      const std::uint64_t most = trial % 8 == 0 ? 100'000 : 2'000;
      const std::uint32_t k = 1 + static_cast<std::uint32_t>(random() % 4);
      for (std::uint32_t run = 0; run < k; ++run) {
        // All bytes are zero, except two at the end of the key.
        Bytes records = random_records(random, most / k + 2, fixture.record_bytes(), 1);
        for (std::size_t at = 0; at < records.size(); at += fixture.record_bytes())
          for (std::size_t b = 6; b < 8; ++b)
            records[at + (kind.schema.find("u64be") != std::string::npos
                              ? b
                              : fixture.record_bytes() - 10 + b)] =
                static_cast<std::byte>(random());
        fixture.add_run(run, records, most);
      }
      const std::size_t s = random() % fixture.segments().size();
      const Segment& segment = fixture.segments()[s];
      // Swaps a record with its successor if their keys differ.
      std::uint64_t at = trial % 2 ? random() % (segment.count - 1) : (random() % 3 + 1) * 32'768;
      at = std::min(at, segment.count - 2);
      const std::uint64_t first = at;
      while (at + 2 < segment.count &&
             !fixture.less(fixture.record(s, at), fixture.record(s, at + 1)))
        ++at;
      if (!fixture.less(fixture.record(s, at), fixture.record(s, at + 1))) continue;
      CAPTURE(kind.schema, trial, first, at);
      std::swap_ranges(fixture.record(s, at), fixture.record(s, at + 1), fixture.record(s, at + 1));
      std::uint32_t run = ~0u;
      std::uint64_t record = ~0ull;
      try {
        fixture.merged();
      } catch (const RunOutOfOrder& out_of_order) {
        run = out_of_order.run;
        record = out_of_order.record;
      }
      CHECK(run == segment.chunk->run);
      // The reported record follows the one that was moved up.
      CHECK(record == segment.chunk->first + 1 + at + 1);
    }
  }
}

TEST_CASE("the CPU backend survives units that are not sorted at all", "[cpu]") {
  Random random(5);
  for (const std::size_t k : {1u, 2u, 40u, 700u}) {
    Fixture fixture("a:u64,b:u64", "");
    for (std::uint32_t run = 0; run < k; ++run)
      fixture.add_run(run, random_records(random, 200'000 / k, fixture.record_bytes(), 256),
                      200'000);
    for (std::size_t s = 0; s < k; ++s) {
      const Bytes noise =
          random_records(random, fixture.segments()[s].count, fixture.record_bytes(), 256);
      std::memcpy(fixture.record(s, 0), noise.data(), noise.size());
    }
    CHECK_THROWS_AS(fixture.merged(), RunOutOfOrder);
  }
}

TEST_CASE("one CPU backend merges many units at once", "[cpu]") {
  Random random(6);
  Fixture fixture("a:u16,b:u64", "");
  for (std::uint32_t run = 0; run < 20; ++run)
    fixture.add_run(run, random_records(random, 5'000, fixture.record_bytes(), 256), 700);
  const auto backend = fixture.backend();
  const Bytes expected = fixture.expected();
  std::vector<std::uint8_t> equal(16);
  tbb::parallel_for(0, 16, [&](int i) {
    BufferPool pool(round_up(expected.size(), page_bytes()), 1, nullptr);
    const Buffer output = pool.lease();
    backend->merge(fixture.unit(), output.bytes().data());
    equal[static_cast<std::size_t>(i)] =
        std::memcmp(output.bytes().data(), expected.data(), expected.size()) == 0;
  });
  CHECK(equal == std::vector<std::uint8_t>(16, 1));
}

TEST_CASE("the CPU backend tells runs apart that lie end to end in memory", "[cpu]") {
  // The chunks of a run are adjacent in memory as well.
  constexpr std::uint64_t records = 3'000, chunk_records = 700, record_bytes = 16;
  Random random(9);
  Fixture fixture("a:u64,b:u64", "");
  for (std::uint32_t run = 0; run < 3; ++run)
    fixture.add_run(run, random_records(random, records, record_bytes, 3), records);
  Bytes memory;
  WorkUnit unit = fixture.unit();
  for (std::uint32_t run = 0; run < 3; ++run)
    memory.insert(memory.end(), fixture.record(run, 0), fixture.record(run, records));
  unit.segments.clear();
  for (std::uint32_t run = 0; run < 3; ++run)
    for (std::uint64_t first = 0; first < records; first += chunk_records) {
      Chunk chunk{};
      chunk.run = run;
      chunk.first = chunk.number = first;
      chunk.count = std::min(chunk_records, records - first);
      chunk.in_place = memory.data() + (run * records + first) * record_bytes;
      const std::uint64_t count = chunk.count;
      unit.segments.push_back({std::make_shared<const Chunk>(std::move(chunk)), 0, count});
    }
  Bytes output(memory.size());
  fixture.backend()->merge(unit, output.data());
  CHECK(output == fixture.expected());
}

TEST_CASE("the CPU backend says what it runs on", "[cpu]") {
  Fixture fixture("a:u8", "");
  CHECK(fixture.backend()->device().substr(0, 11) == "2 threads, ");
}

}  // namespace corank

TEST_CASE("loops are whole where the tasks around them are cancelled") {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::atomic<int> done = 0;
    tbb::task_group_context failed;
    tbb::parallel_for(
        0, 1,
        [&](int) {
          failed.cancel_group_execution();
          corank::parallel_for(0, 1'000, [&](std::uint64_t) { ++done; });
        },
        failed);
    CHECK(done == 1'000);
  }
  const auto throws = [] {
    corank::parallel_for(0, 1'000, [](std::uint64_t i) {
      if (i == 700) throw corank::Corrupted("one of them");
    });
  };
  CHECK_THROWS_AS(throws(), corank::Corrupted);
}
