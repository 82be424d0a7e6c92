// Tests of set operations on runs against the standard library's set algorithms.
#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <string>

#include "corank/merge.hpp"
#include "format/fixed_format.hpp"
#include "ops/boundary_merge.hpp"
#include "ops/operator_chain.hpp"
#include "ops/unit_operators.hpp"
#include "support/catch.hpp"
#include "support/merge_case.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

using Records = std::vector<Bytes>;

Records records_of(const Schema& schema, const Bytes& bytes) {
  Records records;
  for (std::size_t at = 0; at < bytes.size(); at += schema.record_bytes)
    records.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                         bytes.begin() + static_cast<std::ptrdiff_t>(at + schema.record_bytes));
  return records;
}

Bytes bytes_of_records(const Records& records) {
  Bytes bytes;
  for (const Bytes& record : records) bytes.insert(bytes.end(), record.begin(), record.end());
  return bytes;
}

// Reference: folds the standard algorithm over the runs from left to right.
Bytes folded(
    const Schema& schema, const std::vector<KeyField>& keys, OnEqual operation,
    const std::vector<Bytes>& runs,
    const std::function<bool(const Bytes&)>& fulfils = [](const Bytes&) { return true; }) {
  const auto less = [&](const Bytes& a, const Bytes& b) {
    return reference_less(schema, keys, a.data(), b.data());
  };
  Records result;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    Records next = records_of(schema, runs[run]);
    std::erase_if(next, [&](const Bytes& record) { return !fulfils(record); });
    if (run == 0) {
      result = next;
      continue;
    }
    const Records before = std::exchange(result, {});
    const auto out = std::back_inserter(result);
    if (operation == OnEqual::unite)
      std::ranges::set_union(before, next, out, less);
    else if (operation == OnEqual::intersect)
      std::ranges::set_intersection(before, next, out, less);
    else
      std::ranges::set_difference(before, next, out, less);
  }
  return bytes_of_records(result);
}

struct SetCase : MergeCase {
  using MergeCase::MergeCase;

  Bytes expected() const {
    return folded(options.record, options.keys, options.query.on_equal, runs);
  }
  // Checks merges that cut the runs into different units, tiles and partitions.
  void check(const Bytes& expected, Random& random) {
    for (const BackendChoice backend : usable_backends()) {
      INFO("operation " << static_cast<int>(options.query.on_equal) << ", backend "
                        << static_cast<int>(backend) << ", runs " << runs.size());
      Options by = options;
      by.backend = backend;
      CHECK((merged(by) == expected));
      by.memory_bytes = 300 << 10;  // small units, and several passes for many runs
      by.threads = 1 + static_cast<unsigned>(below(random, 4));
      CHECK((merged(by) == expected));
      by.verify = false;
      by.io = Io::buffered;
      CHECK((merged(by) == expected));
      CHECK((merged_in_memory(by) == expected));
      CHECK((merged_into_parts(by, 3) == expected));
    }
  }
};

std::uint32_t last_number = 0;  // of the records that were made

// Returns records with a two-byte key of `keys` equally likely values, and a unique number.
Bytes numbered(std::uint64_t count, std::uint64_t keys, Random& random) {
  Bytes records;
  while (count-- > 0) {
    const auto key = static_cast<std::uint16_t>(below(random, keys));
    const auto add = [&](auto value) {
      const auto* const raw = reinterpret_cast<const std::byte*>(&value);
      records.insert(records.end(), raw, raw + sizeof value);
    };
    add(key);
    add(++last_number);
  }
  return records;
}

}  // namespace

TEST_CASE("set operations are those of the standard library") {
  Random random(7);
  for (int round = 0; round < 25; ++round) {
    const char* const key_choices[] = {"k", "k:desc", "p:desc,k", "p,f,k", "f:desc"};
    SetCase test("k:u16,p:bytes33,a:i32be,f:f32", key_choices[below(random, 5)]);
    const auto values = static_cast<Values>(below(random, 3));
    for (std::uint64_t run = 1 + below(random, 5); run-- > 0;)
      test.add_run(random_records(test.options.record, below(random, 2) * below(random, 2500),
                                  values, random));
    for (const OnEqual operation : set_operations) {
      test.options.query.on_equal = operation;
      test.check(test.expected(), random);
    }
  }
}

TEST_CASE("set operations tell the records of equal keys apart") {
  Random random(8);
  for (const std::uint64_t keys : {1, 3, 40, 1000, 60'000}) {
    for (const std::uint64_t runs : {2, 3, 12}) {
      SetCase test("k:u16,n:u32", "k");
      for (std::uint64_t run = 0; run < runs; ++run)
        test.add_run(numbered(1 + below(random, 40'000 / runs), keys, random));
      for (const OnEqual operation : set_operations) {
        test.options.query.on_equal = operation;
        test.check(test.expected(), random);
      }
    }
  }
}

TEST_CASE("set operations on records that are their keys") {
  Random random(9);
  SetCase test("k:u64", "k");
  for (int run = 0; run < 3; ++run)
    test.add_run(random_records(test.options.record, 9000, Values::few, random));
  for (const OnEqual operation : set_operations) {
    test.options.query.on_equal = operation;
    test.check(test.expected(), random);
  }
}

TEST_CASE("set operations on runs that are the same, disjoint or empty") {
  Random random(10);
  const Bytes some = numbered(5000, 500, random);
  Bytes others = numbered(5000, 500, random);
  for (std::size_t at = 0; at < others.size(); at += 6) others[at + 1] |= std::byte{0x80};
  for (const auto& runs : std::vector<std::vector<Bytes>>{{some, some},
                                                          {some, others},
                                                          {others, some, others},
                                                          {some, {}},
                                                          {{}, some},
                                                          {{}, {}}}) {
    SetCase test("k:u16,n:u32", "k");
    for (const Bytes& run : runs) test.add_run(run);
    for (const OnEqual operation : set_operations) {
      test.options.query.on_equal = operation;
      test.check(test.expected(), random);
    }
  }
}

TEST_CASE("set operations are filtered before and cut after") {
  Random random(11);
  for (const std::uint64_t keys : {2, 100, 20'000}) {
    SetCase test("k:u16,n:u32", "k");
    last_number = 0;
    for (int run = 0; run < 4; ++run) test.add_run(numbered(4000, keys, random));
    test.options.query.where = parse_where("n >= 9000 or n < 5000");
    const auto fulfils = [](const Bytes& record) {
      std::uint32_t found;
      std::memcpy(&found, &record[2], sizeof found);
      return found >= 9'000 || found < 5'000;
    };
    for (const OnEqual operation : set_operations) {
      test.options.query.on_equal = operation;
      const Bytes all =
          folded(test.options.record, test.options.keys, operation, test.runs, fulfils);
      test.check(all, random);
      Options by = test.options;
      by.query.limit = 1 + below(random, 1000);
      by.memory_bytes = 300 << 10;
      const Bytes cut(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                     all.size(), *by.query.limit * 6)));
      CHECK((test.merged(by) == cut));
      by.query.limit.reset();
      by.query.select = parse_select("n");
      Bytes numbers;
      for (std::size_t at = 0; at < all.size(); at += 6)
        numbers.insert(numbers.end(), all.begin() + static_cast<std::ptrdiff_t>(at + 2),
                       all.begin() + static_cast<std::ptrdiff_t>(at + 6));
      CHECK((test.merged(by) == numbers));
    }
  }
}

TEST_CASE("set operations on more runs than one pass merges") {
  Random random(12);
  for (const std::uint64_t keys : {5, 2000}) {
    SetCase test("k:u16,n:u32", "k");
    for (int run = 0; run < 40; ++run) test.add_run(numbered(keys == 5 ? 700 : 4000, keys, random));
    test.options.memory_bytes = 300 << 10;
    for (const OnEqual operation : set_operations) {
      test.options.query.on_equal = operation;
      CHECK((test.merged(test.options) == test.expected()));
      CHECK(test.stats.passes > 1);
      CHECK(test.stats.verified);
      CHECK((test.merged_into_parts(test.options, 3) == test.expected()));
    }
  }
}

TEST_CASE("set operations on more compressed runs than one pass merges") {
  Random random(15);
  SetCase test("k:u16,n:u32", "k");
  std::uint64_t records = 0;
  for (int run = 0; run < 30; ++run) {
    test.add_run(numbered(2000, 1000, random));
    records += 2000;
    const std::filesystem::path packed = test.paths.back().string() + ".gz";
    merge({&test.paths.back(), 1}, packed, test.options);
    test.paths.back() = packed;
  }
  test.options.memory_bytes = 2 << 20;
  for (const OnEqual operation : set_operations) {
    test.options.query.on_equal = operation;
    CHECK((test.merged(test.options) == test.expected()));
    CHECK(test.stats.passes > 1);
    CHECK(test.stats.records == records);
  }
}

TEST_CASE("set operations on units that were merged as a whole") {
  Random random(13);
  const Schema schema = Schema::parse("k:u16,n:u32,rest:bytes90");
  const std::vector<KeyField> keys = parse_keys("k", schema);
  const auto format = make_fixed_format(schema, keys);
  for (const std::uint64_t values : {1, 7, 5000}) {
    std::vector<Bytes> runs;
    for (int run = 0; run < 3; ++run) {
      const Bytes few =
          stably_sorted(Schema::parse("k:u16,n:u32"), keys,
                        numbered(20'000 - 4000 * static_cast<std::uint64_t>(run), values, random));
      Bytes records(few.size() / 6 * schema.record_bytes);
      for (std::size_t i = 0; i < few.size() / 6; ++i)
        std::copy_n(few.begin() + static_cast<std::ptrdiff_t>(6 * i), 6,
                    records.begin() + static_cast<std::ptrdiff_t>(i * schema.record_bytes));
      runs.push_back(records);
    }
    for (const OnEqual operation : set_operations) {
      // The run whose records are kept is merged last; see SetOperation.
      std::vector<Bytes> merged_runs = runs;
      if (operation != OnEqual::unite) std::ranges::rotate(merged_runs, merged_runs.begin() + 1);
      WorkUnit unit;
      Bytes all;
      for (std::uint32_t run = 0; run < merged_runs.size(); ++run) {
        const std::uint64_t count = merged_runs[run].size() / schema.record_bytes;
        auto chunk = std::make_shared<Chunk>();
        chunk->run = run;
        chunk->in_place = merged_runs[run].data();
        // A run may consist of several chunks.
        unit.segments.push_back({chunk, 0, count / 3});
        unit.segments.push_back({chunk, count / 3, count - count / 3});
        all.insert(all.end(), merged_runs[run].begin(), merged_runs[run].end());
      }
      all = stably_sorted(schema, keys, all);
      Query query;
      query.on_equal = operation;
      const OperatorChain shape(*format, schema, query, true, merged_runs.size());
      MergedUnit shaped = apply_to_unit(shape, unit, all, portable_fingerprint);
      BoundaryMerge joiner(shape, std::numeric_limits<std::uint64_t>::max(), nullptr);
      Bytes output;
      joiner.join(shaped);
      for (const auto piece : shaped.pieces)
        output.insert(output.end(), piece.begin(), piece.end());
      CHECK((output == folded(schema, keys, operation, runs)));
    }
  }
}

TEST_CASE("a run out of order is found by set operations") {
  Random random(14);
  SetCase test("k:u16,n:u32", "k");
  for (int run = 0; run < 3; ++run) test.add_run(numbered(3000, 1000, random));
  Bytes broken = test.runs[1];
  std::ranges::swap_ranges(std::span(broken).subspan(600, 6), std::span(broken).subspan(9000, 6));
  write_file(test.paths[1], broken);
  for (const OnEqual operation : set_operations) {
    test.options.query.on_equal = operation;
    try {
      test.merged(test.options);
      FAIL("the run is taken");
    } catch (const OutOfOrder& error) {
      CHECK(std::string(error.what()).starts_with(test.paths[1].string()));
    }
    CHECK_FALSE(std::filesystem::exists(test.folder / "output"));
  }
}
