// The CUDA backend whose calls to the runtime fail, one after another: what the CPU then gives must
// be what the device would have given. The linker hands the runtime's calls over to those here.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "catch.hpp"
#include "corank/merge.hpp"
#include "support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

enum Call {
  allocate,
  allocate_pinned,
  make_stream,
  make_event,
  register_memory,
  copy,
  copy_async,
  copy_batch,
  record,
  synchronize_event,
  choose_device,
  launch,
  launch_extended,
  calls
};

// The call that fails, counted from 0 among those of its kind, and how.
std::atomic<int> failing_call = -1;
std::atomic<std::int64_t> calls_before = 0;
std::atomic<cudaError_t> failure = cudaSuccess;
std::atomic<bool> lasting = false;  // as after a fault in a kernel: all calls after it fail, too
std::atomic<bool> lost = false;
std::atomic<bool> hit = false;
std::atomic<std::uint64_t> seen[calls];
thread_local cudaError_t pending = cudaSuccess;

cudaError_t before(Call call) {
  ++seen[call];
  if (lost) return failure;
  if (failing_call != call || calls_before-- != 0) return cudaSuccess;
  hit = true;
  lost = lasting.load();
  return failure;
}

}  // namespace

#define PASS_ON(call, name, parameters, arguments)  \
  cudaError_t __real_##name parameters;             \
  cudaError_t __wrap_##name parameters;             \
  cudaError_t __wrap_##name parameters {            \
    const cudaError_t error = before(call);         \
    return error ? error : __real_##name arguments; \
  }

extern "C" {
PASS_ON(allocate, cudaMalloc, (void** to, size_t bytes), (to, bytes))
PASS_ON(allocate_pinned, cudaMallocHost, (void** to, size_t bytes), (to, bytes))
PASS_ON(make_stream, cudaStreamCreateWithFlags, (cudaStream_t * to, unsigned flags), (to, flags))
PASS_ON(make_event, cudaEventCreateWithFlags, (cudaEvent_t * to, unsigned flags), (to, flags))
PASS_ON(register_memory, cudaHostRegister, (void* at, size_t bytes, unsigned flags),
        (at, bytes, flags))
PASS_ON(copy, cudaMemcpy, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind),
        (to, from, bytes, kind))
PASS_ON(copy_async, cudaMemcpyAsync,
        (void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream),
        (to, from, bytes, kind, stream))
PASS_ON(record, cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, stream))
PASS_ON(synchronize_event, cudaEventSynchronize, (cudaEvent_t event), (event))
PASS_ON(choose_device, cudaSetDevice, (int device), (device))

PASS_ON(copy_batch, cudaMemcpyBatchAsync,
        (void* const* to, const void* const* from, const size_t* bytes, size_t count,
         cudaMemcpyAttributes* attributes, size_t* firsts, size_t kinds, cudaStream_t stream),
        (to, from, bytes, count, attributes, firsts, kinds, stream))
PASS_ON(launch_extended, cudaLaunchKernelExC,
        (const cudaLaunchConfig_t* config, const void* kernel, void** arguments),
        (config, kernel, arguments))

// What <<<>>> calls. A launch that fails says so when it is asked for the last error.
cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      size_t shared, cudaStream_t stream) {
  pending = before(launch);
  return pending ? pending
                 : __real___cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
cudaError_t __real_cudaGetLastError();
cudaError_t __wrap_cudaGetLastError();
cudaError_t __wrap_cudaGetLastError() {
  const cudaError_t error = __real_cudaGetLastError();
  return pending ? std::exchange(pending, cudaSuccess) : error;
}
}

namespace {

// Runs in memory and what their merge must be.
struct Data {
  Schema schema = Schema::parse("a:u32,p:bytes20");
  std::vector<std::filesystem::path> paths;
  TemporaryFolder folder;
  Bytes expected;
  Options options;

  Data() {
    Random random(41);
    Bytes all;
    for (int run = 0; run < 4; ++run) {
      const Bytes records = stably_sorted(
          schema, {{0}}, random_records(schema, 30'000, run ? Values::any : Values::few, random));
      paths.push_back(folder / ("run" + std::to_string(run)));
      write_file(paths.back(), records);
      all.insert(all.end(), records.begin(), records.end());
    }
    expected = stably_sorted(schema, {{0}}, all);
    options.record = schema;
    options.backend = BackendChoice::cuda;
    options.memory_bytes = 4 << 20;
    options.overwrite = true;
    options.threads = 4;
  }

  Stats merge_with(int call, std::int64_t number, cudaError_t error, bool lasts) {
    failure = error;
    lasting = lasts;
    calls_before = number;
    lost = hit = false;
    failing_call = call;
    Stats stats;
    try {
      stats = merge(paths, folder / "output", options);
    } catch (...) {
      lost = false;
      failing_call = -1;
      throw;
    }
    lost = false;
    failing_call = -1;
    return stats;
  }
};

}  // namespace

TEST_CASE("whatever call to CUDA fails the output is the same", "[gpu][faults]") {
  Data data;
  const Stats clean = data.merge_with(-1, 0, cudaSuccess, false);
  REQUIRE(clean.units > 4);
  REQUIRE(clean.units_redone_on_cpu == 0);
  REQUIRE(clean.device_fault.empty());
  for (int call = 0; call < calls; ++call)
    for (const auto& [error, lasts] : {std::pair{cudaErrorMemoryAllocation, false},
                                       {cudaErrorLaunchFailure, false},
                                       {cudaErrorIllegalAddress, true},
                                       {cudaErrorECCUncorrectable, true}}) {
      std::uint64_t wrong = 0, merges = 0, on_device = 0;
      for (std::int64_t number = 0;; ++number, ++merges) {
        CAPTURE(call, number, error, lasts);
        // The first choices of a device are of the search for one, which ends before the merge.
        if (call == choose_device && number == 0) continue;
        const Stats stats = data.merge_with(call, number, error, lasts);
        wrong += read_file(data.folder / "output") != data.expected;
        if (!hit) break;
        wrong += stats.device_fault.empty() || !stats.verified;
        on_device += stats.backend == "cuda" && stats.units_redone_on_cpu < stats.units;
        if (number >= 6) number += number / 3;  // later calls are like those before them
      }
      CAPTURE(call, error, lasts);
      CHECK(wrong == 0);
      // How runs reach the device depends on how long their segments are.
      CHECK((merges > 0 || call == copy_batch));
      std::printf("call %d, error %d: %llu merges, %llu of them on the device in part\n", call,
                  static_cast<int>(error), static_cast<unsigned long long>(merges),
                  static_cast<unsigned long long>(on_device));
    }
}

TEST_CASE("a device that must not fail ends the merge and leaves the output alone",
          "[gpu][sanitize][faults]") {
  Data data;
  data.options.strict_backend = true;
  data.merge_with(-1, 0, cudaSuccess, false);
  data.options.overwrite = true;
  for (const int call : {allocate, launch, copy_async, synchronize_event, register_memory}) {
    CHECK_THROWS_AS(data.merge_with(call, 1, cudaErrorLaunchFailure, false), Error);
    CHECK((read_file(data.folder / "output") == data.expected));
    CHECK(data.folder.names().size() == data.paths.size() + 1);
  }
}

TEST_CASE("a device with too little memory merges smaller units", "[gpu][faults]") {
  Data data;
  data.options.memory_bytes = 64 << 20;
  const Stats stats = data.merge_with(allocate, 2, cudaErrorMemoryAllocation, false);
  CHECK((read_file(data.folder / "output") == data.expected));
  CHECK(stats.backend == "cuda");
  CHECK(stats.units_redone_on_cpu == 0);
  CHECK_FALSE(stats.device_fault.empty());
}
