#include "merge/key_compactor.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace corank {
namespace {

constexpr std::uint64_t batch = 64;

}  // namespace

void KeyCompactor::reset(std::uint64_t records) {
  count_ = 0;
  whole_ = true;
  firsts_.resize(std::max(firsts_.size(), records));
  seconds_.resize(firsts_.size());
}

bool KeyCompactor::read(const Stretch& entries, std::uint32_t word) {
  assert(count_ + entries.count <= firsts_.size());
  const bool whole =
      text_->read_two(word, {reinterpret_cast<const PrefixRef*>(entries.records), entries.count},
                      &firsts_[count_], &seconds_[count_]);
  if (!ascend(entries, whole)) return false;
  whole_ = whole_ && whole;
  count_ += entries.count;
  return true;
}

void KeyCompactor::read_unordered(const std::byte* records, std::uint64_t count,
                                  std::uint32_t word) {
  assert(count_ + count <= firsts_.size());
  std::uint64_t *const firsts = &firsts_[count_], *const seconds = &seconds_[count_];
  if (text_) {
    const std::span entries(reinterpret_cast<const PrefixRef*>(records), count);
    whole_ &= text_->read_two(word, entries, firsts, seconds);
  } else {
    keys_.read(word, records, count, firsts);
    if (word + 1 < keys_.words())
      keys_.read(word + 1, records, count, seconds);
    else
      std::fill_n(seconds, count, 0);
    whole_ &= word + 2 >= keys_.words();
  }
  count_ += count;
}

bool KeyCompactor::firsts_are_equal() const {
  assert(count_ != 0);
  return std::ranges::all_of(std::span(firsts_).first(count_),
                             [&](std::uint64_t word) { return word == firsts_.front(); });
}

// Returns whether the words just read ascend. Where both words are equal, compares the keys, unless
// the words are the `whole` keys.
bool KeyCompactor::ascend(const Stretch& entries, bool whole) const {
  for (std::uint64_t i = 1; i < entries.count; ++i) {
    const std::uint64_t a = firsts_[count_ + i - 1], b = firsts_[count_ + i];
    if (a < b) continue;
    const std::uint64_t next_a = seconds_[count_ + i - 1], next_b = seconds_[count_ + i];
    const std::byte* const entry = entries.records + i * sizeof(PrefixRef);
    if (b < a || next_b < next_a ||
        (next_a == next_b && !whole && keys_.less(entry, entry - sizeof(PrefixRef))))
      return false;
  }
  return true;
}

bool KeyCompactor::choose_bits(unsigned room, unsigned place) {
  assert(room != 0 && room + place < 64);  // words compare as signed numbers
  std::uint64_t any[2] = {0, 0}, all[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
  for (std::uint64_t i = 0; i < count_; ++i) {
    any[0] |= firsts_[i], all[0] &= firsts_[i];
    any[1] |= seconds_[i], all[1] &= seconds_[i];
  }
  const auto bits =
      static_cast<unsigned>(std::popcount(any[0] ^ all[0]) + std::popcount(any[1] ^ all[1]));
  unsigned left = std::min(bits, room);
  for (int half = 0; half < 2; ++half) {
    groups_[half].clear();
    for (std::uint64_t differ = any[half] ^ all[half]; differ != 0 && left != 0;) {
      const auto top = static_cast<unsigned>(std::countl_zero(differ));
      const unsigned size = std::min(static_cast<unsigned>(std::countl_one(differ << top)), left);
      const unsigned from = 64 - top - size;
      const std::uint64_t ones = ~std::uint64_t{0} >> (64 - size);
      left -= size;
      groups_[half].push_back({from, left + place, ones});
      differ &= ~(ones << from);
    }
  }
  assert(left == 0);
  return bits <= room && whole_;
}

void KeyCompactor::put(std::uint64_t first, std::uint64_t count, std::uint64_t low,
                       std::uint64_t* to) const {
  assert(first + count <= count_);
  for (const std::uint64_t end = first + count; first < end; first += batch, to += batch) {
    const std::uint64_t in_batch = std::min(end - first, batch);
    std::fill_n(to, in_batch, low);
    for (int half = 0; half < 2; ++half) {
      const std::uint64_t* const words = &(half == 0 ? firsts_ : seconds_)[first];
      for (const auto [from, place, ones] : groups_[half])
        for (std::uint64_t i = 0; i < in_batch; ++i) to[i] |= (words[i] >> from & ones) << place;
    }
  }
}

}  // namespace corank
