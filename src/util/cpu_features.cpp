#include "util/cpu_features.hpp"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace corank {
namespace {

CpuFeatures find_features() {
  CpuFeatures features;
#ifdef __x86_64__
  features.is_amd = __builtin_cpu_is("amd");
  features.is_intel = __builtin_cpu_is("intel");
  features.has_aes = __builtin_cpu_supports("aes");
  features.has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                      __builtin_cpu_supports("popcnt");
  // Ask cpuid, since __builtin_cpu_supports() of Clang 16 does not know VAES.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  features.has_vaes = features.has_avx2 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
                      (ecx & bit_VAES) != 0;
  features.has_avx512 = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  features.has_avx512_vp2intersect = __builtin_cpu_supports("avx512vp2intersect");
#endif
#ifdef __aarch64__
  features.has_neon = true;  // every 64-bit Arm processor has it
#endif
  return features;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = find_features();
  return features;
}

}  // namespace corank
