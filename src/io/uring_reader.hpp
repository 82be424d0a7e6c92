// Keeps many file reads in flight from one thread, by io_uring.
//
// One thread uses it. start() lends memory and descriptor to the kernel; wait() returns one
// finished read, in any order. The destructor waits for all reads in flight.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace corank {

class UringReader {
 public:
  // Returns null if the kernel lacks io_uring or forbids it.
  static std::unique_ptr<UringReader> open(unsigned max_in_flight);
  ~UringReader();
  UringReader(const UringReader&) = delete;
  UringReader& operator=(const UringReader&) = delete;

  bool full() const { return in_flight_ == max_in_flight_; }
  bool empty() const { return in_flight_ == 0; }

  // Starts a read, which may turn out short; must not be called while full(). `into` and the
  // descriptor must stay valid until wait() returns `tag`.
  void start(int descriptor, std::span<std::byte> into, std::uint64_t offset, void* tag);

  struct Finished {
    void* tag;
    std::int64_t bytes;  // bytes read, 0 at the end of the file, or -errno
  };
  // Waits until a read finishes; must not be called while empty().
  Finished wait();

 private:
  explicit UringReader(unsigned max_in_flight) : max_in_flight_(max_in_flight) {}

  io_uring ring_;
  unsigned max_in_flight_;
  unsigned in_flight_ = 0;
};

}  // namespace corank
