// The word merge kernels under test.
#pragma once

#include <vector>

#include "merge/word_kernel.hpp"

namespace corank::test {

// Returns every kernel that this machine supports, always including the portable one.
inline std::vector<const WordKernel*> kernels() {
  std::vector<const WordKernel*> result;
  for (const Simd simd : {Simd::none, Simd::neon, Simd::avx2, Simd::avx512})
    if (const WordKernel* kernel = word_kernel(simd)) result.push_back(kernel);
  return result;
}

}  // namespace corank::test
