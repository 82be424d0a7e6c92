// Merges 8-byte records that consist of a single-word key. Not thread-safe; a merger reuses its
// memory.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "merge/nontemporal_copy.hpp"
#include "merge/row_span.hpp"
#include "merge/word_merger.hpp"
#include "run/tile_sink.hpp"

namespace corank {

class SingleWordMerger {
 public:
  // Emits words by non-temporal stores if `streams` and they pay off; WordMerger::merge_front()
  // never uses them.
  SingleWordMerger(const detail::KeyWords& keys, const WordKernel& kernel, bool streams)
      : key_(*keys.single_word_key()),
        streams_(streams && streaming_overlaps()),
        kernel_(kernel),
        merger_(kernel) {
    assert(fits(keys));
  }
  static bool fits(const detail::KeyWords& keys) {
    return keys.single_word_key() && keys.record_bytes() == 8;
  }

  bool ascends(const SortedSpan& span) const {
    return kernel_.ascend(span.records - 8 * span.predecessor, 8, span.count + span.predecessor,
                          key_.big_endian, key_.flip ^ sign_bit);
  }

  // Merges `records` records of a block to `out`, which it advances. Calls visit(span) for each row
  // span while it is in L1. Returns false if a run is out of order.
  template <class Visit>
  bool merge(std::span<const SortedSpan> block, std::uint64_t records, std::byte*& out,
             const std::byte* /*end*/, RefBatch* /*refs*/, Visit visit) {
    merger_.reset(records, block.size());
    for (std::size_t run = 0; run < block.size(); ++run) {
      prefetch_ahead(block, run, 8);
      const SortedSpan& span = block[run];
      if (span.count == 0) continue;
      const std::uint64_t first = word(span.records);
      if (span.predecessor && first < word(span.records - 8)) return false;
      if (!kernel_.read_ascending(span.records, span.count, key_.big_endian, key_.flip ^ sign_bit,
                                  merger_.add(static_cast<Word>(first ^ sign_bit), span.count)))
        return false;
      visit(span);
    }
    if (!key_.big_endian) {
      merger_.merge_into(reinterpret_cast<Word*>(out), static_cast<Word>(key_.flip ^ sign_bit),
                         streams_);
      out += 8 * records;
      return true;
    }
    for (const Word merged : merger_.merge()) {
      const std::uint64_t value =
          detail::byte_swap(static_cast<std::uint64_t>(merged) ^ key_.flip ^ sign_bit);
      std::memcpy(out, &value, 8);
      out += 8;
    }
    return true;
  }

  // Merges a front of two runs to `out`. Returns an empty front if there is none to merge, and
  // nothing if a run is out of order.
  std::optional<Front> merge_front(const SortedSpan& a, const SortedSpan& b, std::byte* out) {
    if (key_.big_endian || (key_.flip != 0 && key_.flip != sign_bit)) return Front{};
    for (const SortedSpan& span : {a, b})
      if (span.predecessor && word(span.records) < word(span.records - 8)) return std::nullopt;
    const auto words = [](const SortedSpan& span) {
      return std::span(reinterpret_cast<const Word*>(span.records), span.count);
    };
    return merger_.merge_front(words(a), words(b), key_.flip == 0, reinterpret_cast<Word*>(out));
  }

 private:
  static constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63;

  std::uint64_t word(const std::byte* record) const { return detail::word_of(key_, record); }

  detail::SingleWordKey key_;
  const bool streams_;
  const WordKernel& kernel_;
  WordMerger merger_;
};

}  // namespace corank
