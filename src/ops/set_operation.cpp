#include "ops/set_operation.hpp"

#include <algorithm>
#include <utility>

#include "corank/error.hpp"
#include "format/key_order.hpp"
#include "util/gallop.hpp"

namespace corank {

SetGroup::Range SetGroup::take(const SetOperation& operation, const SetPiece& next) {
  if (runs_ == 0 || next.run != run_) {
    if (runs_ != 0) {
      longest_ = std::max(longest_, taken_);
      shortest_ = std::min(shortest_, taken_);
      all_ += taken_;
    }
    ++runs_;
    run_ = next.run;
    taken_ = 0;
  }
  const std::uint64_t first = std::exchange(taken_, taken_ + next.count);
  const auto without = [&](std::uint64_t bound) {
    return std::min(bound - std::min(bound, first), next.count);
  };
  if (operation.kind == OnEqual::unite) return {without(longest_), next.count};
  if (run_ + 1 != operation.runs) return {0, 0};
  if (operation.kind == OnEqual::subtract) return {without(all_), next.count};
  return {0, runs_ == operation.runs ? without(shortest_) : 0};
}

GroupRunCounter::GroupRunCounter(const KeyLayout& layout)
    : layout_(layout),
      first_word_(first_word_layout(layout)),
      is_piece_(first_word_.pieces_count == 1),
      is_key_(first_word_.pieces_count == layout.pieces_count && !layout.has_tail()) {}

std::uint64_t GroupRunCounter::word_of(const std::byte* record) const {
  return is_piece_ ? normalise(layout_.pieces[0], record) : encode<1>(first_word_, record).word[0];
}

void GroupRunCounter::add(std::uint32_t run, const std::byte* records, std::uint64_t count) {
  spans_.push_back({run, nullptr, records + count * layout_.record_bytes});
  words_.push_back(0);
  move_to(words_.size() - 1, records);
}

void GroupRunCounter::move_to(std::size_t span, const std::byte* next) {
  spans_[span].next = next;
  if (next != spans_[span].end) words_[span] = word_of(next);
}

std::uint64_t GroupRunCounter::count_equal(std::size_t span, const std::byte* record,
                                           std::uint64_t word, bool again) {
  const Span& of = spans_[span];
  if (of.next == of.end) return 0;
  const std::uint64_t record_bytes = layout_.record_bytes;
  const auto remaining = [&] {
    return static_cast<std::uint64_t>(of.end - of.next) / record_bytes;
  };
  if (words_[span] < word || !is_key_) {
    move_to(span, of.next + record_bytes * gallop(remaining(), 1, [&](std::uint64_t i) {
                              const std::byte* const other = of.next + i * record_bytes;
                              return is_key_ ? word_of(other) < word
                                             : record_less(layout_, other, record);
                            }));
    if (of.next == of.end || words_[span] != word) return 0;
  }
  const std::uint64_t equal = gallop(remaining(), 1, [&](std::uint64_t i) {
    const std::byte* const other = of.next + i * record_bytes;
    return is_key_ ? i == 0 || word_of(other) == word : !record_less(layout_, record, other);
  });
  if (!again) move_to(span, of.next + equal * record_bytes);
  return equal;
}

std::span<const SetPiece> GroupRunCounter::count(const std::byte* record, std::uint64_t word,
                                                 std::uint64_t skipped, std::uint64_t count,
                                                 bool again) {
  pieces_.clear();
  for (std::size_t i = 0; i < spans_.size() && count != 0; ++i) {
    if (words_[i] > word) continue;
    const std::uint64_t equal = count_equal(i, record, word, again);
    const std::uint64_t before = std::min(equal, skipped);
    const std::uint64_t taken = std::min(equal - before, count);
    skipped -= before;
    count -= taken;
    if (taken == 0) continue;
    if (!pieces_.empty() && pieces_.back().run == spans_[i].run)
      pieces_.back().count += taken;
    else
      pieces_.push_back({spans_[i].run, taken});
  }
  if (count != 0) throw Corrupted("a unit's merged records are not those of its runs");
  return pieces_;
}

std::uint64_t GroupRunCounter::count_in_last(std::uint32_t run, const std::byte* record,
                                             std::uint64_t word) {
  std::uint64_t equal = 0;
  for (std::size_t i = spans_.size(); i-- > 0 && spans_[i].run == run;)
    if (words_[i] <= word) equal += count_equal(i, record, word, false);
  return equal;
}

}  // namespace corank
