#include "util/record_ends.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "corank/text_field.hpp"
#include "util/cpu_features.hpp"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace corank {
namespace {

std::size_t find_ends_portable(std::span<const std::byte> bytes, char terminator,
                               std::span<std::uint32_t> ends, std::size_t& scanned) {
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  std::size_t count = 0;
  for (; count + min_ends_room <= ends.size(); ++count) {
    at = detail::find_char(at, end, terminator);
    if (at == end) break;
    ends[count] = static_cast<std::uint32_t>(at++ - bytes.data());
  }
  scanned = static_cast<std::size_t>(at - bytes.data());
  return count;
}

// Finds ends up to the first quote or escape: CSV records before it are lines.
std::size_t find_csv_ends_portable(const CsvBytes& csv, std::span<const std::byte> bytes,
                                   std::span<std::uint32_t> ends) {
  // Few bytes are searched at a time, because a caller may want only a few records.
  const auto block = bytes.first(std::min<std::size_t>(bytes.size(), 4096));
  const std::byte* quote = detail::find_char(block.data(), block.data() + block.size(), '"');
  if (csv.escape != 0) quote = detail::find_char(block.data(), quote, csv.escape);
  std::size_t scanned = 0;
  return find_ends_portable(block.first(static_cast<std::size_t>(quote - block.data())),
                            csv.terminator, ends, scanned);
}

#ifdef __x86_64__
// Prefetch distance of the search for terminators, in bytes. Larger than other distances, because
// the search does little work per byte. Tuned by merges of lines; see docs/tuning.md.
constexpr std::size_t scanned_ahead_bytes = 8192;

// Finds the ends from byte `at` on, which a vector loop has left, and appends them at `to`. `ends`
// holds the earlier ones. Returns the number of all ends.
std::size_t find_last_ends(std::span<const std::byte> bytes, char terminator,
                           std::span<std::uint32_t> ends, std::uint32_t* to, std::size_t at,
                           std::size_t& scanned) {
  auto count = static_cast<std::size_t>(to - ends.data());
  count += find_ends_portable(bytes.subspan(at), terminator, ends.subspan(count), scanned);
  for (; to != ends.data() + count; ++to) *to += static_cast<std::uint32_t>(at);
  scanned += at;
  return count;
}

#define CORANK_AVX2 __attribute__((target("avx2,bmi,popcnt")))

struct Block64 {
  __m256i low, high;
};

CORANK_AVX2 inline Block64 load_64(const std::byte* at) {
  const auto* const from = reinterpret_cast<const __m256i*>(at);
  return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
}

// Returns a bit for each byte of the block that equals `c`.
CORANK_AVX2 inline std::uint64_t places_of(const Block64& block, char c) {
  const __m256i wanted = _mm256_set1_epi8(c);
  const auto low =
      static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(block.low, wanted)));
  const auto high =
      static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(block.high, wanted)));
  return std::uint64_t{high} << 32 | low;
}

// Writes `at` plus the place of each bit of `found` to `to`. Returns the end of what it wrote.
CORANK_AVX2 inline std::uint32_t* write_places(std::uint64_t found, std::size_t at,
                                               std::uint32_t* to) {
  std::uint32_t* const end = to + std::popcount(found);
  // Groups of four avoid a mispredicted branch per end. Surplus offsets are overwritten.
  do {
    for (int i = 0; i < 4; ++i, found = _blsr_u64(found))
      *to++ = static_cast<std::uint32_t>(at + _tzcnt_u64(found));
  } while (to < end);
  return end;
}

CORANK_AVX2 std::size_t find_ends_by_64(std::span<const std::byte> bytes, char terminator,
                                        std::span<std::uint32_t> ends, std::size_t& scanned) {
  std::uint32_t* to = ends.data();
  std::size_t at = 0;
  for (; bytes.size() - at >= 64 && to + min_ends_room <= ends.data() + ends.size(); at += 64) {
    __builtin_prefetch(bytes.data() + at + scanned_ahead_bytes);
    to = write_places(places_of(load_64(bytes.data() + at), terminator), at, to);
  }
  return find_last_ends(bytes, terminator, ends, to, at, scanned);
}

// Returns ones from the first mark to before the second, from the third to before the fourth, and
// so on. Bit 0 comes first.
inline std::uint64_t between_marks(std::uint64_t marks) {
  for (int distance = 1; distance < 64; distance *= 2) marks ^= marks << distance;
  return marks;
}

// State at the byte before a block of CSV, as the lowest bit or, of `quoted`, as all bits.
struct CsvState {
  std::uint64_t quoted = 0;         // inside quotes
  std::uint64_t closed_quotes = 0;  // a closing quote, or the first of a doubled one
  std::uint64_t returned = 0;       // a carriage return after a closing quote
};

// Returns a bit for each end of a record in the 64 bytes at `at`, up to the first byte that has no
// place in CSV, or whose place only a search byte by byte can tell; sets `is_clear` to whether
// there is none. `begin` is the start of a record, at or before `at`. Quotes are paired as in
// Langdale and Lemire, "Parsing Gigabytes of JSON per Second" (2019), section 3.1.1.
CORANK_AVX2 inline std::uint64_t csv_ends(const CsvBytes& csv, const std::byte* begin,
                                          const std::byte* at, CsvState& state, bool& is_clear) {
  const Block64 block = load_64(at);
  const std::uint64_t quotes = places_of(block, '"');
  const std::uint64_t terminators = places_of(block, csv.terminator);
  const std::uint64_t escapes = csv.escape != 0 ? places_of(block, csv.escape) : 0;
  if ((quotes | escapes | state.quoted | state.closed_quotes | state.returned) == 0)
    return terminators;
  const std::uint64_t quoted = between_marks(quotes) ^ state.quoted;
  const std::uint64_t ends_column = (terminators | places_of(block, csv.delimiter)) & ~quoted;
  const std::uint64_t closing = quotes & ~quoted, opening = quotes & quoted;
  const bool begins = at == begin || detail::is_char(at[-1], csv.delimiter) ||
                      detail::is_char(at[-1], csv.terminator);
  const std::uint64_t begins_column = ends_column << 1 | std::uint64_t{begins};
  const std::uint64_t follows_quotes = closing << 1 | state.closed_quotes;
  const std::uint64_t returns = follows_quotes & places_of(block, '\r') & ~ends_column;
  const std::uint64_t follows_return = returns << 1 | state.returned;
  const std::uint64_t unclear = (opening & ~begins_column & ~follows_quotes) |
                                (follows_quotes & ~ends_column & ~quotes & ~returns) |
                                (follows_return & ~terminators) | escapes;
  state = {std::uint64_t{0} - (quoted >> 63), closing >> 63, returns >> 63};
  is_clear = unclear == 0;
  return terminators & ~quoted & ((unclear & -unclear) - 1);
}

CORANK_AVX2 std::size_t find_csv_ends_by_64(const CsvBytes& csv, std::span<const std::byte> bytes,
                                            std::span<std::uint32_t> ends) {
  std::uint32_t* to = ends.data();
  CsvState state;
  bool is_clear = true;
  for (std::size_t at = 0;
       is_clear && bytes.size() - at >= 64 && to + min_ends_room <= ends.data() + ends.size();
       at += 64) {
    __builtin_prefetch(bytes.data() + at + scanned_ahead_bytes);
    to = write_places(csv_ends(csv, bytes.data(), bytes.data() + at, state, is_clear), at, to);
  }
  return static_cast<std::size_t>(to - ends.data());
}
#endif

}  // namespace

std::span<const EndFinder> end_finders() {
  static const std::vector<EndFinder> finders = supported<EndFinder>({
#ifdef __x86_64__
      {cpu_features().has_avx2, {find_ends_by_64, find_csv_ends_by_64}},
#endif
      {true, {find_ends_portable, find_csv_ends_portable}},
  });
  return finders;
}

}  // namespace corank
