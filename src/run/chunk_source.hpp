// Where the cutter takes the chunks of the runs from.
#pragma once

#include <atomic>
#include <cstdint>

#include "format/work_unit.hpp"
#include "util/stopwatch.hpp"

namespace corank {

class ChunkSource {
 public:
  // Which chunks are read ahead of next().
  enum class Order {
    forecast,    // as a merge wants them
    one_by_one,  // all of one run, then all of the next
  };

  virtual ~ChunkSource() = default;

  virtual std::uint32_t runs() const = 0;

  // The next chunk of `run`, after a wait if need be; null at the run's end. Throws Interrupted, or
  // the Error that reading it met. One thread calls it.
  virtual ChunkRef next(std::uint32_t run) = 0;

  // The sum over all records of the run that next() handed over, taken as soon as they were read; 0
  // unless fingerprints are wanted.
  virtual std::uint64_t fingerprint(std::uint32_t run) const = 0;
  // Records that were left out of all that has been read.
  virtual std::uint64_t skipped() const { return 0; }

  // All that was read, also what nobody took.
  std::uint64_t bytes_read() const { return bytes_read_; }

  const StageClock& busy() const { return busy_; }  // of all threads that read
  const StageClock& idle() const { return idle_; }  // of the same
  const StageClock& wait() const { return wait_; }  // of next()

 protected:
  std::atomic<std::uint64_t> bytes_read_ = 0;
  StageClock busy_ = 0;
  StageClock idle_ = 0;
  StageClock wait_ = 0;
};

}  // namespace corank
