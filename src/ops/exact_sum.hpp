// Sums of floats without rounding: the same whatever their order.
#pragma once

#include <cstdint>

namespace corank {

// Source: Neal, "Fast exact summation using small and large superaccumulators" (2015).
class ExactSum {
 public:
  void add(double value);
  void add(const ExactSum& other);

  // The sum, rounded once. No number plus anything is none; so are both infinities together. A sum
  // of zero is +0.0.
  double as_double() const;
  float as_float() const;

 private:
  static constexpr int digits = 70;  // 2^-1074 to beyond 2^64 times the greatest double

  // The sum's absolute value is top · 2^(exponent), top's highest bit being set, and a little more
  // where `more`; 0 if top is 0.
  struct Rounding {
    bool negative;
    std::uint64_t top;
    bool more;
    int exponent;
  };
  Rounding round() const;
  bool special(double& result) const;
  void carry();

  std::int64_t digit_[digits] =
      {};                        // of 32 bits each, the least first, and what is not carried yet
  std::uint32_t uncarried_ = 0;  // additions since carry()
  bool nan_ = false;
  bool infinite_[2] = {};  // positive, negative
};

}  // namespace corank
