#include "io/uring_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "util/buffer_pool.hpp"

namespace corank {

UringReader::UringReader(unsigned max_in_flight) : reads_(max_in_flight) {
  ring_.ring_fd = -1;
  for (std::size_t slot = max_in_flight; slot-- > 0;) free_.push_back(slot);
}

std::unique_ptr<UringReader> UringReader::open(unsigned max_in_flight) {
  assert(max_in_flight != 0);
  std::unique_ptr<UringReader> ring(new UringReader(max_in_flight));
  if (::io_uring_queue_init(max_in_flight, &ring->ring_, 0) != 0) {
    ring->ring_.ring_fd = -1;
    return nullptr;
  }
  return ring->works() ? std::move(ring) : nullptr;
}

// Returns whether the kernel also lets the ring be used.
bool UringReader::works() {
  ::io_uring_prep_nop(::io_uring_get_sqe(&ring_));
  io_uring_cqe* entry = nullptr;
  if (::io_uring_submit_and_wait(&ring_, 1) < 0 || ::io_uring_peek_cqe(&ring_, &entry) != 0)
    return false;
  ::io_uring_cqe_seen(&ring_, entry);
  return true;
}

UringReader::~UringReader() {
  if (ring_.ring_fd < 0) return;
  const std::size_t not_submitted = ::io_uring_sq_ready(&ring_);
  const std::size_t in_flight = reads_.size() - free_.size();
  for (std::size_t left = in_flight - std::min(in_flight, not_submitted); left != 0;) {
    io_uring_cqe* entry = nullptr;
    if (::io_uring_wait_cqe(&ring_, &entry) == 0) {
      ::io_uring_cqe_seen(&ring_, entry);
      --left;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ::io_uring_queue_exit(&ring_);
}

std::size_t UringReader::start(FileRead read) {
  assert(!full() && !read.into.empty());
  const std::size_t slot = free_.back();
  free_.pop_back();
  reads_[slot] = {std::move(read)};
  submit(slot);
  return slot;
}

void UringReader::submit(std::size_t slot) {
  const InFlight& read = reads_[slot];
  // A read of no bytes would look like the end of the file.
  assert(read.got < read.read.into.size());
  const auto into = read.read.into.subspan(read.got);
  io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
  assert(entry);
  // The size must fit in 32 bits; the kernel limits a read to about 2 GiB anyway.
  const auto bytes = static_cast<unsigned>(std::min<std::size_t>(into.size(), 1u << 30));
  ::io_uring_prep_read(entry, read.read.file->get(), into.data(), bytes,
                       read.read.offset + read.got);
  ::io_uring_sqe_set_data64(entry, slot);
}

// Returns also after a signal, and after a temporary lack of resources.
void UringReader::submit_and_wait() {
  const int submitted = ::io_uring_submit_and_wait(&ring_, 1);
  if (submitted >= 0 || submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY) return;
  const auto waiting = std::ranges::find_if(
      reads_, [](const InFlight& in_flight) { return in_flight.read.path != nullptr; });
  assert(waiting != reads_.end());
  errno = -submitted;
  throw_file_error(*waiting->read.path, "read");
}

UringReader::Finished UringReader::wait() {
  for (;;) {
    assert(!empty());
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(&ring_, &entry) != 0) submit_and_wait();
    const std::size_t slot = ::io_uring_cqe_get_data64(entry);
    const std::int64_t result = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    assert(slot < reads_.size());
    auto& [read, got] = reads_[slot];
    const bool again = result == -EINTR || result == -EAGAIN;
    if (result > 0) got += static_cast<std::uint64_t>(result);
    assert(got <= read.into.size());
    // Direct reads can only continue at a page boundary; stopping elsewhere means end of file.
    const bool at_end = result == 0 || (read.is_direct && got % page_bytes() != 0);
    if (again || (result >= 0 && !at_end && got < read.into.size())) {
      submit(slot);
      continue;
    }
    const FileRead done = std::exchange(read, {});
    free_.push_back(slot);
    if (result < 0) {
      errno = static_cast<int>(-result);
      throw_file_error(*done.path, fmt::format("read at byte {}", done.offset + got));
    }
    return {slot, got};
  }
}

}  // namespace corank
