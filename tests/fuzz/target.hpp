// What a fuzzing target is: driven by libFuzzer, or by driver.cpp where that is not at hand.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>

namespace corank {

// Ends the process where something is wrong.
void fuzz(std::span<const std::uint8_t> input);

inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace corank
