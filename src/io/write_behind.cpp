#include "io/write_behind.hpp"

#include <cassert>
#include <utility>

namespace corank {

WriteBehind::WriteBehind(Write write, TraceRow row) : write_(std::move(write)) {
  writer_ = std::jthread([this, row] { write_jobs(row); });
  try {
    verifier_thread_ = std::jthread([this] { verify_jobs(); });
  } catch (...) {
    close();
    throw;
  }
}

WriteBehind::~WriteBehind() {
  abandon();
  close();
}

void WriteBehind::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
}

void WriteBehind::add(std::span<const std::byte> bytes, Owner owner) {
  assert(!bytes.empty());
  add({bytes, std::move(owner), nullptr});
}

void WriteBehind::then(Look look) {
  assert(look);
  add({{}, nullptr, std::move(look)});
}

void WriteBehind::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void WriteBehind::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return idle(); });
  if (failure_) std::rethrow_exception(failure_);
}

void WriteBehind::abandon() noexcept {
  std::unique_lock lock(mutex_);
  jobs_.clear();
  written_.clear();
  changed_.wait(lock, [this] { return at_work_ == 0; });
  written_.clear();  // the writer may have added to it
  assert(idle());
}

void WriteBehind::write_jobs(TraceRow row) {
  serve(jobs_, [&, number = std::uint64_t{0}](Job& job) mutable {
    if (job.look) {
      const std::lock_guard lock(mutex_);
      written_.push_back(std::move(job));
    } else {
      Stopwatch writing(busy_, row, number++);
      write_(job.bytes);
    }
  });
}

void WriteBehind::verify_jobs() {
  serve(written_, [](Job& job) { job.look(); });
}

template <class Act>
void WriteBehind::serve(std::deque<Job>& from, Act act) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !from.empty(); });
    if (from.empty()) return;
    std::exception_ptr failure;
    ++at_work_;
    {
      Job job = std::move(from.front());
      from.pop_front();
      lock.unlock();
      try {
        act(job);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    lock.lock();
    --at_work_;
    if (failure) failure_ = failure;
    if (failure_) {
      jobs_.clear();
      written_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace corank
