// Interface of a fuzzing target. libFuzzer drives it, or driver.cpp in builds without libFuzzer.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>

namespace corank {

// Runs the target on one input; aborts the process on a failure.
void fuzz(std::span<const std::uint8_t> input);

inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace corank
