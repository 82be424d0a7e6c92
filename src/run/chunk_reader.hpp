// Reads the chunks of all runs ahead of need, for the unit cutter.
//
// Forecasting: the run whose last loaded key is the smallest is the first to run out of records, so
// its next chunk is read first. Threads of the reader produce the chunks, except those that need
// no reading. Each pipe may take one of them, so that a pipe without data never keeps another run
// from being read.
//
// Source: Knuth, "The Art of Computer Programming", volume 3, 5.4.6.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <stop_token>
#include <tuple>
#include <vector>

#include "corank/key.hpp"
#include "io/uring_reader.hpp"
#include "run/chunk_producer.hpp"
#include "util/stopwatch.hpp"
#include "util/worker_queue.hpp"

namespace corank {

class ChunkReader {
 public:
  // `pool` lends plan.chunks buffers; it and everything that `reading` refers to must outlive the
  // reader. `threads` threads read, and one more for each pipe; direct I/O keeps plan.read_ahead
  // reads in flight instead.
  ChunkReader(ChunkProducers runs, const Reading& reading, BufferPool& pool, unsigned threads,
              std::stop_token stop, const TraceRow& row);
  ~ChunkReader();

  std::uint32_t runs() const { return static_cast<std::uint32_t>(runs_.size()); }

  // Returns the next chunk of `run`, waiting for it if necessary; null at the run's end. Throws
  // Interrupted, or the Error of a failed read. Only one thread may call it, and arrives().
  ChunkRef next(std::uint32_t run);
  // Waits for the next chunk of `run`, or its end. Returns false if the run is a pipe, and nothing
  // arrives for a while. Then all other pipes are read as far ahead as there is memory: a writer
  // may be waiting for one of them before it writes to this one.
  bool arrives(std::uint32_t run);

  // Returns the fingerprint of all records of `run` that next() has returned, computed when they
  // were read; 0 unless fingerprints are wanted.
  std::uint64_t fingerprint(std::uint32_t run) const { return runs_[run].fingerprint; }
  // Returns the number of records of `run` in chunks that next() has returned.
  std::uint64_t taken(std::uint32_t run) const { return runs_[run].taken; }
  // Returns the number of records skipped so far, in all runs.
  std::uint64_t skipped() const;
  // Returns the bytes read so far, chunks that were never taken included.
  std::uint64_t bytes_read() const { return bytes_read_; }

  const StageClock& busy() const { return busy_; }          // reading, summed over all threads
  const StageClock& idle() const { return queue_.idle(); }  // idle, summed over all threads
  const StageClock& wait() const { return wait_; }          // waiting in next() and arrives()

 private:
  using Queue = WorkerQueue<ChunkRequest>;

  // Error of a request, and the number of its first record: max if it had not begun, so that all
  // others come before it.
  struct Failure {
    std::exception_ptr error;
    std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  };
  struct Forecast {
    Key<max_key_words> last_key{};
    std::uint64_t turn = 0;  // orders keys that are longer than last_key first in, first out
    std::uint32_t run = 0;
    bool operator<(const Forecast& other) const {  // the smallest key on top
      return std::tie(other.last_key, other.turn, other.run) < std::tie(last_key, turn, run);
    }
  };
  struct RunState {
    std::unique_ptr<ChunkProducer> producer;
    std::atomic<Demand> demand = Demand::none;
    std::uint64_t in_flight = 0;        // requests
    std::uint64_t begun = 0;            // of these; see ChunkProducer::begin()
    bool ended = false;                 // nothing is left to request
    std::uint64_t taken = 0;            // records returned by next()
    Failure failure = {};               // the first, if chunks of the run may be found out of order
    std::optional<Forecast> held = {};  // of the next request, until a chunk is taken
    std::uint64_t fingerprint = 0;
    std::vector<ChunkRef> ready;  // loaded, not taken; in order

    bool has_next() const { return !ready.empty() && ready.front()->first == taken; }
    // Returns whether the failure is of the next chunk.
    bool fails_next() const {
      return failure.error && !has_next() && (failure.first == taken || in_flight == 0);
    }
  };

  unsigned threads_for(const ChunkProducers& runs, unsigned threads) const;
  void drop_requests();
  ChunkRef take(std::uint32_t run);
  bool can_issue(const RunState& run) const;
  void issue(std::uint32_t run, const Queue::Lock& lock);
  bool is_too_early(std::uint32_t run) const;
  void read_ahead(const Queue::Lock& lock);
  void read_pipes_ahead(const Queue::Lock& lock);
  void read_on(const Queue::Lock& lock);
  Forecast forecast(const Chunk& chunk);
  void serve(ChunkRequest& request, const TraceRow& row);
  bool begins(const RunState& run) const {
    return max_ahead_of_run_ != 0 && run.producer->traits().may_begin;
  }
  void go_on(const Forecast& next);
  void serve_by_ring(ChunkRequest& request, const TraceRow& row);
  void begun(std::uint32_t run);
  void failed(std::uint32_t run, const Failure& failure, bool has_begun);
  void loaded(std::uint32_t run, ChunkProducer::Product product, bool has_begun = false);

  const Reading reading_;
  BufferPool& pool_;
  std::stop_token stop_;
  std::atomic<std::uint64_t> bytes_read_ = 0;
  StageClock busy_ = 0;
  StageClock wait_ = 0;
  std::vector<ChunkRequest> slots_;       // requests whose reads are in the ring
  std::unique_ptr<UringReader> ring_;     // null: each thread reads one chunk at a time
  const std::uint64_t max_ahead_of_run_;  // see max_ahead_of()

  // Guarded by the queue's lock:
  std::vector<RunState> runs_;
  std::priority_queue<Forecast> forecast_;  // runs with more chunks to request
  std::uint64_t turns_ = 0;
  std::uint64_t ahead_ = 0;       // chunks requested, not taken
  std::uint32_t taken_run_ = 0;   // whose chunk was asked for last
  bool is_kept_waiting_ = false;  // the merge waits for a pipe without data

  Queue queue_;  // last: its threads use the members above
};

}  // namespace corank
