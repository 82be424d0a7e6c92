// Instruction sets of this processor, and the choice among kernels that need them.
//
// A family of kernels lists its implementations in a table, the fastest first and a portable one
// last. Supported ones give the same results. The processor is asked once; all functions are
// thread-safe.
#pragma once

#include <cassert>
#include <initializer_list>
#include <vector>

namespace corank {

struct CpuFeatures {
  bool is_amd = false;
  bool is_intel = false;
  bool has_aes = false;
  bool has_avx2 = false;    // with BMI and POPCNT
  bool has_vaes = false;    // with AVX2
  bool has_avx512 = false;  // with the extensions VL and DQ
  bool has_avx512_vp2intersect = false;
  bool has_neon = false;
};

const CpuFeatures& cpu_features();

template <class Kernel>
struct Implementation {
  bool is_supported;
  Kernel kernel;
};

// Returns the supported kernels of a table, in its order.
template <class Kernel>
std::vector<Kernel> supported(std::initializer_list<Implementation<Kernel>> table) {
  std::vector<Kernel> kernels;
  for (const auto& [is_supported, kernel] : table)
    if (is_supported) kernels.push_back(kernel);
  assert(!kernels.empty());
  return kernels;
}

}  // namespace corank
