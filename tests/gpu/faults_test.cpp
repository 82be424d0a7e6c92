// Tests of the CUDA backend with failing runtime calls, one at a time: the CPU must then produce
// the device's output. The linker's --wrap option redirects the runtime's calls to the functions
// here.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corank/merge.hpp"
#include "format/key_order.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "util/buffer_pool.hpp"
#include "verify/fingerprint.hpp"

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

// The kind of the failing call, how many of that kind succeed first, and the error.
std::atomic<int> failing_call = -1;
std::atomic<std::int64_t> calls_before = 0;
std::atomic<cudaError_t> failure = cudaSuccess;
std::atomic<bool> lasting = false;  // all later calls fail as well
std::atomic<bool> lost = false;
std::atomic<bool> hit = false;
std::atomic<std::uint64_t> seen[calls];
thread_local cudaError_t pending = cudaSuccess;

std::vector<std::span<std::byte>>* allocated = nullptr;  // if set, receives each allocation
std::function<void(cudaStream_t)> after_launch;

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

cudaError_t __real_cudaMalloc(void** to, size_t bytes);
cudaError_t __wrap_cudaMalloc(void** to, size_t bytes);
cudaError_t __wrap_cudaMalloc(void** to, size_t bytes) {
  cudaError_t error = before(allocate);
  if (!error) error = __real_cudaMalloc(to, bytes);
  if (!error && allocated) allocated->emplace_back(static_cast<std::byte*>(*to), bytes);
  return error;
}

cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** arguments) {
  if (const cudaError_t error = before(launch_extended)) return error;
  const cudaError_t error = __real_cudaLaunchKernelExC(config, kernel, arguments);
  if (after_launch) after_launch(config->stream);
  return error;
}

// The call that `<<<>>>` compiles to. A failed launch is reported by cudaGetLastError().
cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      size_t shared, cudaStream_t stream) {
  pending = before(launch);
  if (pending) return pending;
  const cudaError_t error =
      __real___cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
  if (after_launch) after_launch(stream);
  return error;
}
cudaError_t __real_cudaGetLastError();
cudaError_t __wrap_cudaGetLastError();
cudaError_t __wrap_cudaGetLastError() {
  const cudaError_t error = __real_cudaGetLastError();
  return pending ? std::exchange(pending, cudaSuccess) : error;
}
}

namespace {

// Holds runs in memory and the expected output of their merge.
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
        // The first cudaSetDevice() belongs to the device search, which ends before the merge.
        if (call == choose_device && number == 0) continue;
        const Stats stats = data.merge_with(call, number, error, lasts);
        wrong += read_file(data.folder / "output") != data.expected;
        if (!hit) break;
        wrong += stats.device_fault.empty() || !stats.verified;
        on_device += stats.backend == "cuda" && stats.units_redone_on_cpu < stats.units;
        if (number >= 6) number += number / 3;  // later calls resemble earlier ones
      }
      CAPTURE(call, error, lasts);
      CHECK(wrong == 0);
      // The backend uploads runs by copies or by a kernel, depending on the length of their
      // segments.
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

namespace {

// Holds one unit and a backend whose device allocations are known.
class Unit {
 public:
  Unit(const char* schema, std::uint64_t runs, std::uint64_t run_records, Random& random)
      : schema_(Schema::parse(schema)), encoding_(schema_, {}) {
    allocated = &memory_;
    backend_ = make_cuda_backend(0, {&encoding_, runs * run_records, 1, 1, true});
    allocated = nullptr;
    bytes_ = runs * run_records * schema_.record_bytes;
    pool_ = std::make_unique<BufferPool>(round_up(bytes_, page_bytes()), 2, backend_->pin_memory());
    input_ = pool_->lease();
    output_ = pool_->lease();
    Bytes all;
    for (std::uint32_t run = 0; run < runs; ++run) {
      const Bytes records =
          stably_sorted(schema_, {{0}}, random_records(schema_, run_records, Values::few, random));
      const auto chunk = std::make_shared<Chunk>();
      chunk->run = run;
      chunk->first = 0;
      chunk->count = run_records;
      chunk->in_place = input_.bytes().data() + all.size();
      unit_.segments.push_back({chunk, 0, run_records});
      chunks_.push_back(chunk);
      unit_.records += run_records;
      std::memcpy(input_.bytes().data() + all.size(), records.data(), records.size());
      all.insert(all.end(), records.begin(), records.end());
    }
    unit_.bytes = bytes_;
    expected_ = stably_sorted(schema_, {{0}}, all);
    // In order of allocation, the first large block holds the uploaded input and the last one the
    // output.
    std::erase_if(memory_, [this](auto piece) { return piece.size() < bytes_; });
    REQUIRE(memory_.size() >= 2);
  }

  void read_by_host() {
    for (const auto& chunk : chunks_)
      chunk->fingerprint = portable_fingerprint(
          {chunk->records(), chunk->count * schema_.record_bytes}, schema_.record_bytes);
  }

  enum class Outcome { right, found, missed };
  // Flips a bit of the uploaded input, or of the output, after the given number of launches.
  Outcome merge(std::int64_t launches, bool uploaded, Random& random) {
    launches_ = 0;
    after_launch = [&](cudaStream_t stream) {
      if (launches_++ != launches) return;
      std::byte* const at =
          (uploaded ? memory_.front() : memory_.back()).data() + below(random, bytes_);
      std::byte byte;
      cudaStreamSynchronize(stream);
      __real_cudaMemcpy(&byte, at, 1, cudaMemcpyDeviceToHost);
      byte ^= std::byte{1} << below(random, 8);
      __real_cudaMemcpy(at, &byte, 1, cudaMemcpyHostToDevice);
      cudaDeviceSynchronize();
    };
    std::memset(output_.bytes().data(), 0, bytes_);
    bool found = false;
    try {
      const UnitProof proof = backend_->merge(unit_, output_.bytes().data()).proof.value();
      std::uint64_t read = proof.read;
      for (const auto& chunk : chunks_) read += chunk->fingerprint.value_or(0);
      found = read != proof.written;
    } catch (const RunOutOfOrder&) {
      found = true;
    } catch (const DeviceError&) {
      found = true;
    }
    after_launch = nullptr;
    return found ? Outcome::found : is_right() ? Outcome::right : Outcome::missed;
  }
  std::int64_t launches() const { return launches_; }

 private:
  // Returns true if the output is what a passed verification guarantees: the right records in order
  // of their keys. A flipped bit may have exchanged records with equal keys.
  bool is_right() const {
    const std::uint32_t record_bytes = schema_.record_bytes;
    const auto records_of = [&](std::span<const std::byte> bytes) {
      std::vector<std::string_view> records;
      for (std::size_t at = 0; at < bytes.size(); at += record_bytes)
        records.emplace_back(reinterpret_cast<const char*>(&bytes[at]), record_bytes);
      std::ranges::sort(records);
      return records;
    };
    const auto output = output_.bytes().first(bytes_);
    return first_descent(encoding_.layout(), output.data(), unit_.records) == unit_.records &&
           records_of(output) == records_of(expected_);
  }

  Schema schema_;
  KeyEncoding encoding_;
  std::vector<std::span<std::byte>> memory_;
  std::unique_ptr<Backend> backend_;
  std::uint64_t bytes_ = 0;
  std::unique_ptr<BufferPool> pool_;
  Buffer input_, output_;
  WorkUnit unit_;
  std::vector<std::shared_ptr<Chunk>> chunks_;
  Bytes expected_;
  std::int64_t launches_ = 0;
};

}  // namespace

TEST_CASE("bits that flip in a unit on the device are found", "[gpu][sanitize][flips]") {
  Random random(42);
  std::uint64_t found = 0, missed = 0;
  for (const char* schema : {"a:u64,p:u64,q:u64", "a:bytes60,p:u64"})
    for (const bool large_segments : {false, true})
      for (const bool by_host : {false, true}) {
        // A kernel uploads small segments. A flip between the upload and the device's fingerprint
        // is detected only if the host has computed the fingerprint.
        Unit unit(schema, 3, large_segments ? 3'000 : 400, random);
        if (by_host) unit.read_by_host();
        REQUIRE(unit.merge(-1, true, random) == Unit::Outcome::right);
        const std::int64_t launches = unit.launches();
        REQUIRE(launches > 4);
        const std::int64_t look = launches - 1;
        for (std::int64_t after = by_host || large_segments ? 0 : 1; after < look; ++after)
          for (int trial = 0; trial < 8; ++trial) {
            const auto outcome = unit.merge(after, true, random);
            found += outcome == Unit::Outcome::found;
            missed += outcome == Unit::Outcome::missed;
          }
        for (int trial = 0; trial < 40; ++trial) {
          CHECK(unit.merge(look - 1, false, random) == Unit::Outcome::found);
          ++found;
        }
      }
  CHECK(missed == 0);
  CHECK(found > 500);
  std::printf("bits flipped on the device: %llu found, %llu missed\n",
              static_cast<unsigned long long>(found), static_cast<unsigned long long>(missed));
}
