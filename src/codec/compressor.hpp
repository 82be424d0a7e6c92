// Compresses a stream of bytes on several threads, frame by frame, in order.
//
// One thread calls add() and finish(), and runs the `write` callback in them. Every frame but the
// last holds frame_bytes bytes, so the output depends on the input alone: not on the number of
// threads, the units or the backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "codec/codec.hpp"
#include "util/stopwatch.hpp"
#include "util/worker_queue.hpp"

namespace corank {

class Compressor {
 public:
  // Receives compressed bytes, in order.
  using Write = std::function<void(std::span<const std::byte>)>;

  Compressor(const Compression& compression, unsigned threads, std::stop_token stop, TraceRow row);
  ~Compressor();

  // Compresses `bytes` and passes finished frames to `write`. Waits if too many frames are in
  // flight. Throws Interrupted, and what `write` throws.
  void add(std::span<const std::byte> bytes, const Write& write);
  // Compresses and writes the rest. An empty stream becomes one frame without content, because an
  // empty file is not a valid compressed file.
  void finish(const Write& write);

  const StageClock& busy() const { return busy_; }  // summed over its threads
  const StageClock& wait() const { return wait_; }  // in add() and finish()

  // Returns the approximate memory of one compressor.
  static std::uint64_t memory_bytes(const Compression& compression, unsigned threads);

 private:
  struct Frame;

  void submit();
  void write_done(const Write& write, std::size_t max_in_flight);
  void compress(Frame& frame, TraceRow row);

  Compression compression_;
  std::size_t max_in_flight_;
  std::stop_token stop_;
  StageClock busy_ = 0;
  StageClock wait_ = 0;
  std::unique_ptr<Frame> filling_;
  std::vector<std::unique_ptr<Frame>> free_;
  bool any_ = false;

  std::vector<Encoder> encoders_;                 // one a thread, made by it
  std::uint64_t submitted_ = 0;                   // frames
  std::deque<std::unique_ptr<Frame>> in_flight_;  // guarded by the queue's lock
  WorkerQueue<Frame*> queue_;                     // last: its threads use the members above
};

}  // namespace corank
