#include "merge/record_sort.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <functional>

namespace corank {

Packing packing_of(std::uint64_t least, std::uint64_t greatest, unsigned run_bits) {
  assert(run_bits < 63);
  // The sign bit stays clear: words compare as signed numbers.
  const unsigned room = 63 - run_bits;
  const auto range_bits = static_cast<unsigned>(std::bit_width(greatest - least));
  return {least, range_bits > room ? range_bits - room : 0, run_bits};
}

void RecordSorter::sort(std::span<RecordRef> records, std::uint32_t word) {
  assert(pending_.empty());
  pending_.push_back({records, word});
  while (!pending_.empty()) {
    const Pending next = pending_.back();
    pending_.pop_back();
    if (next.records.size() <= 1) continue;
    if (next.word < keys_.words())
      sort_by_word(next.records, next.word);
    else if (next.word == keys_.words())
      std::ranges::stable_sort(next.records, [this](const RecordRef& a, const RecordRef& b) {
        return keys_.less(a.record, b.record);
      });
  }
}

void RecordSorter::read(std::span<const RecordRef> records, std::uint32_t word,
                        std::uint32_t last_word) {
  words_.resize(std::max(words_.size(), records.size()));
  last_words_.resize(words_.size());
  std::array<const std::byte*, 64> pointers;
  for (std::size_t first = 0; first < records.size(); first += pointers.size()) {
    const std::size_t count = std::min(records.size() - first, pointers.size());
    for (std::size_t i = 0; i < count; ++i) pointers[i] = records[first + i].record;
    const auto gathered = std::span(pointers).first(count);
    keys_.gather(word, gathered, words_.data() + first);
    if (last_word != word) keys_.gather(last_word, gathered, last_words_.data() + first);
  }
}

// Sorts by one word; groups that are still equal become pending.
void RecordSorter::sort_by_word(std::span<RecordRef> records, std::uint32_t word) {
  assert(word < keys_.words());
  // The key's last word is read together with the one before it, while the record is in cache.
  const std::uint32_t last_word =
      word + 1 < keys_.words() && keys_.is_last(word + 1) ? word + 1 : word;
  const bool whole = keys_.is_last(last_word);
  read(records, word, last_word);
  const std::span<const std::uint64_t> words = std::span(words_).first(records.size());
  const std::uint64_t* const last_words = last_word == word ? words_.data() : last_words_.data();
  // Groups of equal values that may be out of order are sorted by next_word(value).
  const auto push_equal = [&](auto value, auto index, auto next_word) {
    for (std::size_t first = 0, end; first < records.size(); first = end) {
      bool ordered = true;
      for (end = first + 1; end < records.size() && value(end) == value(first); ++end) {
        const std::size_t a = index(end - 1), b = index(end);
        ordered = ordered && (words[a] < words[b] ||
                              (whole && words[a] == words[b] && last_words[a] <= last_words[b]));
      }
      if (!ordered)
        pending_.push_back({records.subspan(first, end - first), next_word(value(first))});
    }
  };
  const auto descent = [&](std::size_t i) { return words[i] < words[i - 1]; };
  std::size_t runs = 1;
  for (std::size_t i = 1; i < words.size(); ++i) runs += descent(i);
  if (runs == 1) {
    push_equal([&](std::size_t i) { return words[i]; }, std::identity{},
               [&](std::uint64_t value) { return keys_.next_word(word, value); });
    return;
  }
  const auto [least, greatest] = std::ranges::minmax(words);
  const Packing packing =
      packing_of(least, greatest, static_cast<unsigned>(std::bit_width(words.size() - 1)));
  const auto pack = [&](std::size_t i) {
    return static_cast<Word>((words[i] - least) >> packing.shift << packing.run_bits | i);
  };
  merger_.reset(words.size(), runs);
  for (std::size_t first = 0, end; first < words.size(); first = end) {
    end = first + 1;
    while (end < words.size() && !descent(end)) ++end;
    Word* to = merger_.add(pack(first), end - first);
    for (std::size_t i = first; i < end; ++i) *to++ = pack(i);
  }
  const std::span<const Word> merged = merger_.merge();
  assert(merged.size() == records.size());
  sorted_.resize(std::max(sorted_.size(), records.size()));
  const auto index = [&](std::size_t i) {
    return static_cast<std::size_t>(merged[i] & ((Word{1} << packing.run_bits) - 1));
  };
  for (std::size_t i = 0; i < merged.size(); ++i) sorted_[i] = records[index(i)];
  std::copy_n(sorted_.begin(), records.size(), records.begin());
  // Records that differ only in the bits that were shifted out are sorted by this word again.
  push_equal([&](std::size_t i) { return merged[i] >> packing.run_bits; }, index,
             [&](Word value) {
               return packing.shift != 0
                          ? word
                          : keys_.next_word(word, least + static_cast<std::uint64_t>(value));
             });
}

}  // namespace corank
