#include "verify/checksum.hpp"

#include <cassert>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace corank {

std::uint64_t records_checksum(std::span<const std::byte> records, std::uint32_t record_bytes) {
  assert(record_bytes != 0 && records.size() % record_bytes == 0);
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < records.size(); at += record_bytes)
    sum += XXH64(records.data() + at, record_bytes, 0);
  return sum;
}

std::uint64_t prefix_refs_checksum(const TextLayout& layout, std::span<const PrefixRef> entries) {
  std::uint64_t sum = 0;
  for (const PrefixRef& entry : entries)
    sum += XXH64(record_of(entry), record_bytes(layout, entry), 0);
  return sum;
}

}  // namespace corank
