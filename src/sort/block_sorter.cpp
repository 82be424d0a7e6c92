#include "sort/block_sorter.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <type_traits>

#include "format/key_words.hpp"
#include "format/rows.hpp"
#include "util/prefetch.hpp"

namespace corank {
namespace {

// Prefetches the start of a record to L1; all of it, if it is short.
void prefetch_record(const PrefixRef& ref) {
  constexpr std::uint64_t max_bytes = 256;
  const std::byte* const record = record_of(ref);
  const std::uint64_t bytes = std::min(short_bytes(ref), max_bytes);
  prefetch<1>(record, bytes);
  __builtin_prefetch(record + bytes - 1);  // records begin anywhere in a cache line
}

// Calls copy with the record size, which is a constant for common sizes: copies of a constant size
// are much faster for small records.
template <class Copy>
void with_record_bytes(std::uint32_t bytes, Copy copy) {
  switch (bytes) {
    case 8:
      return copy(std::integral_constant<std::uint32_t, 8>{});
    case 16:
      return copy(std::integral_constant<std::uint32_t, 16>{});
    case 24:
      return copy(std::integral_constant<std::uint32_t, 24>{});
    case 32:
      return copy(std::integral_constant<std::uint32_t, 32>{});
    default:
      return copy(bytes);
  }
}

}  // namespace

BlockSorter::BlockSorter(const detail::KeyWords& keys)
    : keys_(keys),
      merger_(keys, best_word_kernel(), false),
      compactor_(keys),
      record_sorter_(keys, best_word_kernel()) {}

SortedBlock BlockSorter::sort(std::span<const Segment> segments, std::span<std::byte> out) {
  assert(!segments.empty() && !out.empty());
  join(segments);
  sort_words();
  return keys_.are_refs() ? gather_text(out) : gather(out);
}

std::optional<SortedBlock> BlockSorter::in_place(const Segment& segment) const {
  constexpr std::uint64_t sample_records = 64;
  const Chunk& chunk = *segment.chunk;
  const std::byte* const first = chunk.records() + segment.first * keys_.record_bytes();
  // Most records that are out of order show it soon.
  for (const std::uint64_t count : {std::min(segment.count, sample_records), segment.count})
    if (!merger_.ascends({first, count, false})) return std::nullopt;
  SortedBlock block{bytes_of(keys_, first, segment.count), segment.count};
  if (keys_.are_refs()) {
    const auto* const refs = reinterpret_cast<const PrefixRef*>(first);
    block.first_ref = refs[0];
    block.last_ref = refs[segment.count - 1];
  }
  return block;
}

// Makes the records, or the references to them, contiguous.
void BlockSorter::join(std::span<const Segment> segments) {
  std::uint64_t count = 0;
  for (const Segment& segment : segments) count += segment.count;
  assert(count != 0);
  words_.resize(count);
  position_bits_ = static_cast<unsigned>(std::bit_width(count - 1));
  position_mask_ = (std::uint64_t{1} << position_bits_) - 1;
  const std::uint64_t record_bytes = keys_.record_bytes();
  const auto records_of = [&](const Segment& segment) {
    return segment.chunk->records() + segment.first * record_bytes;
  };
  records_ = records_of(segments.front());
  if (segments.size() == 1) return;
  joined_.resize(count * record_bytes);
  records_ = joined_.data();
  std::byte* to = joined_.data();
  for (const Segment& segment : segments)
    to = std::copy_n(records_of(segment), segment.count * record_bytes, to);
}

// Sets words_ to the order of the records. Starts at the first word in which some keys differ.
void BlockSorter::sort_words() {
  const std::uint64_t count = words_.size();
  std::uint32_t word = 0;
  for (;;) {
    compactor_.read(records_, count, word);
    if (!compactor_.firsts_are_equal()) break;
    word = keys_.next_word(word, compactor_.first());
    if (word >= keys_.words()) break;
  }
  if (word >= keys_.words()) {
    for (std::uint64_t i = 0; i < count; ++i) words_[i] = i;
    if (word == keys_.words()) sort_tie(words_, word);
    return;
  }
  const bool whole = compactor_.choose_bits(63 - position_bits_, position_bits_);
  compactor_.put(words_);
  for (std::uint64_t i = 0; i < count; ++i) words_[i] |= i;
  const auto falls = [this](std::uint64_t a, std::uint64_t b) {
    return b >> position_bits_ < a >> position_bits_;
  };
  if (std::ranges::adjacent_find(words_, std::not_fn(falls)) == words_.end()) {
    std::ranges::reverse(words_);
  } else if (!std::ranges::is_sorted(words_)) {
    sorter_(words_.data(), count, hwy::SortAscending());
  }
  if (!whole) sort_ties(word);
}

// Sorts each group of records with equal key bits by their keys from `word` on.
void BlockSorter::sort_ties(std::uint32_t word) {
  for (std::size_t first = 0, end; first < words_.size(); first = end) {
    const std::uint64_t bits = words_[first] >> position_bits_;
    end = first + 1;
    while (end < words_.size() && words_[end] >> position_bits_ == bits) ++end;
    if (end - first > 1) sort_tie(std::span(words_).subspan(first, end - first), word);
  }
}

void BlockSorter::sort_tie(std::span<std::uint64_t> words, std::uint32_t word) {
  ties_.clear();
  for (const std::uint64_t tied : words) ties_.push_back({record(position(tied)), position(tied)});
  // Most ties are of equal keys, which are in order already.
  const auto descends = [this](const RecordRef& a, const RecordRef& b) {
    return keys_.less(b.record, a.record);
  };
  if (std::ranges::adjacent_find(ties_, descends) == ties_.end()) return;
  record_sorter_.sort(ties_, word);
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = (words[i] & ~position_mask_) | ties_[i].run;
}

SortedBlock BlockSorter::gather(std::span<std::byte> out) const {
  assert(out.size() == words_.size() * keys_.record_bytes());
  with_record_bytes(keys_.record_bytes(), [&](auto record_bytes) {
    std::byte* to = out.data();
    for (const std::uint64_t word : words_) {
      std::memcpy(to, records_ + position(word) * record_bytes, record_bytes);
      to += record_bytes;
    }
  });
  return {out, words_.size()};
}

// The records lie anywhere in the block, which L2 does not hold.
SortedBlock BlockSorter::gather_text(std::span<std::byte> out) const {
  constexpr std::size_t ahead = 8;  // records; see docs/tuning.md
  const TextLayout& layout = *keys_.ref_layout();
  GatherWriter writer(layout, out.data(), out.data() + out.size());
  const std::size_t end = words_.size();
  writer.write_each(0, end, [&](std::size_t i) {
    __builtin_prefetch(row(std::min(i + 2 * ahead, end - 1)));
    prefetch_record(*reinterpret_cast<const PrefixRef*>(row(std::min(i + ahead, end - 1))));
    return row(i);
  });
  assert(writer.position() == out.data() + out.size());
  const auto ref_at = [&](std::size_t i, const std::byte* at) {
    const auto& ref = *reinterpret_cast<const PrefixRef*>(row(i));
    return make_entry(ref.word, at, record_bytes(layout, ref));
  };
  SortedBlock block{out, words_.size()};
  const std::size_t last = words_.size() - 1;
  block.first_ref = ref_at(0, out.data());
  block.last_ref =
      ref_at(last, out.data() + out.size() -
                       record_bytes(layout, *reinterpret_cast<const PrefixRef*>(row(last))));
  return block;
}

}  // namespace corank
