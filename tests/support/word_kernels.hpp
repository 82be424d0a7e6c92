#pragma once

#include <vector>

#include "merge/word_kernel.hpp"

namespace corank::test {

// Every kernel that this machine has; the portable one is always there.
inline std::vector<const WordKernel*> kernels() {
  std::vector<const WordKernel*> result;
  for (const Simd simd : {Simd::none, Simd::neon, Simd::avx2, Simd::avx512})
    if (const WordKernel* kernel = word_kernel(simd)) result.push_back(kernel);
  return result;
}

}  // namespace corank::test
