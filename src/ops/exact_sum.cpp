#include "ops/exact_sum.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace corank {
namespace {

constexpr std::uint32_t max_uncarried = 1u << 30;  // a digit has 31 bits to spare
constexpr int min_exponent = -1074;
constexpr std::uint64_t digit_mask = 0xffffffff;

}  // namespace

void ExactSum::add(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const bool negative = bits >> 63 != 0;
  const auto exponent = static_cast<unsigned>(bits >> 52 & 0x7ff);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff) {
    if (mantissa != 0)
      nan_ = true;
    else
      infinite_[negative] = true;
    return;
  }
  if (exponent != 0) mantissa |= std::uint64_t{1} << 52;
  const unsigned shift = exponent != 0 ? exponent - 1 : 0;
  auto shifted = static_cast<unsigned __int128>(mantissa) << shift % 32;
  for (unsigned at = shift / 32; shifted != 0; ++at, shifted >>= 32) {
    const auto digit = static_cast<std::int64_t>(static_cast<std::uint64_t>(shifted) & digit_mask);
    digit_[at] += negative ? -digit : digit;
  }
  if (++uncarried_ == max_uncarried) carry();
}

void ExactSum::add(const ExactSum& other) {
  ExactSum carried = other;
  carried.carry();
  carry();
  for (int at = 0; at < digits; ++at) digit_[at] += carried.digit_[at];
  carry();
  nan_ |= other.nan_;
  infinite_[0] |= other.infinite_[0];
  infinite_[1] |= other.infinite_[1];
}

// Propagates carries: leaves every digit but the last in [0, 2^32); the last one holds the sign.
void ExactSum::carry() {
  for (int at = 0; at + 1 < digits; ++at) {
    digit_[at + 1] += digit_[at] >> 32;
    digit_[at] &= static_cast<std::int64_t>(digit_mask);
  }
  uncarried_ = 0;
}

ExactSum::Rounding ExactSum::round() const {
  ExactSum sum = *this;
  sum.carry();
  const bool negative = sum.digit_[digits - 1] < 0;
  if (negative) {
    for (std::int64_t& digit : sum.digit_) digit = -digit;
    sum.carry();
  }
  int last = digits - 1;
  while (last >= 0 && sum.digit_[last] == 0) --last;
  if (last < 0) return {false, 0, false, 0};
  const auto digit = [&](int at) {
    return at >= 0 ? static_cast<std::uint64_t>(sum.digit_[at]) : 0;
  };
  // Three digits, the first of which is not 0, have at least 65 bits.
  const auto three =
      static_cast<unsigned __int128>(digit(last)) << 64 | digit(last - 1) << 32 | digit(last - 2);
  const int extra = std::bit_width(digit(last));
  bool more = (three & ((static_cast<unsigned __int128>(1) << extra) - 1)) != 0;
  for (int at = 0; at < last - 2 && !more; ++at) more = sum.digit_[at] != 0;
  return {negative, static_cast<std::uint64_t>(three >> extra), more,
          min_exponent + 32 * (last - 2) + extra};
}

bool ExactSum::special(double& result) const {
  if (nan_ || (infinite_[0] && infinite_[1]))
    result = std::numeric_limits<double>::quiet_NaN();
  else if (infinite_[0] || infinite_[1])
    result = infinite_[0] ? std::numeric_limits<double>::infinity()
                          : -std::numeric_limits<double>::infinity();
  else
    return false;
  return true;
}

double ExactSum::as_double() const {
  double result;
  if (special(result)) return result;
  const Rounding sum = round();
  // The lowest bit is a sticky bit: it only decides ties in the rounding. Sums below the normal
  // numbers have no more bits than fit.
  result = std::ldexp(static_cast<double>(sum.top | (sum.more ? 1 : 0)), sum.exponent);
  return sum.negative ? -result : result;
}

float ExactSum::as_float() const {
  double result;
  if (special(result)) return static_cast<float>(result);
  const Rounding sum = round();
  // Rounds to odd first, so that the second rounding, to far fewer bits, is correct.
  constexpr std::uint64_t dropped = (std::uint64_t{1} << 11) - 1;
  std::uint64_t top = sum.top & ~dropped;
  if (sum.more || (sum.top & dropped) != 0) top |= dropped + 1;
  result = std::ldexp(static_cast<double>(top), sum.exponent);
  return static_cast<float>(sum.negative ? -result : result);
}

}  // namespace corank
