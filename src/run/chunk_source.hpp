// Source of the chunks of all runs, from which the unit cutter takes them.
//
// One thread calls next(); implementations read ahead on threads of their own, whose failures
// next() throws.
#pragma once

#include <atomic>
#include <cstdint>

#include "format/work_unit.hpp"
#include "util/stopwatch.hpp"

namespace corank {

class ChunkSource {
 public:
  // Order in which chunks are read ahead of next().
  enum class Order {
    forecast,    // as a merge needs them
    one_by_one,  // all of one run, then all of the next
  };

  virtual ~ChunkSource() = default;

  virtual std::uint32_t runs() const = 0;

  // Returns the next chunk of `run`, waiting for it if necessary; null at the run's end. Throws
  // Interrupted, or the Error of a failed read. Only one thread may call it.
  virtual ChunkRef next(std::uint32_t run) = 0;

  // Returns the fingerprint of all records of `run` that next() has returned, computed when they
  // were read; 0 unless fingerprints are wanted.
  virtual std::uint64_t fingerprint(std::uint32_t run) const = 0;
  // Returns the number of records skipped so far, in all runs.
  virtual std::uint64_t skipped() const { return 0; }

  // Returns the bytes read so far, chunks that were never taken included.
  std::uint64_t bytes_read() const { return bytes_read_; }

  const StageClock& busy() const { return busy_; }  // reading, summed over all reader threads
  const StageClock& idle() const { return idle_; }  // idle, summed over all reader threads
  const StageClock& wait() const { return wait_; }  // waiting in next()

 protected:
  std::atomic<std::uint64_t> bytes_read_ = 0;
  StageClock busy_ = 0;
  StageClock idle_ = 0;
  StageClock wait_ = 0;
};

}  // namespace corank
