#include "io/uring_reader.hpp"

#include <algorithm>
#include <cassert>

namespace corank {

std::unique_ptr<UringReader> UringReader::open(unsigned max_in_flight) {
  assert(max_in_flight != 0);
  std::unique_ptr<UringReader> ring(new UringReader(max_in_flight));
  if (::io_uring_queue_init(max_in_flight, &ring->ring_, 0) == 0) return ring;
  ring->ring_.ring_fd = -1;
  return nullptr;
}

UringReader::~UringReader() {
  if (ring_.ring_fd < 0) return;
  while (!empty()) wait();
  ::io_uring_queue_exit(&ring_);
}

void UringReader::start(int descriptor, std::span<std::byte> into, std::uint64_t offset,
                        void* tag) {
  assert(!full() && !into.empty());
  io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
  assert(entry);
  // The size must fit in 32 bits; the kernel limits a read to about 2 GiB anyway.
  const auto bytes = static_cast<unsigned>(std::min<std::size_t>(into.size(), 1u << 30));
  ::io_uring_prep_read(entry, descriptor, into.data(), bytes, offset);
  ::io_uring_sqe_set_data(entry, tag);
  ++in_flight_;
}

UringReader::Finished UringReader::wait() {
  assert(!empty());
  io_uring_cqe* entry = nullptr;
  // Submit again after a signal or a temporary lack of resources.
  while (::io_uring_peek_cqe(&ring_, &entry) != 0) ::io_uring_submit_and_wait(&ring_, 1);
  const Finished finished{::io_uring_cqe_get_data(entry), entry->res};
  ::io_uring_cqe_seen(&ring_, entry);
  --in_flight_;
  return finished;
}

}  // namespace corank
