// Background writer: writes queued buffers in order, so that the merge never waits for a device.
//
// One thread writes; another verifies written bytes. An owner keeps each queued buffer alive. The
// error of either thread is thrown by the next call, and everything queued is then dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "util/stopwatch.hpp"
#include "util/worker_queue.hpp"

namespace corank {

class WriteBehind {
 public:
  // Writes the next bytes.
  using Write = std::function<void(std::span<const std::byte>)>;
  // Verifies written bytes.
  using Verify = std::function<void()>;
  // Keeps queued bytes alive and unchanged.
  using Owner = std::shared_ptr<const void>;

  WriteBehind(Write write, TraceRow row);

  // Queues `bytes`, and releases `owner` once they are written or dropped. Throws the error of an
  // earlier write or verification, after which nothing more is written.
  void add(std::span<const std::byte> bytes, Owner owner);
  // Queues `verify`, to be called once everything queued before it is written. Calls are in order;
  // `verify` is released after its call, or when dropped.
  void then(Verify verify);
  // Waits until everything queued is written and verified. Throws as add() does.
  void finish();
  // Drops the queue, and waits for the write and the verification in progress.
  void abandon() noexcept;

  const StageClock& busy() const { return busy_; }  // writing

 private:
  struct Job {
    std::span<const std::byte> bytes;
    Owner owner;
    Verify verify;  // set if there are no bytes
  };

  void write(Job& job, TraceRow row);

  Write write_;
  StageClock busy_ = 0;
  std::uint64_t num_writes_ = 0;  // of the writing thread
  WorkerQueue<Verify> verifier_;
  WorkerQueue<Job> writer_;  // destroyed first: it hands over to the verifier
};

}  // namespace corank
