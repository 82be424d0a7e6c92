// Tests of merges on a fake device that fails on command, for machines without a GPU. This program
// links the fake instead of kernels/.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

#include "backend/cpu_backend.hpp"
#include "corank/merge.hpp"
#include "corank/sort.hpp"
#include "format/key_order.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "kernels/backend/link.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "verify/fingerprint.hpp"

using namespace corank;
using namespace corank::test;

namespace {

enum Call { make, pin_pool, pin_run, merge_unit, sort_unit, calls };
constexpr int fake_devices = 3;

struct Fake {
  // Index of the failing call; negative: none.
  std::int64_t calls_before[calls] = {-1, -1, -1, -1, -1};
  bool out_of_memory = false;
  bool lasting = false;                    // all later calls fail as well
  std::optional<int> failing_device = {};  // whose calls count; without a value, all devices' do
  std::uint64_t memory_records = ~0ull;    // limit for all units in flight
  std::uint64_t sorted_at_once = 0;        // see max_sorted_at_once()
  // Damages a unit after the device has verified its input and before it verifies its output.
  std::function<void(const WorkUnit&, std::span<std::byte>)> harm;
  std::function<void(std::span<std::byte>)> harm_sorted;  // likewise, a unit that was unsorted

  std::atomic<std::int64_t> seen[calls] = {};
  std::atomic<std::int64_t> units_of[fake_devices] = {};
  std::atomic<bool> lost = false;
  std::atomic<std::uint64_t> max_unit = 0;

  void call(Call kind, int device) {
    if (kind == merge_unit || kind == sort_unit) ++units_of[device];
    if (failing_device && device != *failing_device) return;
    const std::int64_t number = seen[kind]++;
    if (!lost && number != calls_before[kind]) return;
    lost = lasting;
    throw DeviceError("fake: a call failed", out_of_memory);
  }
};
Fake* fake = nullptr;

class FakeDevice final : public Backend {
 public:
  FakeDevice(int device, const BackendConfig& config)
      : device_(device),
        encoding_(*config.encoding),
        verify_(config.verify && !encoding_.layout().text && !config.operators),
        inner_(make_cpu_backend(config)) {
    fake->call(make, device_);
    if (config.unit_records * config.tokens > fake->memory_records)
      throw DeviceError("fake: out of memory", true);
    fake->max_unit = config.unit_records;
  }

  MergedUnit merge(const WorkUnit& unit, std::byte* output) override {
    // A failing unit leaves arbitrary bytes.
    const std::span merged(output, unit.bytes);
    std::memset(output, 0x5a, merged.size());
    fake->call(merge_unit, device_);
    MergedUnit result = inner_->merge(unit, output);
    if (!verify_) return result;
    UnitProof proof{};
    for (const Segment& segment : unit.segments)
      if (!segment.chunk->fingerprint)
        proof.read += portable_fingerprint(
            {segment.chunk->records() + segment.first * encoding_.record_bytes(),
             segment.count * encoding_.record_bytes()},
            encoding_.record_bytes());
    if (fake->harm) fake->harm(unit, merged);
    proof.last_offset = merged.size() - encoding_.record_bytes();
    proof.written = portable_fingerprint(merged, encoding_.record_bytes());
    if (first_descent(encoding_.layout(), output, unit.records) != unit.records)
      throw DeviceError("fake: out of order", false);
    result.proof = proof;
    return result;
  }
  std::optional<std::uint64_t> sort(const WorkUnit& unit, std::byte* output) override {
    const std::span sorted(output, unit.bytes);
    Bytes given;
    for (const Segment& segment : unit.segments) {
      const std::byte* const first =
          segment.chunk->records() + segment.first * encoding_.record_bytes();
      given.insert(given.end(), first, first + segment.count * encoding_.record_bytes());
    }
    fake->call(sort_unit, device_);
    std::vector<const std::byte*> records;
    for (std::size_t at = 0; at < given.size(); at += encoding_.record_bytes())
      records.push_back(&given[at]);
    std::ranges::stable_sort(records, [&](const std::byte* a, const std::byte* b) {
      return record_less(encoding_.layout(), a, b);
    });
    for (const std::byte* record : records)
      output = std::copy_n(record, encoding_.record_bytes(), output);
    const auto sum = [&] { return portable_fingerprint(sorted, encoding_.record_bytes()); };
    const std::uint64_t read = sum();
    if (fake->harm_sorted) fake->harm_sorted(sorted);
    if (!unit.segments.front().chunk->fingerprint && sum() != read)
      throw DeviceError("fake: other records", false);
    return sum();
  }
  bool verifies() const override { return verify_; }
  PinMemory pin_memory() override {
    return [this](std::span<std::byte>) -> std::shared_ptr<void> {
      fake->call(pin_pool, device_);
      return nullptr;
    };
  }
  std::shared_ptr<void> pin(std::span<const std::byte>, bool) override {
    fake->call(pin_run, device_);
    return nullptr;
  }
  std::string device() const override { return "fake"; }

 private:
  int device_;
  const KeyEncoding& encoding_;
  bool verify_;
  std::unique_ptr<Backend> inner_;
};

// Holds runs and the expected output of their merge.
struct Data {
  Schema schema = Schema::parse("a:u32,p:bytes20");
  TemporaryFolder folder;
  std::vector<Bytes> runs;
  std::vector<std::filesystem::path> paths;
  Bytes expected;
  std::vector<std::filesystem::path> line_paths;
  Bytes expected_lines;
  Options options;

  Data() {
    Random random(51);
    Bytes all;
    for (int run = 0; run < 6; ++run) {
      runs.push_back(stably_sorted(
          schema, {{0}}, random_records(schema, 5'000, run ? Values::any : Values::few, random)));
      paths.push_back(folder / ("run" + std::to_string(run)));
      write_file(paths.back(), runs.back());
      all.insert(all.end(), runs.back().begin(), runs.back().end());
    }
    expected = stably_sorted(schema, {{0}}, all);
    options.record = schema;
    options.backend = BackendChoice::cuda;
    options.memory_bytes = 700 << 10;
    options.overwrite = true;
    options.threads = 2;
    make_lines(random);
  }

  void make_lines(Random& random) {
    std::vector<std::string> all;
    const auto bytes_of = [](std::vector<std::string>& lines) {
      std::ranges::sort(lines);
      Bytes bytes;
      for (const std::string& line : lines) {
        const auto more = std::as_bytes(std::span(line));
        bytes.insert(bytes.end(), more.begin(), more.end());
      }
      return bytes;
    };
    for (int run = 0; run < 4; ++run) {
      std::vector<std::string> lines(8'000);
      for (std::string& line : lines)
        line = std::to_string(random()).substr(below(random, 12)) + '\n';
      all.insert(all.end(), lines.begin(), lines.end());
      line_paths.push_back(folder / ("lines" + std::to_string(run)));
      write_file(line_paths.back(), bytes_of(lines));
    }
    expected_lines = bytes_of(all);
  }

  Stats into_file(Fake& wanted) {
    fake = &wanted;
    const Stats stats = merge(paths, folder / "output", options);
    CHECK((read_file(folder / "output") == expected));
    return stats;
  }
  Stats of_lines(Fake& wanted) {
    fake = &wanted;
    Options of_text = options;
    of_text.text.emplace();
    of_text.memory_bytes = 2 << 20;
    const Stats stats = merge(line_paths, folder / "output", of_text);
    CHECK((read_file(folder / "output") == expected_lines));
    return stats;
  }
  Stats of_first(Fake& wanted) {
    fake = &wanted;
    Options shaped = options;
    shaped.query.on_equal = OnEqual::first;
    const Stats stats = merge(paths, folder / "output", shaped);
    Bytes firsts;
    for (std::size_t at = 0; at < expected.size(); at += 24)
      if (at == 0 || std::memcmp(&expected[at], &expected[at - 24], 4) != 0)
        firsts.insert(firsts.end(), &expected[at], &expected[at] + 24);
    CHECK((read_file(folder / "output") == firsts));
    return stats;
  }
  Stats into_memory(Fake& wanted) {
    fake = &wanted;
    const std::vector<std::span<const std::byte>> spans(runs.begin(), runs.end());
    Bytes output(expected.size());
    const Stats stats = merge(spans, output, options);
    CHECK((output == expected));
    return stats;
  }
  Stats sorted(Fake& wanted) {
    fake = &wanted;
    Options of_sort = options;
    of_sort.memory_bytes = 16 << 20;
    const TemporaryFolder unsorted;
    std::vector<std::filesystem::path> inputs;
    Bytes all;
    for (const std::size_t half : {0, 1}) {
      Bytes bytes;
      for (std::size_t run = half; run < runs.size(); run += 2)
        bytes.insert(bytes.end(), runs[run].begin(), runs[run].end());
      inputs.push_back(unsorted / std::to_string(half));
      write_file(inputs.back(), bytes);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    const Stats stats = sort(inputs, unsorted / "output", of_sort);
    CHECK((read_file(unsorted / "output") == stably_sorted(schema, {{0}}, all)));
    return stats;
  }
  Stats into_parts(Fake& wanted) {
    fake = &wanted;
    Options of_parts = options;
    of_parts.parts = 2;
    const TemporaryFolder parts;
    const Stats stats = merge(paths, parts.path(), of_parts);
    Bytes all = read_file(parts / "part-00000"), rest = read_file(parts / "part-00001");
    all.insert(all.end(), rest.begin(), rest.end());
    CHECK((all == expected));
    return stats;
  }
};

}  // namespace

namespace corank {

bool built_with_cuda() {
  return true;
}
int count_cuda_devices() {
  return fake_devices;
}
std::uint64_t max_sorted_at_once(int, const KeyEncoding&) {
  return fake->sorted_at_once;
}
CudaDevice find_cuda_device(int device) {
  return {device < fake_devices, "fake"};
}
std::unique_ptr<Backend> make_cuda_backend(int device, const BackendConfig& config) {
  return std::make_unique<FakeDevice>(device, config);
}
LinkRates measure_link(const std::vector<int>&) {
  throw Error("fake");
}

}  // namespace corank

TEST_CASE("whatever a device fails at, the output is the same") {
  Data data;
  using Way = Stats (Data::*)(Fake&);
  for (const Way way : {&Data::into_file, &Data::into_memory, &Data::into_parts, &Data::of_first,
                        &Data::of_lines, &Data::sorted})
    for (int call = 0; call < calls; ++call)
      for (const bool out_of_memory : {false, true})
        for (const bool lasting : {false, true})
          for (std::int64_t number = 0;; number += 1 + (exhaustive_step > 1 ? number / 4 : 0)) {
            Fake wanted;
            wanted.calls_before[call] = number;
            wanted.out_of_memory = out_of_memory;
            wanted.lasting = lasting;
            CAPTURE(call, number, out_of_memory, lasting);
            const Stats stats = (data.*way)(wanted);
            if (wanted.seen[call] <= number) {  // the failing call was never made
              CHECK(stats.device_fault.empty());
              CHECK(stats.units_redone_on_cpu == 0);
              const bool sorts = way == &Data::sorted;
              const bool made = call == make || call == merge_unit ||
                                (call == sort_unit && sorts) ||
                                (call == pin_run && (sorts || way == &Data::into_memory)) ||
                                (call == pin_pool && way != &Data::into_memory);
              CHECK((number > 0 || !made));
              break;
            }
            CHECK_FALSE(stats.device_fault.empty());
            CHECK(stats.verified);
            const bool redone = call == merge_unit || call == sort_unit;
            if (redone && out_of_memory && !lasting) CHECK(stats.units_redone_on_cpu == 1);
            if (redone) CHECK(stats.units_redone_on_cpu > 0);
            if (call == make && !out_of_memory) CHECK(stats.backend == "cpu");
          }
}

TEST_CASE("a device that failed gets no more units unless it was short of memory") {
  Data data;
  Fake clean;
  const auto units = static_cast<std::int64_t>(data.into_file(clean).units);
  REQUIRE(units > 5);
  for (const bool out_of_memory : {false, true}) {
    Fake wanted;
    wanted.calls_before[merge_unit] = 1;
    wanted.out_of_memory = out_of_memory;
    const Stats stats = data.into_file(wanted);
    CHECK(stats.backend == "cuda");
    if (out_of_memory)
      CHECK(wanted.seen[merge_unit] == units);
    else
      CHECK(wanted.seen[merge_unit] < units);
  }
}

TEST_CASE("devices share the units, and one that fails leaves its units to the others") {
  Data data;
  data.options.devices = {2, 0, 2};
  Fake clean;
  const auto units = static_cast<std::int64_t>(data.into_file(clean).units);
  REQUIRE(units > 6);
  CHECK(clean.units_of[0] > 0);
  CHECK(clean.units_of[1] == 0);
  CHECK(clean.units_of[2] > 0);
  CHECK(clean.units_of[0] + clean.units_of[2] == units);
  for (const Call call : {make, merge_unit}) {
    Fake wanted;
    wanted.failing_device = 2;
    wanted.calls_before[call] = call == make ? 0 : 1;
    const Stats stats = data.into_file(wanted);
    CHECK(stats.backend == "cuda");
    CHECK(stats.units_redone_on_cpu == 0);
    CHECK_FALSE(stats.device_fault.empty());
    CHECK(wanted.units_of[2] < clean.units_of[2]);
    CHECK(wanted.units_of[0] >= units - wanted.units_of[2]);
  }
  for (Stats (Data::*way)(Fake&) : {&Data::into_memory, &Data::into_parts, &Data::of_lines}) {
    Fake wanted;
    const Stats stats = (data.*way)(wanted);
    CHECK(stats.device_fault.empty());
    CHECK(wanted.units_of[0] > 0);
    CHECK(wanted.units_of[2] > 0);
  }
}

TEST_CASE("parts share the devices out, and an empty list names all of them") {
  Data data;
  data.options.devices = {};
  Fake clean;
  data.into_parts(clean);
  for (const auto& units : clean.units_of) CHECK(units > 0);
  Fake wanted;
  wanted.failing_device = 1;
  wanted.calls_before[make] = 0;
  data.into_parts(wanted);
  CHECK(wanted.units_of[0] > 0);
  CHECK(wanted.units_of[1] == 0);
  CHECK(wanted.units_of[2] > 0);
  data.options.devices = {0, fake_devices};
  fake = &clean;
  CHECK_THROWS_AS(merge(data.paths, data.folder / "output", data.options), Error);
}

TEST_CASE("a device with too little memory gets smaller units and then fewer at once") {
  Data data;
  data.options.memory_bytes = 256 << 20;
  Fake clean;
  data.into_file(clean);
  const std::uint64_t whole = clean.max_unit;
  std::string told;
  data.options.notice = [&](const Message& warning) { told = warning.text(); };
  for (std::uint64_t records = 4 * whole; records > 0; records /= 3) {
    Fake wanted;
    wanted.memory_records = records;
    const Stats stats = data.into_file(wanted);
    CAPTURE(records);
    CHECK(stats.device_fault.empty() == (records >= 4 * whole));
    CHECK(told.empty() == stats.device_fault.empty());
    // The smallest unit that runs on a device has 1 MiB.
    const std::uint64_t least = (std::uint64_t{1} << 20) / data.schema.record_bytes;
    if (records > least) CHECK(stats.backend == "cuda");
    if (records < least / 2) CHECK(stats.backend == "cpu");
    CHECK(stats.units_redone_on_cpu == 0);
  }
  CHECK(told.find("memory") != std::string::npos);
}

TEST_CASE("a device that must not fail ends the merge and leaves the output alone") {
  Data data;
  Fake clean;
  data.into_file(clean);
  data.options.strict_backend = true;
  for (const Call call : {make, pin_pool, merge_unit}) {
    Fake wanted;
    wanted.calls_before[call] = 0;
    wanted.out_of_memory = true;
    fake = &wanted;
    CHECK_THROWS_WITH(merge(data.paths, data.folder / "output", data.options),
                      "fake: a call failed; Options::backend = cpu needs no GPU");
    CHECK((read_file(data.folder / "output") == data.expected));
    CHECK(data.folder.names().size() == data.paths.size() + data.line_paths.size() + 1);
  }
}

TEST_CASE("disorder is no failure of the device") {
  Data data;
  std::swap_ranges(&data.runs[3][24], &data.runs[3][48], &data.runs[3][24 * 2'000]);
  write_file(data.paths[3], data.runs[3]);
  Fake clean;
  fake = &clean;
  CHECK_THROWS_AS(merge(data.paths, data.folder / "output", data.options), OutOfOrder);
}

TEST_CASE("what a device has sorted is held against all that was read") {
  Data data;
  Fake clean;
  CHECK(data.sorted(clean).units_redone_on_cpu == 0);
  CHECK(clean.seen[sort_unit] > 3);
  Fake harmful;
  harmful.harm_sorted = [](std::span<std::byte> records) { records.back() ^= std::byte{1}; };
  CHECK(data.sorted(harmful).units_redone_on_cpu > 0);
}

TEST_CASE("a device that holds all records in memory sorts them where they are") {
  Data data;
  data.options.memory_bytes = 16 << 20;
  Bytes all;
  for (const Bytes& run : data.runs) all.insert(all.end(), run.begin(), run.end());
  const auto sorted = [&](Fake& wanted) {
    fake = &wanted;
    Bytes records = all;
    const Stats stats = sort(records, data.options);
    CHECK((records == data.expected));
    CHECK(stats.records == records.size() / 24);
    CHECK(stats.records_written == stats.records);
    return stats;
  };
  Fake large;
  large.sorted_at_once = all.size() / 24;
  const Stats stats = sorted(large);
  CHECK(stats.units == 1);
  CHECK(stats.backend == "cuda");
  CHECK(stats.device == "fake");
  CHECK(large.seen[sort_unit] == 1);
  CHECK(large.seen[merge_unit] == 0);

  Fake small;
  small.sorted_at_once = all.size() / 24 - 1;
  sorted(small);
  CHECK(small.seen[merge_unit] > 0);

  for (const Call call : {make, pin_run, sort_unit})
    for (const bool lasting : {false, true}) {
      CAPTURE(call, lasting);
      Fake failing;
      failing.sorted_at_once = large.sorted_at_once;
      failing.calls_before[call] = 0;
      failing.lasting = lasting;
      CHECK(sorted(failing).device_fault == "fake: a call failed");
    }
}

TEST_CASE("the CPU forms runs of sorts that leave records out or have little memory") {
  Data data;
  Fake wanted;
  data.options.query.where = parse_where("a >= 0");
  data.sorted(wanted);
  CHECK(wanted.seen[sort_unit] == 0);
  CHECK(wanted.seen[merge_unit] > 0);
  data.options.query = {};
  fake = &wanted;
  data.options.memory_bytes = 8 << 20;
  sort(data.paths, data.folder / "output", data.options);
  CHECK((read_file(data.folder / "output") == data.expected));
  CHECK(wanted.seen[sort_unit] == 0);
  const auto sorts_on = [&](const std::string& backend) {
    const std::string text = explain_sort(data.paths, data.folder / "output", data.options);
    return text.find("  sort       " + backend + ", blocks of") != std::string::npos;
  };
  CHECK(sorts_on("cpu"));
  data.options.memory_bytes = 16 << 20;
  CHECK(sorts_on("cuda"));
}

TEST_CASE("what a device finds of its units is held against all that was read") {
  Data data;
  Fake clean;
  for (const bool in_memory : {true, false}) {
    const Stats stats = in_memory ? data.into_memory(clean) : data.into_file(clean);
    CHECK(stats.verified);
    CHECK(stats.busy.verify == 0);
    const auto said_of = [&](auto harm) -> std::string {
      Fake wanted;
      wanted.harm = harm;
      try {
        in_memory ? data.into_memory(wanted) : data.into_file(wanted);
      } catch (const Corrupted& found) {
        return found.what();
      }
      return "";
    };
    const std::uint64_t last = stats.units - 1;
    std::string said = said_of([&](const WorkUnit& unit, std::span<std::byte> records) {
      if (unit.sequence == last) records.back() ^= std::byte{1};
    });
    CHECK(said.find("are not those that were read") != std::string::npos);

    // Moves the first record after one with a greater key.
    Fake disordered;
    disordered.harm = [](const WorkUnit& unit, std::span<std::byte> records) {
      if (unit.sequence != 1) return;
      std::size_t at = 24;
      while (std::memcmp(&records[0], &records[at], 4) == 0) at += 24;
      std::swap_ranges(&records[0], &records[24], &records[at]);
    };
    const Stats again = in_memory ? data.into_memory(disordered) : data.into_file(disordered);
    CHECK(again.units_redone_on_cpu != 0);
    // The host checks the order between units.
    std::uint64_t rank = 0;
    said = said_of([&](const WorkUnit& unit, std::span<std::byte> records) {
      if (unit.sequence != 0) return;
      std::memset(&records[records.size() - 24], 0xff, 4);
      rank = unit.records;
    });
    CHECK(said.find("record at byte " + std::to_string(24 * rank) +
                    " of the output does not follow") != std::string::npos);
  }
}
