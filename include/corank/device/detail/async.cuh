// Copies between global and shared memory that overlap with the threads' work: bulk copies with
// barriers that count bytes (sm_90), asynchronous copies of single elements (sm_80), plain copies
// on older devices.
#pragma once

#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cuda/ptx>

#include "corank/key.hpp"

namespace corank::device::detail {

// Unit of bulk copies in bytes; their addresses and sizes are multiples of it.
inline constexpr std::uint32_t granule = 16;

// Whether arrays of T can be moved by granules: an element must be a part of a granule, or several
// granules.
template <class T>
inline constexpr bool fits_granules = std::has_single_bit(sizeof(T));

// Whether the code is being compiled for a device with bulk copies.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool has_bulk_copies = true;
#else
inline constexpr bool has_bulk_copies = false;
#endif

// Waits for the previous kernel of the stream. Every kernel here calls it first, since its blocks
// may be scheduled while that kernel's last blocks still run.
__device__ inline void await_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
}

using Address = std::uintptr_t;
CORANK_HOST_DEVICE constexpr Address granule_floor(Address address) {
  return address & ~Address{granule - 1};
}
CORANK_HOST_DEVICE constexpr Address granule_ceil(Address address) {
  return granule_floor(address + granule - 1);
}

// Returns the distance in elements from the start of the array's first granule to the array.
template <class T>
__device__ std::uint32_t granule_shift(const T* array) {
  return static_cast<std::uint32_t>(reinterpret_cast<Address>(array) % granule / sizeof(T));
}

// Waits until the barrier has left the phase of this parity.
__device__ inline void wait(std::uint64_t* barrier, std::uint32_t parity) {
  while (!cuda::ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}

// Copies the granules [from, to) of the array [begin, end) to ring[at], wrapping from
// ring[ring_bytes] to ring[0]. Arrives at the barrier, which completes when all bytes are there.
// Called by one thread. If a granule extends beyond the array, this thread copies the array's bytes
// of it itself.
__device__ inline void fetch(Address begin, Address end, Address from, Address to, std::byte* ring,
                             std::uint32_t at, std::uint32_t ring_bytes, std::uint64_t* barrier) {
  namespace ptx = cuda::ptx;
  const auto copy_partial = [&](Address granule_at, std::uint32_t place) {
#pragma unroll 1
    for (std::uint32_t n = 0; n < granule; ++n)
      if (granule_at + n >= begin && granule_at + n < end)
        ring[place + n] = *reinterpret_cast<const std::byte*>(granule_at + n);
  };
  const auto wrapped = [&](Address bytes) {
    const auto place = static_cast<std::uint32_t>(bytes);
    return place < ring_bytes ? place : place - ring_bytes;
  };
  if (from < to && from < begin) {
    copy_partial(from, at);
    from += granule;
    at = wrapped(at + granule);
  }
  if (from < to && to > end) {
    to -= granule;
    copy_partial(to, wrapped(at + (to - from)));
  }
  const auto bytes = from < to ? static_cast<std::uint32_t>(to - from) : 0u;
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barrier,
                                 bytes);
  const std::uint32_t before_wrap = bytes < ring_bytes - at ? bytes : ring_bytes - at;
  if (before_wrap != 0)
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, ring + at,
                       reinterpret_cast<const void*>(from), before_wrap, barrier);
  if (bytes != before_wrap)
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, ring,
                       reinterpret_cast<const void*>(from + before_wrap), bytes - before_wrap,
                       barrier);
}

// Stores staged[shift, shift + count) to `output`. `shift` must be the output's granule shift, and
// `staged` must be aligned to a granule. Called by one thread after a barrier, before which every
// thread that wrote to `staged` must call release_staged(). `staged` may change again after
// staged_is_read().
template <class T>
__device__ void store(const T* staged, std::uint32_t shift, std::uint32_t count, T* output) {
  namespace ptx = cuda::ptx;
  constexpr std::uint32_t per_granule = sizeof(T) < granule ? granule / sizeof(T) : 1;
  const std::uint32_t end = shift + count;
  const std::uint32_t whole_begin = (shift + per_granule - 1) / per_granule * per_granule;
  const std::uint32_t whole_end = end / per_granule * per_granule;
  T* const base = output - shift;
  if (whole_begin < whole_end) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, base + whole_begin,
                       staged + whole_begin,
                       static_cast<std::uint32_t>((whole_end - whole_begin) * sizeof(T)));
    ptx::cp_async_bulk_commit_group();
    for (std::uint32_t n = shift; n < whole_begin; ++n) base[n] = staged[n];
    for (std::uint32_t n = whole_end; n < end; ++n) base[n] = staged[n];
  } else {
    for (std::uint32_t n = shift; n < end; ++n) base[n] = staged[n];
  }
}

__device__ inline void release_staged() {
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
}
__device__ inline void staged_is_read() {
  cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>{});
}

// Copies one element to shared memory, asynchronously if its alignment and the device allow it. The
// element is there after element_copies_done() and a barrier.
template <class T>
__device__ void copy_element(T* to, const T* from) {
  constexpr std::size_t piece = alignof(T) < granule ? alignof(T) : granule;
  if constexpr (piece >= 4) {
#pragma unroll
    for (std::size_t at = 0; at < sizeof(T); at += piece)
      __pipeline_memcpy_async(reinterpret_cast<std::byte*>(to) + at,
                              reinterpret_cast<const std::byte*>(from) + at, piece);
  } else {
    *to = *from;
  }
}

__device__ inline void element_copies_done() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

}  // namespace corank::device::detail
