// Reads runs of fixed-size records chunk by chunk, ahead of the cutter.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <queue>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "corank/key.hpp"
#include "io/uring_reader.hpp"
#include "run/chunk_source.hpp"
#include "run/pass_plan.hpp"
#include "run/run.hpp"
#include "verify/fingerprint.hpp"

namespace corank {

// Forecasting: the run whose last loaded key is the smallest is the first to run out of records, so
// its next chunk is read first.
//
// Source: Knuth, "The Art of Computer Programming", volume 3, 5.4.6.
class Reader final : public ChunkSource {
 public:
  // `pool` lends plan.chunks buffers; it, `runs` and `encoding` must outlive the reader. `threads`
  // threads read from the page cache; direct I/O keeps plan.read_ahead reads in flight. If `sum` is
  // null, chunks get no fingerprints.
  Reader(std::span<const Run> runs, const KeyEncoding& encoding, const PassPlan& plan, Order order,
         BufferPool& pool, unsigned threads, FingerprintSum sum, std::stop_token stop,
         TraceRow row);
  ~Reader() override;

  std::uint32_t runs() const override { return static_cast<std::uint32_t>(runs_.size()); }
  ChunkRef next(std::uint32_t run) override;
  std::uint64_t fingerprint(std::uint32_t run) const override { return states_[run].fingerprint; }

 private:
  struct RunState {
    std::uint64_t issued = 0;  // records requested
    std::uint64_t taken = 0;   // records returned by next()
    std::uint64_t fingerprint = 0;
    std::vector<ChunkRef> ready;  // loaded, not taken; in order
  };
  struct Request {
    std::uint32_t run;
    std::uint64_t first;
    std::uint64_t count;
    Buffer buffer;
  };
  struct ReadInFlight;
  struct Forecast {
    Key<max_key_words> last_key;
    std::uint32_t run;
    bool operator<(const Forecast& other) const {  // the smallest key on top
      return other.last_key < last_key || (other.last_key == last_key && other.run < run);
    }
  };

  void close();
  void issue(std::uint32_t run);
  void read_ahead();
  void serve_requests(TraceRow row);
  void serve_requests_by_ring(TraceRow row);
  void start_read(Request request);
  void resume_read(std::unique_ptr<ReadInFlight> read);
  ChunkRef finish_read();  // null if the read continues
  void finish(ChunkRef chunk, std::exception_ptr failure);
  void loaded(ChunkRef chunk);
  ChunkRef load(Request request);
  ChunkRef make_chunk(Request request, const std::byte* records);

  std::span<const Run> runs_;
  const KeyEncoding& encoding_;
  Order order_;
  PassPlan plan_;
  BufferPool& pool_;
  FingerprintSum sum_;
  std::stop_token stop_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable requested_;
  std::condition_variable_any loaded_;
  bool closing_ = false;
  std::vector<RunState> states_;
  std::priority_queue<Forecast> forecast_;  // runs with more chunks to request
  std::uint64_t ahead_ = 0;                 // chunks requested, not taken
  std::queue<Request> requests_;
  std::exception_ptr failure_;

  std::unique_ptr<UringReader> ring_;  // null: each thread reads one chunk at a time
  std::vector<std::jthread> threads_;
};

}  // namespace corank
