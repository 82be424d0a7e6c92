#include "codec/compressor.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace corank {
namespace {

// Returns the number of frames: one per thread, one being filled, and some waiting to be written.
std::size_t frames_for(unsigned threads) {
  return threads + std::max<std::size_t>(threads / 2, 2);
}

}  // namespace

struct Compressor::Frame {
  explicit Frame(std::size_t bound)
      : plain(new std::byte[frame_bytes]), compressed(new std::byte[bound]), room(bound) {}

  std::unique_ptr<std::byte[]> plain;
  std::size_t plain_bytes = 0;
  std::unique_ptr<std::byte[]> compressed;
  std::size_t room;
  std::size_t compressed_bytes = 0;
  std::uint64_t number = 0;
  bool done = false;  // guarded by the queue's lock
};

Compressor::Compressor(const Compression& compression, unsigned threads, std::stop_token stop,
                       TraceRow row)
    : compression_(compression),
      max_in_flight_(frames_for(threads)),
      stop_(std::move(stop)),
      encoders_(threads),
      queue_(threads, [this, row](Frame* frame, unsigned worker) {
        compress(*frame, {row.trace, "compress", row.partition, worker});
      }) {
  const std::size_t bound = make_encoder(compression).bound(frame_bytes);
  for (std::size_t i = 0; i < max_in_flight_; ++i) free_.push_back(std::make_unique<Frame>(bound));
}

Compressor::~Compressor() = default;

std::uint64_t Compressor::memory_bytes(const Compression& compression, unsigned threads) {
  return frames_for(threads) * 2 * frame_bytes + threads * encoder_bytes(compression);
}

void Compressor::add(std::span<const std::byte> bytes, const Write& write) {
  any_ = any_ || !bytes.empty();
  while (!bytes.empty()) {
    if (!filling_) {
      if (free_.empty()) write_done(write, max_in_flight_ - 1);
      assert(!free_.empty());
      filling_ = std::move(free_.back());
      free_.pop_back();
      filling_->plain_bytes = 0;
    }
    const std::size_t count = std::min(bytes.size(), frame_bytes - filling_->plain_bytes);
    std::copy_n(bytes.begin(), count, filling_->plain.get() + filling_->plain_bytes);
    filling_->plain_bytes += count;
    bytes = bytes.subspan(count);
    if (filling_->plain_bytes == frame_bytes) {
      submit();
      write_done(write, max_in_flight_);
    }
  }
}

void Compressor::finish(const Write& write) {
  if (!any_) {
    assert(!filling_ && !free_.empty());
    filling_ = std::move(free_.back());
    free_.pop_back();
  }
  if (filling_) submit();
  write_done(write, 0);
  assert(free_.size() == max_in_flight_);
}

void Compressor::submit() {
  assert(filling_->plain_bytes <= frame_bytes);
  filling_->done = false;
  filling_->number = submitted_++;
  const auto lock = queue_.lock();
  in_flight_.push_back(std::move(filling_));
  assert(in_flight_.size() <= max_in_flight_);
  queue_.submit(in_flight_.back().get(), lock);
}

// Writes all leading frames that are done, then waits until at most `max_in_flight` are left.
void Compressor::write_done(const Write& write, std::size_t max_in_flight) {
  auto lock = queue_.lock();
  while (!in_flight_.empty()) {
    if (!in_flight_.front()->done) {
      if (in_flight_.size() <= max_in_flight) return;
      Stopwatch waiting(wait_);
      queue_.wait(lock, stop_, [this] { return in_flight_.front()->done; });
    }
    std::unique_ptr<Frame> frame = std::move(in_flight_.front());
    in_flight_.pop_front();
    lock.unlock();
    write({frame->compressed.get(), frame->compressed_bytes});
    free_.push_back(std::move(frame));
    lock.lock();
  }
}

void Compressor::compress(Frame& frame, TraceRow row) {
  Encoder& encoder = encoders_[row.number];
  if (!encoder.encode) encoder = make_encoder(compression_);
  {
    Stopwatch compressing(busy_, row, frame.number);
    frame.compressed_bytes = encoder.encode({frame.plain.get(), frame.plain_bytes},
                                            {frame.compressed.get(), frame.room});
  }
  assert(frame.compressed_bytes <= frame.room);
  const auto lock = queue_.lock();
  frame.done = true;
}

}  // namespace corank
