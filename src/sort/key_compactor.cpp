#include "sort/key_compactor.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace corank {
namespace {

constexpr std::size_t batch = 64;  // records whose words stay in L1

}  // namespace

void KeyCompactor::read(const std::byte* records, std::uint64_t count, std::uint32_t word) {
  assert(count != 0);
  firsts_.resize(count);
  seconds_.resize(count);
  if (refs_) {
    const std::span entries(reinterpret_cast<const PrefixRef*>(records), count);
    whole_ = refs_->read_two(word, entries, firsts_.data(), seconds_.data());
    return;
  }
  keys_.read(word, records, count, firsts_.data());
  if (word + 1 < keys_.words())
    keys_.read(word + 1, records, count, seconds_.data());
  else
    std::ranges::fill(seconds_, 0);
  whole_ = word + 2 >= keys_.words();
}

bool KeyCompactor::firsts_are_equal() const {
  return std::ranges::all_of(firsts_, [&](std::uint64_t word) { return word == firsts_.front(); });
}

bool KeyCompactor::choose_bits(unsigned room, unsigned place) {
  assert(room != 0 && room + place < 64);  // words compare as signed numbers
  std::uint64_t any[2] = {0, 0}, all[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
  for (std::size_t i = 0; i < firsts_.size(); ++i) {
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

void KeyCompactor::put(std::span<std::uint64_t> to) const {
  assert(to.size() == firsts_.size());
  for (std::size_t first = 0; first < to.size(); first += batch) {
    const std::size_t end = std::min(first + batch, to.size());
    std::fill(&to[first], &to[0] + end, 0);
    for (int half = 0; half < 2; ++half) {
      const std::vector<std::uint64_t>& words = half == 0 ? firsts_ : seconds_;
      for (const auto [from, place, ones] : groups_[half])
        for (std::size_t i = first; i < end; ++i) to[i] |= (words[i] >> from & ones) << place;
    }
  }
}

}  // namespace corank
