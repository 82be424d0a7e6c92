#include "scan.hpp"

#include <algorithm>
#include <vector>

#include "checksum.hpp"
#include "corank/error.hpp"
#include "order.hpp"
#include "plan.hpp"
#include "stream_reader.hpp"

namespace corank {
namespace {

// Of what is read from its beginning to its end.
ScanResult scan_in_order(const Run& run, const KeyEncoding& encoding, bool checksum) {
  constexpr std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  const KeyLayout layout = encoding.layout();
  const PassPlan plan = (layout.text ? plan_text_pass(1, memory_bytes, run.bytes())
                                     : plan_pass(1, layout.record_bytes, memory_bytes, run.bytes(),
                                                 largest_cpu_unit_bytes, stream_margin_bytes))
                            .value();
  BufferPool pool(plan.chunk_bytes, plan.chunks, nullptr);
  std::vector<Stream> streams;
  streams.push_back(stream_of(run, {}));
  StreamReader reader(std::move(streams), encoding, plan, ChunkSource::Order::one_by_one, pool, 1,
                      nullptr, {}, {});
  ScanResult result;
  std::uint64_t offset = run.offset();
  ChunkRef before;
  for (ChunkRef chunk; (chunk = reader.next(0)); before = std::move(chunk)) {
    const auto throw_at = [&](std::uint64_t index) {
      const std::uint64_t bytes = index == 0 ? 0 : bytes_of(layout, chunk->records(), index).size();
      throw OutOfOrder(run.path(), chunk->first + index, offset + bytes);
    };
    if (before && record_less(layout, chunk->records(),
                              before->records() + (before->count - 1) * layout.record_bytes))
      throw_at(0);
    const std::uint64_t descent = first_descent(layout, chunk->records(), chunk->count);
    if (descent != chunk->count) throw_at(descent);
    if (checksum)
      result.checksum +=
          layout.text
              ? entries_checksum(*layout.text,
                                 {reinterpret_cast<const Entry*>(chunk->records()), chunk->count})
              : records_checksum(bytes_of(layout, chunk->records(), chunk->count),
                                 layout.record_bytes);
    result.records += chunk->count;
    offset += bytes_of(layout, chunk->records(), chunk->count).size();
  }
  return result;
}

}  // namespace

ScanResult scan(const Run& run, const KeyEncoding& encoding, bool checksum) {
  const KeyLayout layout = encoding.layout();
  if (run.is_stream() || run.record_bytes() != layout.record_bytes)
    return scan_in_order(run, encoding, checksum);
  const std::uint32_t record_bytes = layout.record_bytes;

  // The last record of a block stands before the next block, to be compared with its first.
  const std::uint64_t block_records =
      std::max<std::uint64_t>((std::uint64_t{4} << 20) / record_bytes, 1);
  std::vector<std::byte> memory((block_records + 1) * record_bytes);
  std::byte* const block = memory.data() + record_bytes;
  ScanResult result{run.records(), 0};
  for (std::uint64_t first = 0; first < run.records(); first += block_records) {
    const std::uint64_t count = std::min(block_records, run.records() - first);
    run.read(first, count, {block, count * record_bytes});
    for (std::uint64_t i = first == 0 ? 1 : 0; i < count; ++i) {
      const std::byte* record = block + i * record_bytes;
      if (record_less(layout, record, record - record_bytes))
        throw OutOfOrder(run.path(), first + i, (first + i) * record_bytes);
    }
    if (checksum) result.checksum += records_checksum({block, count * record_bytes}, record_bytes);
    std::copy_n(block + (count - 1) * record_bytes, record_bytes, memory.data());
  }
  return result;
}

}  // namespace corank
