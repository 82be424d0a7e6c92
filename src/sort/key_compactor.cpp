#include "sort/key_compactor.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace corank {
namespace {

constexpr std::size_t batch = 64;  // records whose words stay in L1
// Min bits of the next words that are worth reading them: a byte, which is what text varies by.
constexpr unsigned min_next_bits = 8;

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
  num_words_ = 1;
  words_[0].resize(count);
  keys_.read(word, records, count, words_[0].data());
}

// Reads up to `count` words of each key after the first. Returns whether no key has more words.
bool KeyCompactor::read_next(std::size_t count) {
  if (!refs_) count = std::min<std::size_t>(count, keys_.words() - 1 - word_);
  num_words_ = 1 + count;
  const auto next = std::span(words_).subspan(1, count);
  for (std::vector<std::uint64_t>& words : next) words.resize(words_[0].size());
  if (refs_)
    return refs_->read_next(word_, {reinterpret_cast<const PrefixRef*>(records_), words_[0].size()},
                            words_[0], next);
  std::uint32_t word = word_;
  for (std::vector<std::uint64_t>& words : next)
    keys_.read(++word, records_, words.size(), words.data());
  return word + 1 == keys_.words();
}

bool KeyCompactor::firsts_are_equal() const {
  return std::ranges::all_of(words_[0], [&](std::uint64_t word) { return word == first(); });
}

bool KeyCompactor::choose_bits(unsigned room, unsigned place) {
  assert(room != 0 && room + place < 64);  // words compare as signed numbers
  std::array<std::uint64_t, max_words> varying{varying_bits(words_[0])};
  auto bits = static_cast<unsigned>(std::popcount(varying[0]));
  bool is_whole = !refs_ && word_ + 1 == keys_.words();
  // The first words often have bits enough, or the second ones. All others are read at once, since
  // columns must be found again, unless the bits so far are likely to tell 2^place records apart.
  for (const auto& [count, enough] :
       {std::pair{std::size_t{1}, room}, std::pair{max_words - 1, place + min_next_bits}}) {
    if (is_whole || bits >= enough || bits + min_next_bits > room) break;
    is_whole = read_next(count);
    bits = 0;
    for (std::size_t word = 0; word < num_words_; ++word) {
      varying[word] = varying_bits(words_[word]);
      bits += static_cast<unsigned>(std::popcount(varying[word]));
    }
  }
  groups_.clear();
  unsigned left = std::min(bits, room);
  for (std::size_t word = 0; word < num_words_; ++word)
    for (std::uint64_t differ = varying[word]; differ != 0 && left != 0;) {
      const auto top = static_cast<unsigned>(std::countl_zero(differ));
      const unsigned size = std::min(static_cast<unsigned>(std::countl_one(differ << top)), left);
      const unsigned from = 64 - top - size;
      const std::uint64_t ones = ~std::uint64_t{0} >> (64 - size);
      left -= size;
      groups_.push_back({word, from, left + place, ones});
      differ &= ~(ones << from);
    }
  assert(left == 0);
  return bits <= room && is_whole;
}

void KeyCompactor::put(std::span<std::uint64_t> to) const {
  assert(to.size() == words_[0].size());
  for (std::size_t first = 0; first < to.size(); first += batch) {
    const std::size_t end = std::min(first + batch, to.size());
    std::fill(&to[first], &to[0] + end, 0);
    for (const auto [word, from, place, ones] : groups_)
      for (std::size_t i = first; i < end; ++i) to[i] |= (words_[word][i] >> from & ones) << place;
  }
}

}  // namespace corank
