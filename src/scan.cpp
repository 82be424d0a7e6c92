#include "scan.hpp"

#include <algorithm>
#include <vector>

#include "checksum.hpp"
#include "corank/error.hpp"

namespace corank {

ScanResult scan(const Run& run, const KeyEncoding& encoding, bool checksum) {
  const KeyLayout layout = encoding.layout();
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
