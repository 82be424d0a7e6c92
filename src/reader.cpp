#include "reader.hpp"

#include <algorithm>
#include <limits>

#include "corank/error.hpp"

namespace corank {

Reader::Reader(std::span<const Run> runs, const KeyEncoding& encoding, const PassPlan& plan,
               Order order, BufferPool& pool, unsigned threads, std::stop_token stop, TraceRow row)
    : runs_(runs),
      encoding_(encoding),
      order_(order),
      chunk_records_(plan.chunk_records),
      read_ahead_limit_(plan.read_ahead),
      pool_(pool),
      stop_(std::move(stop)),
      states_(runs.size()) {
  // While runs are few, one read of each at a time would leave the device idle.
  const std::uint64_t depth =
      order == Order::forecast
          ? std::clamp<std::uint64_t>(plan.read_ahead / std::max<std::size_t>(runs.size(), 1), 1, 4)
          : std::numeric_limits<std::uint64_t>::max();
  for (std::uint32_t run = 0; run < runs.size(); ++run)
    for (std::uint64_t i = 0; i < depth && i * chunk_records_ < runs[run].records(); ++i)
      forecast_.push({{}, run});
  {
    std::lock_guard lock(mutex_);
    read_ahead();
  }
  for (unsigned i = 0; i < threads; ++i) {
    row.number = i;
    threads_.emplace_back([this, row] { serve_requests(row); });
  }
}

Reader::~Reader() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  requested_.notify_all();
}

ChunkRef Reader::next(std::uint32_t run) {
  Stopwatch waiting(wait_);
  std::unique_lock lock(mutex_);
  RunState& state = states_[run];
  if (state.issued == state.taken) issue(run);
  const bool arrived = loaded_.wait(lock, stop_, [&] {
    return failure_ || (!state.ready.empty() && state.ready.front()->first == state.taken);
  });
  if (failure_) std::rethrow_exception(failure_);
  if (!arrived) throw Interrupted();
  ChunkRef chunk = std::move(state.ready.front());
  state.ready.erase(state.ready.begin());
  state.taken += chunk->count;
  --ahead_;
  read_ahead();
  return chunk;
}

void Reader::issue(std::uint32_t run) {
  RunState& state = states_[run];
  const std::uint64_t first = state.issued;
  const std::uint64_t count = std::min(chunk_records_, runs_[run].records() - first);
  state.issued += count;
  ++ahead_;
  if (runs_[run].in_place(first)) {
    loaded(load({run, first, count, Buffer()}));
  } else {
    requests_.push({run, first, count, pool_.lease()});
    requested_.notify_one();
  }
}

void Reader::loaded(ChunkRef chunk) {
  if (order_ == Order::forecast) forecast_.push({chunk->last_key, chunk->run});
  auto& ready = states_[chunk->run].ready;
  const auto after = std::ranges::upper_bound(ready, chunk->first, {},
                                              [](const ChunkRef& other) { return other->first; });
  ready.insert(after, std::move(chunk));
}

void Reader::read_ahead() {
  while (ahead_ < read_ahead_limit_ && !forecast_.empty()) {
    const std::uint32_t run = forecast_.top().run;
    forecast_.pop();
    if (states_[run].issued < runs_[run].records()) issue(run);
  }
}

void Reader::serve_requests(TraceRow row) {
  std::unique_lock lock(mutex_);
  for (;;) {
    {
      Stopwatch idling(idle_);
      requested_.wait(lock, [this] { return closing_ || !requests_.empty(); });
    }
    if (closing_) return;
    Request request = std::move(requests_.front());
    requests_.pop();
    lock.unlock();
    ChunkRef chunk;
    std::exception_ptr failure;
    try {
      Stopwatch reading(busy_, row, request.run);
      chunk = load(std::move(request));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
    } else {
      loaded(std::move(chunk));
      read_ahead();
    }
    loaded_.notify_all();
  }
}

ChunkRef Reader::load(Request request) {
  const std::byte* in_place = runs_[request.run].in_place(request.first);
  if (!in_place) runs_[request.run].read(request.first, request.count, request.buffer.bytes());
  const std::byte* records = in_place ? in_place : request.buffer.bytes().data();
  const auto last_key = encode<max_key_words>(
      encoding_.layout(), records + (request.count - 1) * encoding_.record_bytes());
  return std::make_shared<const Chunk>(request.run, request.first, request.count, last_key,
                                       std::move(request.buffer), in_place);
}

}  // namespace corank
