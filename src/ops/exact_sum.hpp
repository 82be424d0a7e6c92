// Sums of floating-point numbers that are exact until they are rounded once, so their order does
// not matter.
#pragma once

#include <cstdint>

namespace corank {

// A fixed-point number that is wide enough for a sum of 2^64 doubles.
// Source: R. M. Neal, Fast exact summation using small and large superaccumulators (2015).
class ExactSum {
 public:
  void add(double value);
  void add(const ExactSum& other);

  // Return the sum, rounded once. NaN plus anything is NaN, and so is the sum of both infinities. A
  // sum of zero is +0.0.
  double as_double() const;
  float as_float() const;

 private:
  static constexpr int digits = 70;  // from 2^-1074 to beyond 2^64 times the maximum double

  // The sum's absolute value is top · 2^exponent, plus a smaller remainder if `more`. The highest
  // bit of `top` is set; a `top` of 0 means that the sum is 0.
  struct Rounding {
    bool negative;
    std::uint64_t top;
    bool more;
    int exponent;
  };
  Rounding round() const;
  bool special(double& result) const;
  void carry();

  // Digits of 32 bits each, the least significant first; further bits hold what is not carried yet.
  std::int64_t digit_[digits] = {};
  std::uint32_t uncarried_ = 0;  // additions since carry()
  bool nan_ = false;
  bool infinite_[2] = {};  // positive, negative
};

}  // namespace corank
