#include "run/slice.hpp"

#include <algorithm>
#include <cassert>
#include <vector>

namespace corank {
namespace {

// Bytes per probe: few enough to read little, enough that the last search steps stay in one block.
constexpr std::uint64_t block_bytes = 1024;

// The block of a run that was probed last.
struct Block {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::vector<std::byte> records;
};

struct Probe {
  Key<max_key_words> key;
  std::vector<std::byte> record;  // empty unless keys have tails
};

}  // namespace

Cut cut_runs(std::uint64_t rank, std::span<const Run> runs, const KeyEncoding& encoding) {
  const KeyLayout layout = encoding.layout();
  const std::uint64_t block_records = std::max<std::uint64_t>(block_bytes / layout.record_bytes, 1);
  std::vector<Block> blocks(runs.size());
  std::vector<std::uint64_t> counts(runs.size());
  std::ranges::transform(runs, counts.begin(), &Run::records);

  const auto probe = [&](std::size_t run, std::uint64_t index) {
    assert(index < counts[run]);
    Block& block = blocks[run];
    if (index < block.first || index >= block.first + block.count) {
      block.first = index - index % block_records;
      block.count = std::min(block_records, counts[run] - block.first);
      block.records.resize(block.count * layout.record_bytes);
      runs[run].read(block.first, block.count, block.records);
    }
    const std::byte* record = block.records.data() + (index - block.first) * layout.record_bytes;
    Probe probed{encode<max_key_words>(layout, record), {}};
    if (layout.has_tail()) probed.record.assign(record, record + layout.record_bytes);
    return probed;
  };
  const auto less = [&](const Probe& x, const Probe& y) {
    return x.key < y.key || (layout.has_tail() && x.key == y.key &&
                             tail_less(layout, x.record.data(), y.record.data()));
  };
  return co_rank(rank, counts, probe, less);
}

}  // namespace corank
