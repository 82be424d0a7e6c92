// Page-aligned memory, taken once and lent piece by piece.
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

// Makes memory known to a device for as long as what it returns lives.
using PinMemory = std::function<std::shared_ptr<void>(std::span<std::byte>)>;

class BufferPool;

// A lease of one piece of a pool, given back when it is destroyed. The pool must outlive it.
class Buffer {
 public:
  Buffer() = default;
  // Memory that is no pool's: there is nothing to give back.
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

// `count` buffers of `buffer_bytes` each, a multiple of the page size. Thread-safe.
class BufferPool {
 public:
  enum class Pages { small, huge };

  // Huge pages are for what a device reads into or writes from, which takes them in fewer pieces,
  // and for what is soon filled whole.
  BufferPool(std::size_t buffer_bytes, std::size_t count, const PinMemory& pin,
             Pages pages = Pages::small);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Waits for a buffer to be given back where none is free.
  Buffer lease();
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
