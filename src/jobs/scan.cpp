#include "jobs/scan.hpp"

#include <algorithm>
#include <vector>

#include "corank/error.hpp"
#include "format/framing.hpp"
#include "format/key_order.hpp"
#include "plan/pass_planner.hpp"
#include "run/stream_reader.hpp"
#include "verify/checksum.hpp"

namespace corank {
namespace {

// Implements scan_blocks() for streams and variable-length records.
std::uint64_t scan_in_order(const Run& run, const KeyEncoding& encoding,
                            const std::function<void(const ScannedBlock&)>& visit) {
  constexpr std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  const KeyLayout layout = encoding.layout();
  const PassPlan plan = (layout.text ? plan_text_pass(1, memory_bytes, run.bytes())
                                     : plan_pass(1, layout.record_bytes, memory_bytes, run.bytes(),
                                                 max_cpu_unit_bytes, stream_margin_bytes))
                            .value();
  BufferPool pool(plan.chunk_bytes, plan.chunks, nullptr);
  std::vector<Stream> streams;
  streams.push_back(stream_of(run, run.stop()));
  StreamReader reader(std::move(streams), encoding, plan, ChunkSource::Order::one_by_one, pool, 1,
                      nullptr, run.stop(), {});
  ChunkRef before;
  for (ChunkRef chunk; (chunk = reader.next(0)); before = std::move(chunk)) {
    if (run.stop().stop_requested()) throw Interrupted();
    const std::byte* const last =
        before ? before->records() + (before->count - 1) * layout.record_bytes : nullptr;
    visit({last, chunk->records(), chunk->count, chunk->number, chunk->offset});
  }
  return reader.skipped();
}

[[noreturn]] void throw_out_of_order(const Run& run, const KeyLayout& layout,
                                     const ScannedBlock& block, std::uint64_t index) {
  const std::uint64_t record = block.first + index, byte = offset_of(layout, block, index);
  if (!layout.text) throw OutOfOrder(run.path(), record, byte);
  throw OutOfOrder(run.path(), record, byte,
                   place_of(*layout.text, run.header_lines(), record, byte),
                   advice_on_disorder(*layout.text, record));
}

}  // namespace

std::uint64_t offset_of(const KeyLayout& layout, const ScannedBlock& block, std::uint64_t index) {
  return block.offset + (index == 0 ? 0 : bytes_of(layout, block.records, index).size());
}

std::uint64_t scan_blocks(const Run& run, const KeyEncoding& encoding,
                          const std::function<void(const ScannedBlock&)>& visit) {
  const std::uint32_t record_bytes = encoding.record_bytes();
  if (run.is_stream() || run.record_bytes() != record_bytes)
    return scan_in_order(run, encoding, visit);

  // The last record of a block is copied to the place before the next block.
  const std::uint64_t block_records =
      std::max<std::uint64_t>((std::uint64_t{4} << 20) / record_bytes, 1);
  std::vector<std::byte> memory((block_records + 1) * record_bytes);
  std::byte* const block = memory.data() + record_bytes;
  for (std::uint64_t first = 0; first < run.records(); first += block_records) {
    const std::uint64_t count = std::min(block_records, run.records() - first);
    run.read(first, count, {block, count * record_bytes});
    visit({first == 0 ? nullptr : memory.data(), block, count, first,
           run.offset() + first * record_bytes});
    std::copy_n(block + (count - 1) * record_bytes, record_bytes, memory.data());
  }
  return 0;
}

ScanResult scan(const Run& run, const KeyEncoding& encoding, bool checksum) {
  const KeyLayout layout = encoding.layout();
  ScanResult result;
  scan_blocks(run, encoding, [&](const ScannedBlock& block) {
    std::uint64_t descent = 0;
    if (!block.before || !record_less(layout, block.records, block.before))
      descent = first_descent(layout, block.records, block.count);
    if (descent != block.count) throw_out_of_order(run, layout, block, descent);
    if (checksum)
      result.checksum +=
          layout.text
              ? prefix_refs_checksum(
                    *layout.text, {reinterpret_cast<const PrefixRef*>(block.records), block.count})
              : records_checksum(bytes_of(layout, block.records, block.count), layout.record_bytes);
    result.records += block.count;
  });
  return result;
}

std::vector<FoundRecord> find_equals(const Run& run, const KeyEncoding& encoding,
                                     const TextFilter* filter, std::span<const std::byte> record,
                                     unsigned most) {
  std::vector<char> scratch;
  const KeyLayout layout = encoding.layout();
  std::vector<FoundRecord> found;
  scan_blocks(run, encoding, [&](const ScannedBlock& block) {
    for (std::uint64_t i = 0; i < block.count && found.size() < most; ++i) {
      const PrefixRef& entry = reinterpret_cast<const PrefixRef*>(block.records)[i];
      const std::byte* const at = record_of(entry);
      const std::uint64_t bytes = record_bytes(*layout.text, entry);
      if (!text_less(*layout.text, at, bytes, record.data(), record.size()) &&
          !text_less(*layout.text, record.data(), record.size(), at, bytes) &&
          (!filter || filter->test({at, bytes}, scratch)))
        found.push_back({block.first + i, offset_of(layout, block, i)});
    }
  });
  return found;
}

}  // namespace corank
