#include "io/compressor.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "corank/error.hpp"

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
  bool done = false;
  std::exception_ptr failure;
};

Compressor::Compressor(const Compression& compression, unsigned threads, std::stop_token stop,
                       TraceRow row)
    : compression_(compression), max_in_flight_(frames_for(threads)), stop_(std::move(stop)) {
  const std::size_t bound = make_encoder(compression)->bound(frame_bytes);
  for (std::size_t i = 0; i < max_in_flight_; ++i) free_.push_back(std::make_unique<Frame>(bound));
  row.stage = "compress";
  try {
    for (row.number = 0; row.number < threads; ++row.number)
      threads_.emplace_back([this, row] { serve(row); });
  } catch (...) {
    close();  // stops the threads that have started
    throw;
  }
}

Compressor::~Compressor() {
  close();
}

void Compressor::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  submitted_.notify_all();
}

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
  {
    const std::lock_guard lock(mutex_);
    filling_->done = false;
    in_flight_.push_back(std::move(filling_));
    assert(in_flight_.size() <= max_in_flight_);
  }
  submitted_.notify_one();
}

// Writes all leading frames that are done, then waits until at most `max_in_flight` are left.
void Compressor::write_done(const Write& write, std::size_t max_in_flight) {
  std::unique_lock lock(mutex_);
  while (!in_flight_.empty()) {
    if (!in_flight_.front()->done) {
      if (in_flight_.size() <= max_in_flight) return;
      Stopwatch waiting(wait_);
      if (!done_.wait(lock, stop_, [this] { return in_flight_.front()->done; }))
        throw Interrupted();
    }
    std::unique_ptr<Frame> frame = std::move(in_flight_.front());
    in_flight_.pop_front();
    ++written_;
    lock.unlock();
    if (frame->failure) std::rethrow_exception(frame->failure);
    write({frame->compressed.get(), frame->compressed_bytes});
    free_.push_back(std::move(frame));
    lock.lock();
  }
}

void Compressor::serve(TraceRow row) {
  const auto failing = [&](auto call) -> std::exception_ptr {
    try {
      call();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  };
  std::unique_ptr<Encoder> encoder;
  const std::exception_ptr no_encoder = failing([&] { encoder = make_encoder(compression_); });
  std::unique_lock lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [this] { return closing_ || begun_ < written_ + in_flight_.size(); });
    if (closing_) return;
    const std::uint64_t number = begun_++;
    assert(written_ <= number && number - written_ < in_flight_.size());
    Frame& frame = *in_flight_[number - written_];
    lock.unlock();
    frame.failure = no_encoder ? no_encoder : failing([&] {
      Stopwatch compressing(busy_, row, number);
      frame.compressed_bytes = encoder->encode({frame.plain.get(), frame.plain_bytes},
                                               {frame.compressed.get(), frame.room});
      assert(frame.compressed_bytes <= frame.room);
    });
    lock.lock();
    frame.done = true;
    done_.notify_one();
  }
}

}  // namespace corank
