// Reads of many files in flight at once, by one thread: io_uring.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace corank {

class UringReader {
 public:
  // Null where the kernel has no io_uring or does not allow it.
  static std::unique_ptr<UringReader> open(unsigned max_in_flight);
  ~UringReader();
  UringReader(const UringReader&) = delete;
  UringReader& operator=(const UringReader&) = delete;

  bool full() const { return in_flight_ == max_in_flight_; }
  bool empty() const { return in_flight_ == 0; }

  // Must not be called while full. `into` and the descriptor stay with the kernel until wait()
  // returns `tag`.
  void start(int descriptor, std::span<std::byte> into, std::uint64_t offset, void* tag);

  struct Finished {
    void* tag;
    std::int64_t bytes;  // that were read, 0 at the end of the file; negative: -errno
  };
  // Must not be called while empty.
  Finished wait();

 private:
  explicit UringReader(unsigned max_in_flight) : max_in_flight_(max_in_flight) {}

  io_uring ring_;
  unsigned max_in_flight_;
  unsigned in_flight_ = 0;
};

}  // namespace corank
