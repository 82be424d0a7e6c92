#include "sort/key_compactor.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace corank {
namespace {

constexpr std::size_t batch = 64;  // records whose words stay in L1
// Min bits of second words that are worth reading them: a byte, which is what text varies by.
constexpr int min_second_bits = 8;

std::uint64_t varying_bits(std::span<const std::uint64_t> words) {
  std::uint64_t differ = 0;
  for (const std::uint64_t word : words) differ |= word ^ words.front();
  return differ;
}

}  // namespace

void KeyCompactor::read(const std::byte* records, std::uint64_t count, std::uint32_t word) {
  assert(count != 0);
  records_ = records;
  word_ = word;
  firsts_.resize(count);
  keys_.read(word, records, count, firsts_.data());
}

// Reads the second words. Returns whether no key has more words than both.
bool KeyCompactor::read_seconds() {
  seconds_.resize(firsts_.size());
  if (refs_)
    return refs_->read_next(word_, {reinterpret_cast<const PrefixRef*>(records_), firsts_.size()},
                            firsts_.data(), seconds_.data());
  keys_.read(word_ + 1, records_, firsts_.size(), seconds_.data());
  return word_ + 2 >= keys_.words();
}

bool KeyCompactor::firsts_are_equal() const {
  return std::ranges::all_of(firsts_, [&](std::uint64_t word) { return word == firsts_.front(); });
}

bool KeyCompactor::choose_bits(unsigned room, unsigned place) {
  assert(room != 0 && room + place < 64);  // words compare as signed numbers
  std::uint64_t varying[2] = {varying_bits(firsts_), 0};
  bool is_whole = !refs_ && word_ + 1 == keys_.words();
  // The first words often have bits enough.
  if (!is_whole && std::popcount(varying[0]) + min_second_bits <= static_cast<int>(room)) {
    is_whole = read_seconds();
    varying[1] = varying_bits(seconds_);
  }
  const auto bits = static_cast<unsigned>(std::popcount(varying[0]) + std::popcount(varying[1]));
  unsigned left = std::min(bits, room);
  for (int half = 0; half < 2; ++half) {
    groups_[half].clear();
    for (std::uint64_t differ = varying[half]; differ != 0 && left != 0;) {
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
  return bits <= room && is_whole;
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
