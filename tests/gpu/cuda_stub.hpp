// A stub of the CUDA runtime with one simulated device, to test the host side of the CUDA backend.
// Work in a stream runs only when the host waits for it. The host cannot access device memory, and
// every resource must be released exactly once.
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
  emulated,  // the host does what a unit needs of them
  idle,      // they do nothing and report success
  boastful,  // emulated, but they select more records than there are
};

struct Setup {
  Kernels kernels = Kernels::emulated;
  std::size_t memory_bytes = std::size_t{64} << 20;
  // Name of the call that fails; the first `before` such calls succeed.
  std::string call = "";
  std::uint64_t before = 0;
  cudaError_t error = cudaSuccess;  // as on a real device, some errors are permanent
};

struct Outcome {
  bool failed = false;                         // the failing call was made
  std::map<std::string, std::uint64_t> calls;  // number of calls by name
  // Violations: invalid accesses, and resources that were not released.
  std::vector<std::string> wrong;
};

// Ten times the compute capability of the device: the newest that kernels are compiled for.
extern const int architecture;

// Start and end the observation of one merge.
void begin(const Setup& setup);
Outcome end();

// Returns the host's emulation of a kernel, run with its stream; empty if it has no visible effect.
// It copies its arguments, because their memory does not outlive the launch.
using Work = std::function<void()>;
Work emulation(Kernels how, const std::string& kernel, void** arguments, cudaStream_t stream);

// Record a violation unless the bytes lie in device memory, or in pinned memory.
void check_on_device(const void* at, std::size_t bytes, const char* whose);
void check_pinned(const void* at, std::size_t bytes, const char* whose);

}  // namespace corank::test::cuda_stub
