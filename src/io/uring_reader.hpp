// Keeps many file reads in flight from one thread, by io_uring.
//
// One thread uses it. start() lends the memory of a read to the kernel until wait() returns the
// read, in any order. The destructor waits for all reads in flight, so their memory must outlive
// it.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "io/file.hpp"

namespace corank {

class UringReader {
 public:
  // Returns null if the kernel lacks io_uring or forbids it.
  static std::unique_ptr<UringReader> open(unsigned max_in_flight);
  ~UringReader();
  UringReader(const UringReader&) = delete;
  UringReader& operator=(const UringReader&) = delete;

  bool full() const { return free_.empty(); }
  bool empty() const { return free_.size() == reads_.size(); }

  // Starts a read and returns its slot, a number below `max_in_flight`. Must not be called while
  // full().
  std::size_t start(FileRead read);

  struct Finished {
    std::size_t slot;     // free again
    std::uint64_t bytes;  // bytes read; fewer than wanted only at the end of the file
  };
  // Waits until a read finishes; must not be called while empty(). Throws FileError if one failed.
  Finished wait();

 private:
  struct InFlight {
    FileRead read;
    std::uint64_t got = 0;
  };

  explicit UringReader(unsigned max_in_flight);
  bool works();
  void submit(std::size_t slot);
  void submit_and_wait();

  io_uring ring_;
  std::vector<InFlight> reads_;
  std::vector<std::size_t> free_;  // slots
};

}  // namespace corank
