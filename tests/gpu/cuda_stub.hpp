// A CUDA runtime with one device that is made up, for the host's side of the CUDA backend. Work
// that is put into a stream is done when somebody waits for it, not before; the host cannot touch
// the device's memory; what is lent must come back once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace corank::test::cuda_stub {

enum class Kernels {
  emulated,  // what a unit needs of them is done by the host
  idle,      // nothing is done, and nobody says so
  boastful,  // as emulated, but they select more records than there are
};

struct Setup {
  Kernels kernels = Kernels::emulated;
  std::size_t memory_bytes = std::size_t{64} << 20;
  // The call that fails, by its name; `before` such calls do not.
  std::string call = "";
  std::uint64_t before = 0;
  cudaError_t error = cudaSuccess;  // as on a real device, some are all that is heard from then on
};

struct Outcome {
  bool failed = false;                         // the call came
  std::map<std::string, std::uint64_t> calls;  // how often each came
  // What was done that must not be done, and what was not given back.
  std::vector<std::string> wrong;
};

// What is between the two is one merge.
void begin(const Setup& setup);
Outcome end();

// For the kernels: what they do when they are run. Empty where nothing shows it. What arguments
// point to is gone by then.
using Work = std::function<void()>;
Work emulation(Kernels how, const std::string& kernel, void** arguments, cudaStream_t stream);

// Notes it if they are not in the device's memory, or in memory that was pinned.
void check_on_device(const void* at, std::size_t bytes, const char* whose);
void check_pinned(const void* at, std::size_t bytes, const char* whose);

}  // namespace corank::test::cuda_stub
