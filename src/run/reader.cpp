#include "run/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <limits>

#include "corank/error.hpp"

namespace corank {

Reader::Reader(std::span<const Run> runs, const KeyEncoding& encoding, const PassPlan& plan,
               Order order, BufferPool& pool, unsigned threads, FingerprintSum sum,
               std::stop_token stop, TraceRow row)
    : runs_(runs),
      encoding_(encoding),
      order_(order),
      plan_(plan),
      pool_(pool),
      sum_(sum),
      stop_(std::move(stop)),
      states_(runs.size()) {
  assert(plan.chunk_records != 0 && plan.read_ahead != 0);
  // With few runs, one read of each at a time would leave the device idle.
  const std::uint64_t depth =
      order == Order::forecast
          ? std::clamp<std::uint64_t>(plan.read_ahead / std::max<std::size_t>(runs.size(), 1), 1, 4)
          : std::numeric_limits<std::uint64_t>::max();
  for (std::uint32_t run = 0; run < runs.size(); ++run)
    for (std::uint64_t i = 0; i < depth && i * plan.chunk_records < runs[run].records(); ++i)
      forecast_.push({{}, run});
  {
    std::lock_guard lock(mutex_);
    read_ahead();
  }
  if (std::ranges::any_of(runs, &Run::is_direct)) {
    ring_ = UringReader::open(static_cast<unsigned>(plan.read_ahead));
    threads = std::min(static_cast<unsigned>(plan.read_ahead), 32u);
  }
  try {
    if (ring_)
      threads_.emplace_back([this, row] { serve_requests_by_ring(row); });
    else
      for (row.number = 0; row.number < threads; ++row.number)
        threads_.emplace_back([this, row] { serve_requests(row); });
  } catch (...) {
    close();  // stops the threads that have started
    throw;
  }
}

Reader::~Reader() {
  close();
}

void Reader::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  requested_.notify_all();
}

ChunkRef Reader::next(std::uint32_t run) {
  assert(run < states_.size());
  Stopwatch waiting(wait_);
  std::unique_lock lock(mutex_);
  RunState& state = states_[run];
  if (state.taken == runs_[run].records()) return nullptr;
  if (state.issued == state.taken) issue(run);
  const bool arrived = loaded_.wait(lock, stop_, [&] {
    return failure_ || (!state.ready.empty() && state.ready.front()->first == state.taken);
  });
  if (failure_) std::rethrow_exception(failure_);
  if (!arrived) throw Interrupted();
  ChunkRef chunk = std::move(state.ready.front());
  state.ready.erase(state.ready.begin());
  assert(chunk->run == run && chunk->first == state.taken && chunk->count != 0);
  state.taken += chunk->count;
  state.fingerprint += chunk->fingerprint.value_or(0);
  assert(ahead_ != 0 && state.taken <= state.issued);
  --ahead_;
  read_ahead();
  return chunk;
}

void Reader::issue(std::uint32_t run) {
  RunState& state = states_[run];
  const std::uint64_t first = state.issued;
  const std::uint64_t records = runs_[run].records();
  const bool starts_small =
      first == 0 && records > plan_.chunk_records && order_ == Order::forecast;
  const std::uint64_t count =
      starts_small ? first_chunk_records(plan_, encoding_.record_bytes(), run, runs_.size())
                   : std::min(plan_.chunk_records, records - first);
  assert(count != 0 && count <= plan_.chunk_records && count <= records - first);
  state.issued += count;
  ++ahead_;
  const std::byte* in_place = runs_[run].in_place(first);
  if (in_place && !runs_[run].is_mapped() && !sum_) {
    loaded(make_chunk({run, first, count, Buffer()}, in_place));
  } else {
    requests_.push({run, first, count, in_place ? Buffer() : pool_.lease()});
    requested_.notify_one();
  }
}

void Reader::loaded(ChunkRef chunk) {
  assert(chunk->first >= states_[chunk->run].taken);
  assert(chunk->first + chunk->count <= states_[chunk->run].issued);
  if (order_ == Order::forecast) forecast_.push({chunk->last_key, chunk->run});
  auto& ready = states_[chunk->run].ready;
  const auto after = std::ranges::upper_bound(ready, chunk->first, {},
                                              [](const ChunkRef& other) { return other->first; });
  ready.insert(after, std::move(chunk));
}

void Reader::read_ahead() {
  while (ahead_ < plan_.read_ahead && !forecast_.empty()) {
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
    finish(std::move(chunk), failure);
  }
}

void Reader::serve_requests_by_ring(TraceRow row) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (ring_->empty()) {
      Stopwatch idling(idle_);
      requested_.wait(lock, [this] { return closing_ || !requests_.empty(); });
    }
    if (closing_ && ring_->empty()) return;
    ChunkRef chunk;
    std::exception_ptr failure;
    try {
      while (!closing_ && !requests_.empty() && !ring_->full()) {
        Request request = std::move(requests_.front());
        requests_.pop();
        start_read(std::move(request));
      }
      lock.unlock();
      Stopwatch reading(busy_, row);
      if (!ring_->empty()) chunk = finish_read();
    } catch (...) {
      failure = std::current_exception();
    }
    if (!lock.owns_lock()) lock.lock();
    finish(std::move(chunk), failure);
  }
}

struct Reader::ReadInFlight {
  Request request;
  std::shared_ptr<const FileDescriptor> file;
  Run::Part part;
  std::uint64_t got = 0;
};

void Reader::start_read(Request request) {
  const Run& run = runs_[request.run];
  const Run::Part part = run.part(request.first, request.count);
  resume_read(std::make_unique<ReadInFlight>(std::move(request), run.descriptor(), part));
}

void Reader::resume_read(std::unique_ptr<ReadInFlight> read) {
  // A read of no bytes would look like the end of the file.
  assert(read->got < read->part.bytes);
  assert(read->part.bytes <= read->request.buffer.bytes().size());
  const auto into = read->request.buffer.bytes().first(read->part.bytes).subspan(read->got);
  const std::uint64_t offset = read->part.offset + read->got;
  const int descriptor = read->file->get();
  ring_->start(descriptor, into, offset, read.release());
}

ChunkRef Reader::finish_read() {
  const UringReader::Finished finished = ring_->wait();
  std::unique_ptr<ReadInFlight> read(static_cast<ReadInFlight*>(finished.tag));
  const Run& run = runs_[read->request.run];
  if (finished.bytes < 0 && finished.bytes != -EINTR && finished.bytes != -EAGAIN) {
    errno = static_cast<int>(-finished.bytes);
    throw_file_error(run.path(), fmt::format("read at byte {}", read->part.offset + read->got));
  }
  read->got += static_cast<std::uint64_t>(std::max<std::int64_t>(finished.bytes, 0));
  assert(read->got <= read->part.bytes);
  // Direct reads can only continue at a page boundary; stopping elsewhere means end of file.
  const bool at_end = finished.bytes == 0 || (run.is_direct() && read->got % page_bytes() != 0);
  if (!at_end && read->got < read->part.bytes) {
    resume_read(std::move(read));
    return nullptr;
  }
  run.check_got(read->part, read->got);
  const std::byte* records = read->request.buffer.bytes().data() + read->part.skew;
  return make_chunk(std::move(read->request), records);
}

void Reader::finish(ChunkRef chunk, std::exception_ptr failure) {
  try {
    if (chunk) {
      loaded(std::move(chunk));
      read_ahead();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  if (!failure_) failure_ = failure;
  loaded_.notify_all();
}

ChunkRef Reader::load(Request request) {
  const Run& run = runs_[request.run];
  if (const std::byte* records = run.in_place(request.first)) {
    if (run.is_mapped()) populate({records, request.count * encoding_.record_bytes()});
    return make_chunk(std::move(request), records);
  }
  const Run::Part part = run.part(request.first, request.count);
  const auto into = request.buffer.bytes();
  assert(part.bytes <= into.size());
  run.check_got(part, read_at(*run.descriptor(), into.first(part.bytes), part.offset, run.path()));
  return make_chunk(std::move(request), into.data() + part.skew);
}

ChunkRef Reader::make_chunk(Request request, const std::byte* records) {
  const std::uint64_t bytes = request.count * encoding_.record_bytes();
  assert(request.count != 0);
  [[maybe_unused]] const auto room = request.buffer.bytes();
  assert(room.empty() || (room.data() <= records && records + bytes <= room.data() + room.size()));
  bytes_read_ += bytes;
  const auto last_key =
      encode<max_key_words>(encoding_.layout(), records + bytes - encoding_.record_bytes());
  const Run& run = runs_[request.run];
  const MappedRange mapped{{run.in_place(0), run.bytes()}, run.mapped_page_bytes()};
  std::optional<std::uint64_t> fingerprint;
  if (sum_) fingerprint = sum_({records, bytes}, encoding_.record_bytes());
  return {new Chunk{request.run, request.first, request.count, last_key, std::move(request.buffer),
                    records, fingerprint},
          [mapped, bytes](const Chunk* chunk) {
            if (mapped.page_bytes != 0) forget({chunk->records(), bytes}, mapped);
            delete chunk;
          }};
}

}  // namespace corank
