#include "verify/checksum.hpp"

#include <cassert>

#include "util/cpu_features.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace corank {
namespace {

inline __attribute__((always_inline)) std::uint64_t sum_of(std::span<const std::byte> records,
                                                           std::uint32_t record_bytes) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < records.size(); at += record_bytes)
    sum += XXH64(records.data() + at, record_bytes, 0);
  return sum;
}

// A loop over short records of a constant size becomes one over vectors of them, where the
// instruction set multiplies vectors of 64-bit numbers.
inline __attribute__((always_inline)) std::uint64_t sum_short(std::span<const std::byte> records,
                                                              std::uint32_t record_bytes) {
  return record_bytes == 8 ? sum_of(records, 8) : sum_of(records, 16);
}

#ifdef __x86_64__
__attribute__((target("avx512vl,avx512dq"))) std::uint64_t sum_short_wide(
    std::span<const std::byte> records, std::uint32_t record_bytes) {
  return sum_short(records, record_bytes);
}
#endif

}  // namespace

std::uint64_t records_checksum(std::span<const std::byte> records, std::uint32_t record_bytes) {
  assert(record_bytes != 0 && records.size() % record_bytes == 0);
  if (record_bytes != 8 && record_bytes != 16) return sum_of(records, record_bytes);
#ifdef __x86_64__
  if (cpu_features().has_avx512) return sum_short_wide(records, record_bytes);
#endif
  return sum_short(records, record_bytes);
}

std::uint64_t prefix_refs_checksum(const TextLayout& layout, std::span<const PrefixRef> refs) {
  std::uint64_t sum = 0;
  for (const PrefixRef& ref : refs) sum += XXH64(record_of(ref), record_bytes(layout, ref), 0);
  return sum;
}

std::uint64_t lines_checksum(const std::byte* lines, std::span<const std::uint32_t> ends) {
  std::uint64_t sum = 0;
  std::size_t begin = 0;
  for (const std::uint32_t end : ends) {
    sum += XXH64(lines + begin, end + 1 - begin, 0);
    begin = end + 1;
  }
  return sum;
}

}  // namespace corank
