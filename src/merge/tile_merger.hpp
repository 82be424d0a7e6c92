// Merges what one tile takes of its segments, in cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "corank/algorithm/multiway_merge.hpp"
#include "merge/row_span.hpp"
#include "merge/word_kernel.hpp"
#include "ops/text_operators.hpp"
#include "ops/tile_operators.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// Whether what is merged is read at once, so that it had better be in the caches, or later.
enum class Output { read_next, read_later };

// What is put into memory to stay there, or to wait for a device. Less than this, with its runs, is
// in the third cache when it is read, as a rule: to go past the caches makes merging up to 8 MiB of
// 100-byte records take 1.2 to 2.9 times as long, on a Xeon with much cache, and 64 MiB 0.8 times.
constexpr Output output_to_rest(std::uint64_t bytes) {
  return bytes < std::uint64_t{16} << 20 ? Output::read_next : Output::read_later;
}

// What merging a record reads: of text its entry, and the line of memory that has the rest of its
// key.
inline std::uint64_t bytes_to_merge(const detail::KeyWords& keys) {
  return keys.text() ? sizeof(PrefixRef) + 64 : keys.record_bytes();
}

// Not thread-safe: one for each thread, so that its scratch is reused.
class TileMerger {
 public:
  virtual ~TileMerger() = default;

  // Merges `stretches`, stably, into `out`. Returns the sum of their records' fingerprints, 0
  // without a `sum`; nothing if one of them is out of order, also with its predecessor: what is in
  // `out` then means nothing. Where there is a shaper, it is given what was merged while it is in
  // cache, and `out` is its place; of entries, there is a text shaper.
  virtual std::optional<std::uint64_t> merge(std::span<const Stretch> stretches, std::byte* out,
                                             TileOperators* shaper = nullptr,
                                             FingerprintSum sum = nullptr,
                                             TextTileOperators* text_shaper = nullptr) = 0;
};

// `keys` must outlive the merger.
std::unique_ptr<TileMerger> make_tile_merger(const detail::KeyWords& keys, Output output,
                                             const WordKernel& kernel = best_word_kernel());

}  // namespace corank
