// Fuzzes the merge of fixed records in many formats, on the CPU backend and on a CUDA device if
// there is one. Work units cut by co-rank must merge as std::stable_sort orders the decoded fields.
// A run out of order must be reported with its position.
#include <algorithm>
#include <memory>
#include <vector>

#include "backend/cpu_backend.hpp"
#include "fuzz/target.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "run/rank_search.hpp"
#include "support/support.hpp"

using namespace corank;

namespace {

constexpr std::uint64_t max_records = 1024;
constexpr std::uint64_t max_record_bytes = 128;

// Holds a schema and the backends made for it.
struct Format {
  Format(const char* fields, const char* by)
      : schema(Schema::parse(fields)), keys(parse_keys(by, schema)), encoding(schema, keys) {
    static const bool has_device = find_cuda_device(0).usable;
    const BackendConfig config{&encoding, max_records, 1, 1};
    backends.push_back(make_cpu_backend(config));
    if (has_device) backends.push_back(make_cuda_backend(0, config));
  }

  Schema schema;
  std::vector<KeyField> keys;
  KeyEncoding encoding;
  std::vector<std::unique_ptr<Backend>> backends;
};

// Pinned memory for the runs of one unit and its output, as a device backend requires.
class DeviceMemory {
 public:
  explicit DeviceMemory(Backend& backend) : pinned_(backend.pin(bytes_, false)) {}
  std::span<const std::byte> add(std::span<const std::byte> run) {
    const auto place = output(run.size());
    std::ranges::copy(run, place.begin());
    used_ += run.size();
    return place;
  }
  std::span<std::byte> output(std::size_t bytes) { return std::span(bytes_).subspan(used_, bytes); }
  void clear() { used_ = 0; }

 private:
  test::Bytes bytes_ = test::Bytes(2 * max_records * max_record_bytes);
  std::size_t used_ = 0;
  std::shared_ptr<void> pinned_;
};

Format& format(std::size_t number) {
  static const std::pair<const char*, const char*> all[] = {
      {"a:u8", "a"},
      {"a:u16", "a:desc"},
      {"a:u8,p:u8", "a"},
      {"a:u64", "a"},
      {"a:i64be", "a:desc"},
      {"a:u64,p:u64", "a"},
      {"a:f32,p:u8", "a"},
      {"p:u8,a:f64be", "a:desc"},
      {"a:u8,b:i16,c:u8", "c,b:desc"},
      {"a:u64,b:u64", "b,a"},
      {"a:bytes3,b:u8", "a"},
      {"a:bytes20,b:u8", "a:desc,b"},
      {"a:bytes40", "a"},
      {"p:bytes5,a:u32,b:bytes33,q:u8", "a,b"},
      {"a:u32,p:bytes96", "a"},
  };
  static std::unique_ptr<Format> made[std::size(all)];
  auto& wanted = made[number % std::size(all)];
  if (!wanted)
    wanted = std::make_unique<Format>(all[number % std::size(all)].first,
                                      all[number % std::size(all)].second);
  return *wanted;
}

struct Input {
  std::span<const std::uint8_t> bytes;
  std::uint8_t take() {
    if (bytes.empty()) return 0;
    const std::uint8_t first = bytes.front();
    bytes = bytes.subspan(1);
    return first;
  }
};

// Returns the unit between the cuts `from` and `to`, in chunks of up to `chunk` records.
WorkUnit unit_of(const std::vector<std::span<const std::byte>>& runs, std::uint32_t record_bytes,
                 const std::vector<std::uint64_t>& from, const std::vector<std::uint64_t>& to,
                 std::uint64_t chunk) {
  WorkUnit unit;
  for (std::uint32_t run = 0; run < runs.size(); ++run)
    for (std::uint64_t first = from[run]; first < to[run]; first += chunk) {
      const std::uint64_t count = std::min(chunk, to[run] - first);
      const std::byte* const at = runs[run].data() + first * record_bytes;
      unit.segments.push_back(
          {std::make_shared<const Chunk>(Chunk{run, first, count, {}, Buffer(), at, {}}), 0,
           count});
      unit.records += count;
      unit.bytes += count * record_bytes;
    }
  return unit;
}

}  // namespace

void corank::fuzz(std::span<const std::uint8_t> bytes) {
  Input input{bytes};
  Format& made = format(input.take());
  const std::uint32_t record_bytes = made.schema.record_bytes;
  const std::size_t count = 1 + input.take() % 20;
  const std::uint8_t unsorted = input.take();  // the run that is not sorted, mostly none
  const std::uint64_t chunk = 1 + input.take();
  const std::uint8_t rank_256th = input.take();
  std::vector<std::uint8_t> lengths;
  // Most runs are short, so that many are tried; a few are longer than a kernel handles in one
  // step.
  for (std::size_t run = 0; run < count; ++run) {
    const std::uint8_t length = input.take();
    lengths.push_back(length < 248 || run > 1 ? length % 16 : length);
  }

  std::vector<test::Bytes> runs;
  test::Bytes all;
  for (std::size_t run = 0; run < count; ++run) {
    // A short input is padded with zeros.
    test::Bytes records(std::size_t{lengths[run]} * record_bytes);
    const auto given = input.bytes.first(std::min(records.size(), input.bytes.size()));
    std::ranges::copy(std::as_bytes(given), records.begin());
    input.bytes = input.bytes.subspan(given.size());
    if (run != unsorted) records = test::stably_sorted(made.schema, made.keys, records);
    all.insert(all.end(), records.begin(), records.end());
    runs.push_back(std::move(records));
  }
  const std::uint64_t records = all.size() / record_bytes;
  if (records == 0) return;

  std::uint64_t out_of_order = 0;
  if (unsorted < count)
    for (std::uint64_t i = 1; i < lengths[unsorted] && out_of_order == 0; ++i) {
      const std::byte* const record = runs[unsorted].data() + i * record_bytes;
      if (test::reference_less(made.schema, made.keys, record, record - record_bytes))
        out_of_order = i;
    }

  std::vector<Run> in_memory;
  std::vector<std::uint64_t> ends;
  for (const test::Bytes& run : runs) {
    in_memory.emplace_back(run, "run", record_bytes);
    ends.push_back(run.size() / record_bytes);
  }
  const std::vector<std::uint64_t> start(count);
  const std::uint64_t rank = records * rank_256th / 256;
  const test::Bytes expected = test::stably_sorted(made.schema, made.keys, all);
  for (const auto& backend : made.backends) {
    // The CPU backend merges from and to memory without a spare byte.
    std::vector<std::span<const std::byte>> spans(runs.begin(), runs.end());
    std::span<std::byte> output = all;
    if (!backend->computes()) {
      static DeviceMemory memory(*backend);
      memory.clear();
      for (auto& run : spans) run = memory.add(run);
      output = memory.output(all.size());
    }
    std::ranges::fill(output, std::byte{});
    const auto merge = [&](std::uint64_t from, const WorkUnit& unit) {
      if (unit.records != 0) backend->merge(unit, output.data() + from * record_bytes);
    };
    if (out_of_order != 0) {
      // One chunk per run, because the backend does not check the order between chunks.
      try {
        merge(0, unit_of(spans, record_bytes, start, ends, 256));
        require(false);
      } catch (const RunOutOfOrder& found) {
        require(found.run == unsorted && found.record == out_of_order);
      }
      continue;
    }
    ProbeThreads threads(1);
    const std::vector<std::uint64_t> cut =
        cut_runs(rank, in_memory, made.encoding, threads).position;
    merge(0, unit_of(spans, record_bytes, start, cut, chunk));
    merge(rank, unit_of(spans, record_bytes, cut, ends, chunk));
    require(std::ranges::equal(output, expected));
  }
}
