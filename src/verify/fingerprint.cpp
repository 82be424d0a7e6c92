#include "verify/fingerprint.hpp"

#include <algorithm>
#include <cassert>
#include <type_traits>
#include <vector>

#include "format/key_order.hpp"
#include "util/cpu_features.hpp"
#include "util/prefetch.hpp"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace corank {
namespace {

using detail::Pair, detail::short_record, detail::word_of;

#ifdef __x86_64__
// AES rounds mix 16 bytes at a time: after two rounds, every bit depends on every bit. A third
// round removes what is left of the structure of the first two. Without it, the sum sometimes
// misses records of few distinct values that exchange the four bytes of a column.
#define CORANK_AES __attribute__((target("aes,sse4.1")))
#define CORANK_VAES __attribute__((target("aes,avx2,vaes")))

CORANK_AES inline __m128i round_key(int i) {
  constexpr std::uint64_t keys[] = {detail::fold_key_a, detail::fold_key_b, detail::fold_key_step,
                                    detail::fold_key_c, detail::fold_key_d, detail::fold_key_e};
  return _mm_set_epi64x(static_cast<long long>(keys[2 * i]),
                        static_cast<long long>(keys[2 * i + 1]));
}

CORANK_AES inline __m128i mix(__m128i block) {
  for (int i = 0; i < 3; ++i) block = _mm_aesenc_si128(block, round_key(i));
  return block;
}

CORANK_AES inline __m128i load_block(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

CORANK_AES inline std::uint64_t sum_of(__m128i sums) {
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(sums)) +
         static_cast<std::uint64_t>(_mm_extract_epi64(sums, 1));
}

CORANK_AES inline __attribute__((always_inline)) __m128i add_rounds(
    std::span<const std::byte> records, std::uint32_t record_bytes) {
  assert(record_bytes != 0 && records.size() % record_bytes == 0);
  __m128i sums = _mm_setzero_si128();
  const std::byte* const end = records.data() + records.size();
  if (record_bytes < 16) {
    for (const std::byte* record = records.data(); record != end; record += record_bytes) {
      const Pair pair = short_record(record, record_bytes);
      sums = _mm_add_epi64(sums, mix(_mm_set_epi64x(static_cast<long long>(pair.b),
                                                    static_cast<long long>(pair.a))));
    }
  } else {
    for (const std::byte* record = records.data(); record != end; record += record_bytes) {
      __m128i state = load_block(record);
      std::uint32_t at = 16;
      for (; at + 16 <= record_bytes; at += 16)
        state = _mm_aesenc_si128(state, load_block(record + at));
      if (at != record_bytes)
        state = _mm_aesenc_si128(state, load_block(record + record_bytes - 16));
      sums = _mm_add_epi64(sums, mix(state));
    }
  }
  return sums;
}

CORANK_AES std::uint64_t sum_rounds(std::span<const std::byte> records,
                                    std::uint32_t record_bytes) {
  return sum_of(add_rounds(records, record_bytes));
}

// Returns the state from which mix() makes a record's fingerprint, its length included.
CORANK_AES inline __attribute__((always_inline)) __m128i state_of(const std::byte* record,
                                                                  std::uint64_t bytes) {
  __m128i state = _mm_set1_epi64x(static_cast<long long>(bytes));
  if (bytes < 16) {
    const Pair pair = short_record(record, static_cast<std::uint32_t>(bytes));
    state = _mm_xor_si128(
        state, _mm_set_epi64x(static_cast<long long>(pair.b), static_cast<long long>(pair.a)));
  } else {
    state = _mm_xor_si128(state, load_block(record));
    std::uint64_t at = 16;
    for (; at + 16 <= bytes; at += 16) state = _mm_aesenc_si128(state, load_block(record + at));
    if (at != bytes) state = _mm_aesenc_si128(state, load_block(record + bytes - 16));
  }
  return state;
}

CORANK_AES std::uint64_t sum_ref_rounds(const TextLayout& layout, std::span<const PrefixRef> refs) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < refs.size(); ++i) {
    // Separate from the call below, which would spill the vector for every record.
    __m128i sums = _mm_setzero_si128();
    for (; i < refs.size() && short_bytes(refs[i]) < saturated_bytes; ++i)
      sums = _mm_add_epi64(sums, mix(state_of(record_of(refs[i]), short_bytes(refs[i]))));
    sum += sum_of(sums);
    if (i == refs.size()) break;
    sum += sum_of(mix(state_of(record_of(refs[i]), record_bytes(layout, refs[i]))));
  }
  return sum;
}

// Returns the first eight bytes of a line, padded with zeros. Memory is readable up to `end`.
inline std::uint64_t head_of(std::string_view line, const char* end) {
  assert(line.data() + line.size() <= end);
  const auto bytes = static_cast<unsigned>(std::min<std::size_t>(line.size(), 8));
  const unsigned loaded = end - line.data() >= 8 ? 8 : bytes;
  const std::uint64_t word = detail::byte_swap(
      detail::load_little(reinterpret_cast<const std::byte*>(line.data()), loaded));
  return bytes == 8 ? word : word & ~(~std::uint64_t{0} >> 8 * bytes);
}

CORANK_AES OrderedSum sum_line_rounds(const std::byte* lines, std::span<const std::uint32_t> ends,
                                      bool strict, std::string_view& last) {
  const auto* const all = reinterpret_cast<const char*>(lines);
  const char* const all_end = ends.empty() ? all : all + ends.back() + 1;
  std::uint64_t last_head = last.empty() ? 0 : head_of(last, last.data() + last.size());
  std::size_t begin = 0;
  for (const std::uint32_t end : ends) {
    assert(begin <= end);
    const std::string_view line(all + begin, end - begin);
    const std::uint64_t head = head_of(line, all_end);
    if (head <= last_head && (strict ? line <= last : line < last)) return {0, false};
    begin = end + 1;
    last = line;
    last_head = head;
  }
  // Separate from the loop above, whose calls would spill the vector.
  __m128i sums = _mm_setzero_si128();
  begin = 0;
  for (const std::uint32_t end : ends) {
    sums = _mm_add_epi64(sums, mix(state_of(lines + begin, end + 1 - begin)));
    begin = end + 1;
  }
  return {sum_of(sums), true};
}

CORANK_VAES inline __m256i mix_two(__m256i blocks) {
  for (int i = 0; i < 3; ++i)
    blocks = _mm256_aesenc_epi128(blocks, _mm256_broadcastsi128_si256(round_key(i)));
  return blocks;
}

CORANK_VAES inline __m256i load_blocks(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

constexpr std::uint32_t min_for_two_chains = 64;

// Computes the sum for long records, two blocks at a time, each in a chain of its own. A block at
// the end may enter both chains. Two rounds between them keep its changes to one from undoing its
// changes to the other.
template <class See>
CORANK_VAES std::uint64_t sum_two_chains(std::span<const std::byte> records,
                                         std::uint32_t record_bytes, See see) {
  assert(record_bytes >= 32 && records.size() % record_bytes == 0);
  __m128i sums = _mm_setzero_si128();
  const std::byte* const end = records.data() + records.size();
  for (const std::byte* record = records.data(); record != end; record += record_bytes) {
    see(record);
    __m256i states = load_blocks(record);
    std::uint32_t at = 32;
    for (; at + 32 <= record_bytes; at += 32) {
      const std::byte* const later = record + at + sequential_prefetch_bytes;
      if (later < end) __builtin_prefetch(later);
      states = _mm256_aesenc_epi128(states, load_blocks(record + at));
    }
    if (at != record_bytes)
      states = _mm256_aesenc_epi128(states, load_blocks(record + record_bytes - 32));
    const __m128i first = _mm_aesenc_si128(_mm256_castsi256_si128(states), round_key(0));
    const __m128i both = _mm_aesenc_si128(first, _mm256_extracti128_si256(states, 1));
    sums = _mm_add_epi64(sums, mix(both));
  }
  return sum_of(sums);
}

CORANK_VAES inline __m128i add_halves(__m256i sums) {
  return _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

// Computes the sum with 32-byte vectors: two chains of a long record, two 16-byte records, or four
// 8-byte records at a time.
CORANK_VAES std::uint64_t sum_wide_rounds(std::span<const std::byte> records,
                                          std::uint32_t record_bytes) {
  if (record_bytes >= min_for_two_chains)
    return sum_two_chains(records, record_bytes, [](const std::byte*) {});
  if (record_bytes != 16 && record_bytes != 8) return sum_rounds(records, record_bytes);
  __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  const std::size_t whole = records.size() - records.size() % 64;
  for (std::size_t at = 0; at < whole; at += 64) {
    for (int i = 0; i < 2; ++i) {
      const __m256i blocks = load_blocks(records.data() + at + 32 * i);
      if (record_bytes == 16) {
        sums[i] = _mm256_add_epi64(sums[i], mix_two(blocks));
      } else {
        sums[0] = _mm256_add_epi64(sums[0], mix_two(_mm256_unpacklo_epi64(blocks, blocks)));
        sums[1] = _mm256_add_epi64(sums[1], mix_two(_mm256_unpackhi_epi64(blocks, blocks)));
      }
    }
  }
  const __m128i sum = add_halves(_mm256_add_epi64(sums[0], sums[1]));
  // Not by sum_rounds(), whose instruction encoding makes the transition to it expensive here.
  return sum_of(_mm_add_epi64(sum, add_rounds(records.subspan(whole), record_bytes)));
}

// Computes the sum of 16-byte records and checks that their key words ascend; `strict` also rejects
// equal neighbours.
template <bool strict>
CORANK_VAES OrderedSum sum_ascending_by_16(std::span<const std::byte> records,
                                           const detail::SingleWordKey& key) {
  constexpr std::uint64_t sign = std::uint64_t{1} << 63;  // vectors compare as signed
  const __m256i flips = _mm256_set1_epi64x(static_cast<long long>(key.flip ^ sign));
  const auto words = [&](__m256i two, __m256i next_two)
      __attribute__((target("aes,avx2,vaes"), always_inline)) {
    return _mm256_xor_si256(key.offset == 0 ? _mm256_unpacklo_epi64(two, next_two)
                                            : _mm256_unpackhi_epi64(two, next_two),
                            flips);
  };
  __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  __m256i ascend = _mm256_set1_epi64x(-1), descend = _mm256_setzero_si256();
  const std::byte* at = records.data();
  const std::byte* const end = at + records.size();
  for (; end - at >= 80; at += 64) {  // four records, and the one after them
    __builtin_prefetch(at + sequential_prefetch_bytes);
    const __m256i blocks[2] = {load_blocks(at), load_blocks(at + 32)};
    for (int i = 0; i < 2; ++i) sums[i] = _mm256_add_epi64(sums[i], mix_two(blocks[i]));
    const __m256i last = words(blocks[0], blocks[1]);
    const __m256i next = words(load_blocks(at + 16), load_blocks(at + 48));
    if constexpr (strict)
      ascend = _mm256_and_si256(ascend, _mm256_cmpgt_epi64(next, last));
    else
      descend = _mm256_or_si256(descend, _mm256_cmpgt_epi64(last, next));
  }
  bool ascends = _mm256_movemask_epi8(ascend) == -1 && _mm256_testz_si256(descend, descend) != 0;
  for (const std::byte* last = at; end - last > 16; last += 16) {
    const std::uint64_t word = word_of(key, last), next = word_of(key, last + 16);
    ascends = ascends && (strict ? word < next : word <= next);
  }
  const __m128i sum = add_halves(_mm256_add_epi64(sums[0], sums[1]));
  return {sum_of(_mm_add_epi64(sum, add_rounds({at, end}, 16))), ascends};
}

// Computes the sum of long records and checks that their key words ascend; `or_equal` accepts equal
// neighbours.
template <bool big_endian>
CORANK_VAES OrderedSum sum_ascending(std::span<const std::byte> records, std::uint32_t record_bytes,
                                     detail::SingleWordKey key, bool or_equal) {
  key.big_endian = big_endian;
  std::uint64_t last = word_of(key, records.data());
  std::uint64_t steps = 0;
  const std::uint64_t sum = sum_two_chains(
      records, record_bytes,
      [&](const std::byte* record) __attribute__((target("aes,avx2,vaes"), always_inline)) {
        const std::uint64_t word = word_of(key, record);
        steps += or_equal ? word >= last : word > last;
        last = word;
      });
  // The first record was compared with itself, which counts only with `or_equal`.
  return {sum, steps + !or_equal == records.size() / record_bytes};
}
#endif

}  // namespace

std::optional<OrderedSum> sum_and_order([[maybe_unused]] FingerprintSum sum,
                                        [[maybe_unused]] const KeyLayout& layout,
                                        [[maybe_unused]] std::span<const std::byte> records,
                                        [[maybe_unused]] bool strict) {
  assert(!records.empty() && records.size() % layout.record_bytes == 0);
#ifdef __x86_64__
  const auto key = first_word(layout);
  if (sum != sum_wide_rounds || !key) return std::nullopt;
  const bool is_whole = layout.pieces_count == 1;
  if (layout.record_bytes == 16 && is_whole && !key->big_endian && key->offset % 8 == 0)
    return (strict ? sum_ascending_by_16<true> : sum_ascending_by_16<false>)(records, *key);
  if (layout.record_bytes >= min_for_two_chains)
    return (key->big_endian ? sum_ascending<true> : sum_ascending<false>)(records,
                                                                          layout.record_bytes, *key,
                                                                          is_whole && !strict);
#endif
  return std::nullopt;
}

std::optional<OrderedSum> sum_and_order([[maybe_unused]] FingerprintSum sum,
                                        [[maybe_unused]] const std::byte* lines,
                                        [[maybe_unused]] std::span<const std::uint32_t> ends,
                                        [[maybe_unused]] bool strict,
                                        [[maybe_unused]] std::string_view& last) {
#ifdef __x86_64__
  if (sum != portable_fingerprint) return sum_line_rounds(lines, ends, strict, last);
#endif
  return std::nullopt;
}

std::span<const FingerprintSum> fingerprint_sums() {
  static const std::vector<FingerprintSum> sums = supported<FingerprintSum>({
#ifdef __x86_64__
      {cpu_features().has_vaes, sum_wide_rounds},
      {cpu_features().has_aes, sum_rounds},
#endif
      {true, portable_fingerprint},
  });
  return sums;
}

std::uint64_t portable_fingerprint(std::span<const std::byte> records, std::uint32_t record_bytes) {
  assert(record_bytes != 0 && records.size() % record_bytes == 0);
  const auto sum_of = [&](auto bytes) {
    std::uint64_t sum = 0;
    const std::byte* const end = records.data() + records.size();
    for (const std::byte* record = records.data(); record != end; record += bytes)
      sum += fingerprint_of(record, bytes);
    return sum;
  };
  switch (record_bytes) {  // constant sizes become loads without branches
    case 8:
      return sum_of(std::integral_constant<std::uint32_t, 8>());
    case 16:
      return sum_of(std::integral_constant<std::uint32_t, 16>());
    default:
      return sum_of(record_bytes);
  }
}

std::uint64_t prefix_refs_fingerprint([[maybe_unused]] FingerprintSum sum, const TextLayout& layout,
                                      std::span<const PrefixRef> refs) {
#ifdef __x86_64__
  if (sum != portable_fingerprint) return sum_ref_rounds(layout, refs);
#endif
  std::uint64_t result = 0;
  for (const PrefixRef& ref : refs)
    result += fingerprint_of(record_of(ref), record_bytes(layout, ref));
  return result;
}

}  // namespace corank
