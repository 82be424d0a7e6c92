#include "util/buffer_pool.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cstring>

#include "corank/error.hpp"
#include "util/messages.hpp"

namespace corank {

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

Buffer::~Buffer() {
  if (pool_) pool_->give_back(bytes_.data());
}

BufferPool::BufferPool(std::size_t buffer_bytes, std::size_t count, const PinMemory& pin,
                       Pages pages)
    : buffer_bytes_(buffer_bytes) {
  assert(buffer_bytes % page_bytes() == 0);
  const std::size_t bytes = buffer_bytes * count;
  if (bytes == 0) return;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw_error(
        ErrorCode::memory,
        "cannot take {} bytes of memory: {}; try a smaller {}, or raise the limit (ulimit -v)",
        bytes, std::strerror(errno), Setting::memory);
  memory_ = {static_cast<std::byte*>(memory), bytes};
  try {
    // Huge pages make registration for a device faster, too. Without need they are not requested,
    // since the kernel's search for them then costs more than they gain. See docs/tuning.md.
    if (pin || pages == Pages::huge) ::madvise(memory, bytes, MADV_HUGEPAGE);
    if (pin) pinned_ = pin(memory_);
    free_.reserve(count);
  } catch (...) {
    pinned_.reset();
    ::munmap(memory, bytes);
    throw;
  }
  // Lease the lowest address first, so that memory is touched only as far as it is needed.
  for (std::size_t i = count; i-- > 0;) free_.push_back(memory_.data() + i * buffer_bytes);
}

BufferPool::~BufferPool() {
  assert(memory_.empty() || free_.size() == memory_.size() / buffer_bytes_);
  pinned_.reset();
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

Buffer BufferPool::lease() {
  assert(!memory_.empty());  // there would never be a free buffer
  std::unique_lock lock(mutex_);
  returned_.wait(lock, [this] { return !free_.empty(); });
  std::byte* buffer = free_.back();
  free_.pop_back();
  return Buffer(this, {buffer, buffer_bytes_});
}

std::size_t BufferPool::available() const {
  std::lock_guard lock(mutex_);
  return free_.size();
}

void BufferPool::give_back(std::byte* buffer) {
  {
    std::lock_guard lock(mutex_);
    assert(memory_.data() <= buffer && buffer < memory_.data() + memory_.size());
    assert(static_cast<std::size_t>(buffer - memory_.data()) % buffer_bytes_ == 0);
    assert(free_.size() < memory_.size() / buffer_bytes_);
    free_.push_back(buffer);
  }
  returned_.notify_one();
}

}  // namespace corank
