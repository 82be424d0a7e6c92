// Compresses a stream of bytes on several threads, frame by frame, in order.
//
// One thread calls add() and finish(), and runs the `write` callback in them. Every frame but the
// last holds frame_bytes bytes, so the output depends on the input alone: not on the number of
// threads, the units or the backend.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "io/codec.hpp"
#include "util/stopwatch.hpp"

namespace corank {

class Compressor {
 public:
  // Receives compressed bytes, in order.
  using Write = std::function<void(std::span<const std::byte>)>;

  Compressor(const Compression& compression, unsigned threads, std::stop_token stop, TraceRow row);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

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

  void close();
  void submit();
  void write_done(const Write& write, std::size_t max_in_flight);
  void serve(TraceRow row);

  Compression compression_;
  std::size_t max_in_flight_;
  std::stop_token stop_;
  StageClock busy_ = 0;
  StageClock wait_ = 0;
  std::unique_ptr<Frame> filling_;
  std::vector<std::unique_ptr<Frame>> free_;
  bool any_ = false;

  std::mutex mutex_;  // guards the members below
  std::condition_variable submitted_;
  std::condition_variable_any done_;
  bool closing_ = false;
  std::deque<std::unique_ptr<Frame>> in_flight_;
  std::uint64_t begun_ = 0;    // frames
  std::uint64_t written_ = 0;  // frames
  std::vector<std::jthread> threads_;
};

}  // namespace corank
