// Merges the row spans of one tile, in cache.
//
// A TileMerger clusters overlapping row spans, partitions each cluster into blocks, and merges
// these by key words. Not thread-safe; each thread needs its own, which reuses its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "corank/algorithm/multiway_merge.hpp"
#include "merge/row_span.hpp"
#include "merge/word_kernel.hpp"
#include "run/tile_sink.hpp"
#include "util/math.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// When the output is read: next, so that it belongs in cache, or later.
enum class Output { read_next, read_later };

// Returns the kind of output that stays in memory or waits for a device. Non-temporal stores are
// used only for outputs that, with their runs, would not stay in L3. Tuned by bench-cpu; see
// docs/tuning.md.
constexpr Output output_to_rest(std::uint64_t bytes) {
  return bytes < 16 * MiB ? Output::read_next : Output::read_later;
}

// Returns the bytes that merging a record reads: the record, or its prefix reference and the cache
// line with the rest of its key.
inline std::uint64_t bytes_to_merge(const detail::KeyWords& keys) {
  return keys.are_refs() ? sizeof(PrefixRef) + 64 : keys.record_bytes();
}

class TileMerger {
 public:
  virtual ~TileMerger() = default;

  // Merges `spans` stably into `out`. Returns the sum of the records' fingerprints, 0 without a
  // `sum`. Returns nothing if a row span, or its first record's predecessor, is out of order; the
  // contents of `out` are then undefined. `sink`, unless null, takes the merged rows while they are
  // in cache; `out` must be its memory.
  virtual std::optional<std::uint64_t> merge(std::span<const SortedSpan> spans, std::byte* out,
                                             TileSink* sink = nullptr,
                                             FingerprintSum sum = nullptr) = 0;
};

// `keys` must outlive the merger.
std::unique_ptr<TileMerger> make_tile_merger(const detail::KeyWords& keys, Output output,
                                             const WordKernel& kernel = best_word_kernel());

}  // namespace corank
