// Page-aligned buffers of one size, allocated together and leased one at a time. `BufferPool` is
// thread-safe; its constructor throws Error if memory is short. A `Buffer` returns itself to its
// pool on destruction, so the pool must outlive it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "util/math.hpp"

namespace corank {

// Registers memory with a device for as long as the returned object lives.
using PinMemory = std::function<std::shared_ptr<void>(std::span<std::byte>)>;

class BufferPool;

// A lease of one buffer of a pool, returned on destruction. The pool must outlive it.
class Buffer {
 public:
  Buffer() = default;
  // Wraps memory that belongs to no pool; nothing is returned.
  explicit Buffer(std::span<std::byte> bytes) : bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  friend class BufferPool;
  Buffer(BufferPool* pool, std::span<std::byte> bytes) : pool_(pool), bytes_(bytes) {}
  void swap(Buffer& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(bytes_, other.bytes_);
  }

  BufferPool* pool_ = nullptr;
  std::span<std::byte> bytes_;
};

// Holds `count` buffers of `buffer_bytes` each, a multiple of the page size. Thread-safe.
class BufferPool {
 public:
  enum class Pages { small, huge };

  // Uses huge pages if `pin` is given, since a device maps them in fewer pieces, or on request.
  // Request them for memory that is soon filled completely.
  BufferPool(std::size_t buffer_bytes, std::size_t count, const PinMemory& pin,
             Pages pages = Pages::small);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Returns a free buffer; blocks while all are leased.
  Buffer lease();
  // Returns the number of free buffers.
  std::size_t available() const;

 private:
  friend class Buffer;
  void give_back(std::byte* buffer);

  std::size_t buffer_bytes_;
  std::span<std::byte> memory_;
  std::shared_ptr<void> pinned_;
  mutable std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::byte*> free_;
};

std::size_t page_bytes();

}  // namespace corank
