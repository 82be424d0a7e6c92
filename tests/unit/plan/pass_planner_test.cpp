// Tests of the pass planner.
#include "plan/pass_planner.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"
#include "util/buffer_pool.hpp"

using namespace corank;
using namespace corank::test;

TEST_CASE("a plan stays within its budget and holds what the merge needs at once") {
  Random random(31);
  for (int round = 0; round < 20'000; ++round) {
    const std::uint64_t runs = 1 + (random() >> (44 + below(random, 20)));
    const auto record_bytes =
        static_cast<std::uint32_t>(1 + (random() >> (44 + below(random, 20))));
    const std::uint64_t memory_bytes = random() >> (28 + below(random, 30));
    const std::uint64_t merged_bytes = random() >> below(random, 64);
    const auto plan = plan_pass({runs, record_bytes, memory_bytes, merged_bytes});
    const unsigned tokens = 1 + static_cast<unsigned>(below(random, 16));
    const auto of_devices = plan_pass({.runs = runs,
                                       .record_bytes = record_bytes,
                                       .memory_bytes = memory_bytes,
                                       .merged_bytes = merged_bytes,
                                       .max_unit_bytes = max_cuda_unit_bytes,
                                       .tokens = tokens});
    if (of_devices) {
      REQUIRE(of_devices->tokens == tokens);
      REQUIRE(of_devices->chunks * of_devices->chunk_bytes + tokens * of_devices->unit_bytes <=
              memory_bytes);
    }
    const auto with_edges = plan_pass({.runs = runs,
                                       .record_bytes = record_bytes,
                                       .memory_bytes = memory_bytes,
                                       .merged_bytes = merged_bytes,
                                       .edge_bytes = 8192});
    if (with_edges) {
      REQUIRE(plan);
      REQUIRE(with_edges->chunks * with_edges->chunk_bytes +
                  with_edges->tokens * with_edges->unit_bytes <=
              memory_bytes);
      REQUIRE(with_edges->chunk_records * record_bytes + 8192 <= with_edges->chunk_bytes);
    }
    if (!plan) continue;
    INFO(runs << " runs, records of " << record_bytes << ", budget " << memory_bytes);
    REQUIRE(plan->chunks * plan->chunk_bytes + plan->tokens * plan->unit_bytes <= memory_bytes);
    REQUIRE(plan->chunk_records >= 1);
    REQUIRE(plan->chunk_records * record_bytes <= plan->chunk_bytes);
    REQUIRE(plan->unit_records >= 1);
    REQUIRE(plan->unit_records * record_bytes <= plan->unit_bytes);
    REQUIRE(plan->chunks >= 2 * runs + plan->read_ahead + 1);
    REQUIRE(plan->read_ahead >= 1);
    // A plan must also exist with more memory, and with one run fewer.
    REQUIRE(plan_pass({runs, record_bytes, memory_bytes + 4096}));
    if (runs > 1) REQUIRE(plan_pass({runs - 1, record_bytes, memory_bytes}));
  }
}

TEST_CASE("the first chunks of runs end one after another, at whole pages") {
  for (const std::uint32_t record_bytes : {1u, 16u, 100u, 4096u, 100'000u}) {
    for (const std::uint64_t runs : {1, 2, 256, 5000}) {
      const auto plan = plan_pass({runs, record_bytes, std::uint64_t{8} << 30});
      REQUIRE(plan);
      INFO(runs << " runs, records of " << record_bytes);
      const std::uint64_t whole = plan->chunk_records;
      CHECK(first_chunk_records(*plan, record_bytes, runs - 1, runs) == whole);
      std::uint64_t before = 0;
      for (std::uint64_t run = 0; run < runs; ++run) {
        const std::uint64_t records = first_chunk_records(*plan, record_bytes, run, runs);
        REQUIRE(records >= std::max<std::uint64_t>(before, 1));
        REQUIRE(records <= whole);
        REQUIRE((records == whole || records * record_bytes % page_bytes() == 0));
        before = records;
      }
      if (record_bytes == 16 && runs == 256) {
        CHECK(first_chunk_records(*plan, record_bytes, 0, runs) == page_bytes() / 16);
        CHECK(first_chunk_records(*plan, record_bytes, runs / 2 - 1, runs) == whole / 2);
      }
    }
  }
}

TEST_CASE("the widest pass and the smallest budget are exact") {
  for (const std::uint32_t record_bytes : {1u, 16u, 100u, 4096u, 100'000u}) {
    const std::uint64_t least = min_memory(record_bytes);
    CHECK(plan_pass({2, record_bytes, least}));
    CHECK(widest_pass(record_bytes, least) >= 2);
    CHECK(!plan_pass({2, record_bytes, least - 1024}));
    CHECK(widest_pass(record_bytes, least - 1024) == 0);
    for (const std::uint64_t memory_bytes : {least * 2, least * 20, least * 1000}) {
      const std::uint64_t widest = widest_pass(record_bytes, memory_bytes);
      CHECK(plan_pass({widest, record_bytes, memory_bytes}));
      CHECK(!plan_pass({widest + 1, record_bytes, memory_bytes}));
    }
  }
  CHECK(widest_pass(16, 512 << 20) >= 20'000);
}

TEST_CASE("earlier passes merge the cheapest neighbours and no more than needed") {
  CHECK(plan_intermediate_passes({5, 5, 5}, 3).empty());
  const auto one = plan_intermediate_passes({9, 1, 2, 9}, 3);
  REQUIRE(one.size() == 1);
  CHECK(one[0].first == 1);
  CHECK(one[0].count == 2);
  CHECK(one[0].records == 3);

  Random random(32);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> records(1 + below(random, 300));
    for (auto& count : records) count = below(random, 1000);
    const std::size_t widest = 2 + below(random, 20);
    std::uint64_t left = records.size();
    for (const IntermediatePass& pass : plan_intermediate_passes(records, widest)) {
      REQUIRE(left > widest);
      REQUIRE(pass.count >= 2);
      REQUIRE(pass.count <= widest);
      REQUIRE(pass.first + pass.count <= left);
      left -= pass.count - 1;
    }
    REQUIRE(left <= widest);
  }
}

TEST_CASE("runs in memory leave the chunks of runs in files large") {
  const PassNumbers files{.runs = 15, .record_bytes = 0, .memory_bytes = 40 << 20};
  PassNumbers mixed = files;
  mixed.in_memory_runs = 700;
  const auto alone = plan_pass(files), beside = plan_pass(mixed);
  REQUIRE(alone);
  REQUIRE(beside);
  CHECK(alone->in_memory_records == 0);
  CHECK(beside->in_memory_records != 0);
  CHECK(2 * beside->chunk_bytes >= alone->chunk_bytes);
  mixed.in_memory_runs = 7000;
  CHECK(!plan_pass(mixed));
}

TEST_CASE("units of lines grow with the runs, within the memory") {
  const auto unit_bytes = [](std::uint64_t runs, std::uint64_t memory_bytes) {
    return plan_pass_in_memory(runs, memory_bytes, std::uint64_t{4} << 30,
                               enough_unit_bytes(runs, 32 << 10, std::uint64_t{4} << 30))
        ->unit_bytes;
  };
  CHECK(unit_bytes(100, 1 << 30) < max_text_unit_bytes);
  CHECK(unit_bytes(4000, 1 << 30) > 4 * max_text_unit_bytes);
  CHECK(unit_bytes(4000, 1 << 30) < (1 << 30) / 10);
}
