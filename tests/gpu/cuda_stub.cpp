#include "gpu/cuda_stub.hpp"

#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "util/math.hpp"

// Entry points of the CUDA runtime that compilers generate calls to: kernel launches and static
// constructors.
extern "C" {
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream);
void** __cudaRegisterFatBinary(void* binary);
void __cudaRegisterFatBinaryEnd(void** binary);
void __cudaUnregisterFatBinary(void** binary);
void __cudaRegisterFunction(void** binary, const char* function, char* device_function,
                            const char* name, int threads, uint3* tid, uint3* bid, dim3* block,
                            dim3* grid, int* warp);
void __cudaRegisterVar(void** binary, char* variable, char* device_variable, const char* name,
                       int external, size_t bytes, int constant, int global);
}

namespace corank::test::cuda_stub {
namespace {

using Address = std::uintptr_t;
Address address_of(const void* at) {
  return reinterpret_cast<Address>(at);
}

// Memory blocks by start address.
class Blocks {
 public:
  void add(const void* at, std::size_t bytes) { blocks_[address_of(at)] = bytes; }
  bool remove(const void* at) { return blocks_.erase(address_of(at)) == 1; }
  bool hold(const void* at, std::size_t bytes) const {
    const auto after = blocks_.upper_bound(address_of(at));
    return after != blocks_.begin() &&
           address_of(at) + bytes <= std::prev(after)->first + std::prev(after)->second;
  }
  bool overlap(const void* at, std::size_t bytes) const {
    const auto after = blocks_.lower_bound(address_of(at) + bytes);
    return after != blocks_.begin() &&
           std::prev(after)->first + std::prev(after)->second > address_of(at);
  }
  auto begin() const { return blocks_.begin(); }
  auto end() const { return blocks_.end(); }
  std::size_t count() const { return blocks_.size(); }

 private:
  std::map<Address, std::size_t> blocks_;
};

struct Stream {
  std::deque<Work> work;
  std::uint64_t done = 0;  // number of works that are done
};
struct Event {
  cudaStream_t recorded = nullptr;
  std::uint64_t after = 0;  // the work of that stream up to this number
};

// Device memory, which only kernels and copies may access.
class DeviceMemory {
 public:
  static constexpr std::size_t max_bytes = std::size_t{1} << 30;

  // Uses huge pages, of which opened() never opens a part: it is slow for small ones.
  DeviceMemory() {
    void* const memory = mmap(nullptr, max_bytes + huge_page_bytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    base_ = reinterpret_cast<std::byte*>(round_up(address_of(memory), huge_page_bytes));
    madvise(base_, max_bytes, MADV_HUGEPAGE);
  }
  // Makes the memory accessible during the lifetime of the returned object.
  auto opened() {
    const auto protect = [this](int how) {
      if (used_ != 0 && mprotect(base_, used_, how) != 0) std::abort();
    };
    protect(PROT_READ | PROT_WRITE);
    const auto close = [protect](void*) { protect(PROT_NONE); };
    return std::unique_ptr<void, decltype(close)>(base_, close);
  }
  void* allocate(std::size_t bytes, std::size_t of) {
    Address at = address_of(base_);
    for (const auto& [begin, size] : blocks) {
      if (at + bytes + gap <= begin) break;
      at = (begin + size + gap + alignment - 1) / alignment * alignment;
    }
    if (bytes > of || at + bytes > address_of(base_) + of) return nullptr;
    used_ = std::max<std::size_t>(used_, round_up(at + bytes - address_of(base_), huge_page_bytes));
    auto* const block = reinterpret_cast<std::byte*>(at);
    blocks.add(block, bytes);
    const auto open = opened();
    std::memset(block, 0xa5, bytes);  // a recognisable pattern
    return block;
  }
  Blocks blocks;

 private:
  static constexpr std::size_t alignment = 256, gap = 512, huge_page_bytes = std::size_t{2} << 20;
  std::byte* base_;
  std::size_t used_ = 0;
};

struct Runtime {
  std::mutex mutex;
  Setup setup;
  Outcome outcome;
  cudaError_t broken = cudaSuccess;  // once set, every call returns it
  DeviceMemory memory;
  Blocks pinned;      // allocated by the runtime
  Blocks registered;  // allocated by the caller
  std::map<cudaStream_t, Stream> streams;
  std::map<cudaEvent_t, Event> events;
  std::uintptr_t handles = 0;

  void wrong(std::string what) { outcome.wrong.push_back(std::move(what)); }
};
Runtime& runtime() {
  static Runtime one;
  return one;
}

// Kernel names by function address, filled by static constructors.
std::map<const void*, std::string>& kernel_names() {
  static std::map<const void*, std::string> names;
  return names;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local struct {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} configuration;

// Returns true for errors after which the process has lost its device.
bool is_final(cudaError_t error) {
  return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure ||
         error == cudaErrorECCUncorrectable;
}

cudaError_t fail(cudaError_t error) {
  return last_error = error;
}

// Counts a call and returns the error that it reports.
cudaError_t enter(const char* call) {
  Runtime& r = runtime();
  const std::uint64_t number = r.outcome.calls[call]++;
  if (r.broken) return fail(r.broken);
  if (call != r.setup.call || number != r.setup.before || r.setup.error == cudaSuccess)
    return cudaSuccess;
  r.outcome.failed = true;
  if (is_final(r.setup.error)) {
    r.broken = r.setup.error;
    for (auto& [handle, stream] : r.streams) stream.work.clear();
  }
  return fail(r.setup.error);
}

// Runs work of the stream up to number `end`.
void run_up_to(Stream& stream, std::uint64_t end) {
  for (; !stream.work.empty() && stream.done < end; ++stream.done) {
    const Work work = std::move(stream.work.front());
    stream.work.pop_front();
    work();
  }
}
void run(Stream& stream) {
  const auto open = runtime().memory.opened();
  run_up_to(stream, stream.done + stream.work.size());
}

cudaError_t enqueue(cudaStream_t handle, Work work) {
  Runtime& r = runtime();
  const auto stream = r.streams.find(handle);
  if (stream == r.streams.end()) {
    r.wrong("work for a stream that there is not");
    return fail(cudaErrorInvalidResourceHandle);
  }
  stream->second.work.push_back(std::move(work));
  return cudaSuccess;
}

cudaError_t launch(const char* call, const void* function, void** arguments, dim3 grid, dim3 block,
                   cudaStream_t stream) {
  Runtime& r = runtime();
  if (const cudaError_t error = enter(call)) return error;
  const auto name = kernel_names().find(function);
  if (name == kernel_names().end()) {
    r.wrong("a launch of what is no kernel");
    return fail(cudaErrorInvalidDeviceFunction);
  }
  for (const unsigned size : {grid.x, grid.y, grid.z, block.x, block.y, block.z})
    if (size == 0) {
      r.wrong("a launch of no threads: " + name->second);
      return fail(cudaErrorInvalidConfiguration);
    }
  Work work;
  if (r.setup.kernels != Kernels::idle)
    work = emulation(r.setup.kernels, name->second, arguments, stream);
  return work ? enqueue(stream, std::move(work)) : cudaSuccess;
}

cudaError_t check_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  Runtime& r = runtime();
  if (kind == cudaMemcpyHostToDevice && r.memory.blocks.hold(to, bytes)) return cudaSuccess;
  if (kind == cudaMemcpyDeviceToHost && r.memory.blocks.hold(from, bytes)) return cudaSuccess;
  if (kind == cudaMemcpyDeviceToDevice && r.memory.blocks.hold(from, bytes) &&
      r.memory.blocks.hold(to, bytes))
    return cudaSuccess;
  r.wrong("a copy of " + std::to_string(bytes) + " bytes beyond the device's memory");
  return fail(cudaErrorInvalidValue);
}

// Returns a copy for later; its memory must still exist when the copy runs.
Work copy_of(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return [=] {
    if (kind != cudaMemcpyHostToDevice) check_on_device(from, bytes, "a copy");
    if (kind != cudaMemcpyDeviceToHost) check_on_device(to, bytes, "a copy");
    std::memcpy(to, from, bytes);
  };
}

template <class Handle>
Handle new_handle() {
  return reinterpret_cast<Handle>(++runtime().handles * 64);
}

}  // namespace

void begin(const Setup& setup) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  r.setup = setup;
  r.outcome = {};
  r.broken = cudaSuccess;
}

Outcome end() {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  const auto left = [&](std::size_t count, const char* what) {
    if (count != 0) r.wrong(std::to_string(count) + " " + what + " not given back");
  };
  left(r.memory.blocks.count(), "blocks of device memory");
  left(r.pinned.count(), "blocks of pinned memory");
  left(r.registered.count(), "registered blocks");
  left(r.streams.size(), "streams");
  left(r.events.size(), "events");
  r.memory.blocks = r.pinned = r.registered = {};
  r.streams.clear();
  r.events.clear();
  r.setup = {};
  return std::exchange(r.outcome, {});
}

void check_on_device(const void* at, std::size_t bytes, const char* whose) {
  if (!runtime().memory.blocks.hold(at, bytes))
    runtime().wrong(std::string(whose) + " leads out of the device's memory");
}

void check_pinned(const void* at, std::size_t bytes, const char* whose) {
  if (!runtime().pinned.hold(at, bytes) && !runtime().registered.hold(at, bytes))
    runtime().wrong(std::string(whose) + " leads out of what is pinned");
}

}  // namespace corank::test::cuda_stub

using namespace corank::test::cuda_stub;

#define ENTER()                        \
  Runtime& r = runtime();              \
  const std::lock_guard lock(r.mutex); \
  if (const cudaError_t error = enter(__func__)) return error

// Defines the body of a call that frees something. It frees even if it reports an earlier error.
#define GIVE_BACK(given)                                         \
  Runtime& r = runtime();                                        \
  const std::lock_guard lock(r.mutex);                           \
  const bool is_known = given;                                   \
  if (!is_known) r.wrong(std::string(__func__) + " of nothing"); \
  const cudaError_t error = enter(__func__);                     \
  return error ? error : is_known ? cudaSuccess : fail(cudaErrorInvalidValue)

extern "C" {

void** __cudaRegisterFatBinary(void* binary) {
  return static_cast<void**>(binary);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  kernel_names()[function] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t,
                               cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  return launch(__func__, kernel, arguments, grid, block, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  const std::lock_guard lock(runtime().mutex);
  return launch(__func__, function, arguments, config->gridDim, config->blockDim, config->stream);
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "made up";
}
cudaError_t cudaGetLastError() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().broken ? runtime().broken : std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().broken ? runtime().broken : last_error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  ENTER();
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  ENTER();
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  ENTER();
  *properties = {};
  std::strcpy(properties->name, "made up");
  properties->totalGlobalMem = r.setup.memory_bytes;
  properties->canUseHostPointerForRegisteredMem = 1;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  ENTER();
  *free = *total = r.setup.memory_bytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  ENTER();
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = architecture / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = architecture % 10;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 << 10;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = 0x7fffffff;
      break;
    default:
      r.wrong("unknown attribute " + std::to_string(attribute));
      return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  ENTER();
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->ptxVersion = attributes->binaryVersion = architecture;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   size_t, unsigned) {
  ENTER();
  *blocks = 2;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** to, size_t bytes) {
  ENTER();
  *to = r.memory.allocate(bytes, r.setup.memory_bytes);
  return *to ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* at) {
  GIVE_BACK(!at || r.memory.blocks.remove(at));
}
cudaError_t cudaMallocHost(void** to, size_t bytes) {
  ENTER();
  *to = ::operator new (bytes, std::align_val_t{4096});
  std::memset(*to, 0xa5, bytes);
  r.pinned.add(*to, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* at) {
  const auto give_back = [&] {
    if (!runtime().pinned.remove(at)) return at == nullptr;
    ::operator delete (at, std::align_val_t{4096});
    return true;
  };
  GIVE_BACK(give_back());
}
cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned) {
  ENTER();
  if (r.registered.overlap(at, bytes)) return fail(cudaErrorHostMemoryAlreadyRegistered);
  r.registered.add(at, bytes);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* at) {
  GIVE_BACK(r.registered.remove(at));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  ENTER();
  *stream = new_handle<cudaStream_t>();
  r.streams[*stream];
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const auto give_back = [&] {
    const auto found = runtime().streams.find(stream);
    if (found == runtime().streams.end()) return false;
    if (!found->second.work.empty()) runtime().wrong("a stream destroyed before its work was done");
    runtime().streams.erase(found);
    return true;
  };
  GIVE_BACK(give_back());
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  const auto found = r.streams.find(stream);
  if (found == r.streams.end()) {
    r.wrong("waiting for a stream that there is not");
    return fail(cudaErrorInvalidResourceHandle);
  }
  const cudaError_t error = enter(__func__);
  // An error from a wait belongs to the stream's work, which has then ended.
  if (error)
    found->second.work.clear();
  else
    run(found->second);
  return error;
}
cudaError_t cudaDeviceSynchronize() {
  ENTER();
  for (auto& [handle, stream] : r.streams) run(stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  ENTER();
  *event = new_handle<cudaEvent_t>();
  r.events[*event];
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  GIVE_BACK(r.events.erase(event) == 1);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER();
  const Stream& recorded = r.streams.at(stream);
  r.events.at(event) = {stream, recorded.done + recorded.work.size()};
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENTER();
  return enqueue(stream, [waited = r.events.at(event)] {
    const auto other = runtime().streams.find(waited.recorded);
    if (other != runtime().streams.end()) run_up_to(other->second, waited.after);
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER();
  const auto stream = r.streams.find(r.events.at(event).recorded);
  if (stream != r.streams.end()) run(stream->second);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  ENTER();
  if (const cudaError_t error = check_copy(to, from, bytes, kind)) return error;
  const auto open = r.memory.opened();
  if (bytes != 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ENTER();
  if (const cudaError_t error = check_copy(to, from, bytes, kind)) return error;
  return enqueue(stream, copy_of(to, from, bytes, kind));
}
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes,
                                 size_t count, cudaMemcpyAttributes*, size_t*, size_t,
                                 cudaStream_t stream) {
  ENTER();
  for (size_t i = 0; i < count; ++i) {
    if (const cudaError_t error = check_copy(to[i], from[i], bytes[i], cudaMemcpyHostToDevice))
      return error;
    if (const cudaError_t error =
            enqueue(stream, copy_of(to[i], from[i], bytes[i], cudaMemcpyHostToDevice)))
      return error;
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  ENTER();
  if (r.setup.kernels == Kernels::idle) return cudaSuccess;
  return enqueue(stream, [=] {
    check_on_device(at, bytes, "a memset");
    std::memset(at, value, bytes);
  });
}
}
